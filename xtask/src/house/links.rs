//! What pages point at exists: files, headings, and the numbers of errors.

use std::collections::BTreeSet;
use std::path::Path;

use super::{File, Findings};
use crate::source;

/// Where the numbers of errors are given out.
const CODES: &str = "crates/core/src/code.rs";

pub(super) fn check(root: &Path, files: &[File], findings: &mut Findings) {
    for page in files.iter().filter(|file| file.is_page()) {
        for (number, target) in links(&page.text) {
            if let Some(problem) = check_link(root, files, page, &target) {
                findings.problem(format!("{}:{number}: {problem}", page.path));
            }
        }
    }
    check_codes(files, findings);
}

fn check_link(root: &Path, files: &[File], page: &File, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, heading) =
        target.split_once('#').map_or((target, None), |(path, heading)| (path, Some(heading)));
    let path = if path.is_empty() { page.path.clone() } else { resolve(&page.path, path) };
    if !root.join(&path).exists() {
        return Some(format!("the link `{target}` leads nowhere"));
    }
    let heading = heading?;
    let file = files.iter().find(|file| file.path == path && file.is_page())?;
    let has = anchors(&file.text).contains(heading);
    (!has).then(|| format!("the link `{target}` leads to no heading of {path}"))
}

/// The path from the root that `target` means on the page at `page`.
fn resolve(page: &str, target: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    if let Some(from_root) = target.strip_prefix('/') {
        return from_root.to_owned();
    }
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The lines of a page that are prose, with their numbers.
fn prose(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    page.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~");
        fenced ^= is_fence;
        (!fenced && !is_fence).then_some((index + 1, line))
    })
}

/// What all links of a page point at, with their lines.
fn links(page: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(page) {
        // What stands between backticks is code.
        let line: String = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
        for (at, _) in line.match_indices("](") {
            if let Some((target, _)) = line[at + 2..].split_once(')') {
                let target = target.split_whitespace().next().unwrap_or_default();
                found.push((number, target.to_owned()));
            }
        }
        // `[name]: target`
        let reference = line.strip_prefix('[').and_then(|line| line.split_once("]: "));
        if let Some((_, target)) = reference {
            found.push((number, target.trim().to_owned()));
        }
    }
    found
}

/// The anchors that the headings of a page get where it is shown.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = prose(page).filter_map(|(_, line)| {
        let text = line.trim_start_matches('#');
        (line.starts_with('#') && text.starts_with(' ')).then(|| text.trim())
    });
    let anchor = |heading: &str| -> String {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

fn check_codes(files: &[File], findings: &mut Findings) {
    let Some(codes) = files.iter().find(|file| file.path == CODES) else {
        return findings.problem(format!("{CODES} is missing, and with it the numbers of errors"));
    };
    let known = numbers(&codes.text);
    for page in files.iter().filter(|file| file.is_page()) {
        for (index, line) in page.text.lines().enumerate() {
            for code in mentioned(line).into_iter().filter(|code| !known.contains(code)) {
                findings.problem(format!("{}:{}: {CODES} has no LH{code:04}", page.path, index + 1));
            }
        }
    }
}

/// The numbers that `NAME = 12;` gives out.
fn numbers(codes: &str) -> BTreeSet<u32> {
    let code = source::shipped(codes);
    let entries = code.lines().filter_map(|line| line.trim().strip_suffix(';')?.split_once(" = "));
    entries.filter_map(|(_, number)| number.parse().ok()).collect()
}

fn mentioned(line: &str) -> Vec<u32> {
    let after = line.match_indices("LH").map(|(at, _)| &line[at + 2..]);
    let digits = after.filter(|rest| !rest.starts_with("LH")).filter_map(|rest| rest.get(..4));
    digits
        .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
        .filter_map(|d| d.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_in_prose_only() {
        let page =
            "see [a](b.md#c) and `[x](y)`\n```\n[no](no.md)\n```\n![p](d/e.png \"title\")\n[r]: f.md\n";
        let found: Vec<_> = links(page).into_iter().map(|(_, target)| target).collect();
        assert_eq!(found, ["b.md#c", "d/e.png", "f.md"]);
        assert_eq!(resolve("docs/design/time.md", "../vocabulary.md"), "docs/vocabulary.md");
    }

    #[test]
    fn a_link_to_nothing_is_found() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("b.md"), "# One law, one place\n").unwrap();
        let page = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let files = [page("a.md", ""), page("b.md", "# One law, one place\n")];
        let problem = |target: &str| check_link(root.path(), &files, &files[0], target);
        assert_eq!(problem("b.md#one-law-one-place"), None);
        assert_eq!(problem("https://example.org/x"), None);
        assert!(problem("b.md#two").unwrap().contains("no heading"));
        assert!(problem("c.md").unwrap().contains("nowhere"));
    }

    #[test]
    fn numbers_of_errors_exist() {
        let code = File { path: CODES.to_owned(), text: "A = 1;\n/// B.\nB = 31;\n".to_owned() };
        let page = File { path: "x.md".to_owned(), text: "LH0031, LHxxxx\nand LH0032\n".to_owned() };
        let mut findings = Findings::default();
        check_codes(&[code, page], &mut findings);
        assert_eq!(findings.problems.len(), 1);
        assert!(findings.problems[0].starts_with("x.md:2:"));
    }
}
