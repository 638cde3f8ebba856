//! What holds for each file: its size, its first line, and words that must not stand in it.

use super::{File, Findings};
use crate::source;

/// Look twice from here on.
const LONG: usize = 400;
/// Split before this.
const TOO_LONG: usize = 600;

pub(super) fn check(files: &[File], findings: &mut Findings) {
    let mut long = Vec::new();
    for file in files {
        if file.is_rust() {
            check_rust(file, findings, &mut long);
        }
        check_places(file, findings);
        check_sources(file, findings);
    }
    if !long.is_empty() {
        findings.notes.push(format!("over {LONG} lines, split before {TOO_LONG}: {}", long.join(", ")));
    }
}

fn check_rust(file: &File, findings: &mut Findings, long: &mut Vec<String>) {
    let File { path, text } = file;
    let lines = text.lines().count();
    if lines > TOO_LONG {
        findings.problem(format!(
            "{path}: {lines} lines, {TOO_LONG} are the most: split it by what its parts do"
        ));
    } else if lines > LONG {
        long.push(format!("{path} ({lines})"));
    }
    if !text.lines().next().is_some_and(|line| line.starts_with("//! ")) {
        findings.problem(format!("{path}: its first line does not say what it does (`//! ..`)"));
    }
    // Whatever stands between them, so that neither a line break nor a `cfg_attr` hides it.
    let code = source::code(text);
    for (word, instead) in [
        ("todo!", "write it, or say in the documentation that it is not there"),
        ("unimplemented!", "write it, or say in the documentation that it is not there"),
        ("allow(", "use `#[expect(.., reason = \"..\")]`, which tells when it is no longer needed"),
    ] {
        for (at, _) in code.match_indices(word) {
            if word == "allow(" && !is_attribute(&code[..at]) {
                continue;
            }
            findings.problem(format!("{path}:{}: `{word}`: {instead}", source::line_of(text, at)));
        }
    }
}

/// Whether what follows `before` is inside `#[..` or `#![..`, or inside the `cfg_attr(..` of one.
fn is_attribute(before: &str) -> bool {
    let opened = before.rfind("#[").max(before.rfind("#!["));
    opened.is_some_and(|at| {
        let inside = &before[at..];
        inside.matches('[').count() > inside.matches(']').count()
            && !before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
    })
}

/// No path of one person's machine: it is noise to everybody else, and tells more than it should.
fn check_places(file: &File, findings: &mut Findings) {
    let File { path, text } = file;
    for (number, line) in text.lines().enumerate() {
        for top in ["root", "home", "work"] {
            let start = format!("/{top}/");
            for (at, _) in line.match_indices(&start) {
                let is_top = !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-/*~}>)".contains(c));
                if is_top && (top != "home" || names_a_user(&line[at + start.len()..])) {
                    let number = number + 1;
                    findings.problem(format!("{path}:{number}: `{start}`: a path of one machine"));
                }
            }
        }
    }
}

/// Whether the folder that `rest` starts with is somebody's, and not made up like `<you>` or `a b`.
fn names_a_user(rest: &str) -> bool {
    let Some((name, _)) = rest.split_once('/') else { return false };
    name.len() > 2
        && name != "you"
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// Packages come from the public registry, and no file names another one: not everybody can reach it.
fn check_sources(file: &File, findings: &mut Findings) {
    let File { path, text } = file;
    let name = path.rsplit('/').next().unwrap_or(path);
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let foreign = match name {
            "Cargo.lock" => {
                line.strip_prefix("source = ").is_some_and(|source| source.trim_matches('"') != CRATES_IO)
            }
            "Cargo.toml" => ["registry =", "registry-index =", "git ="].iter().any(|key| line.contains(key)),
            // cargo's own settings.
            "config.toml" | "config" if path.contains(".cargo/") => {
                ["[source", "[registries", "[registry", "replace-with", "index ="]
                    .iter()
                    .any(|start| line.starts_with(start))
            }
            "pip.conf" | ".npmrc" | ".pypirc" => line.contains("://"),
            "requirements.txt" | "pyproject.toml" => line.contains("index-url") || line.contains("index ="),
            _ => false,
        };
        if foreign {
            findings.problem(format!("{path}:{}: names a registry: `{line}`", number + 1));
        }
    }
}

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        let mut findings = Findings::default();
        check(&[File { path: path.to_owned(), text: text.to_owned() }], &mut findings);
        findings.problems
    }

    #[test]
    fn a_file_says_what_it_does_and_stays_short() {
        assert_eq!(problems("a.rs", "//! A.\nfn a() {}\n"), [""; 0]);
        assert!(problems("a.rs", "fn a() {}\n")[0].contains("first line"));
        assert!(problems("a.rs", &format!("//! A.\n{}", "\n".repeat(600)))[0].contains("601 lines"));
    }

    #[test]
    fn nothing_is_left_to_do_and_no_lint_is_silenced() {
        assert!(problems("a.rs", "//! A.\nfn a() { todo!() }\n")[0].contains("a.rs:2"));
        assert!(problems("a.rs", "//! A.\nfn a() { unimplemented!() }\n")[0].contains("unimplemented"));
        assert_eq!(problems("a.rs", "//! A.\n#[allow(dead_code)]\nfn a() {}\n").len(), 1);
        assert_eq!(problems("a.rs", "//! A.\n#![cfg_attr(x,\n  allow(y))]\n").len(), 1);
        assert_eq!(
            problems("a.rs", "//! A.\n#[expect(x)]\nfn a() { b.allow(1); allow(2) } // todo!()\n"),
            [""; 0]
        );
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        let path = |top: &str, rest: &str| format!("see /{top}/{rest}\n");
        assert_eq!(problems("a.md", &path("home", "ann/x")).len(), 1);
        assert_eq!(problems("a.md", &path("root", "x")).len(), 1);
        assert_eq!(problems("a.md", &path("work", "x")).len(), 1);
        assert_eq!(
            problems("a.md", "target/work/x, /home/<you>/x, /home/a b/x, https://x.example/work/\n"),
            [""; 0]
        );
    }

    #[test]
    fn other_registries_are_found() {
        assert_eq!(problems("Cargo.lock", &format!("source = \"{CRATES_IO}\"\n")), [""; 0]);
        assert_eq!(problems("Cargo.lock", "source = \"registry+https://mirror.example/\"\n").len(), 1);
        assert_eq!(problems("x/Cargo.toml", "a = { git = \"https://x.example\" }\n").len(), 1);
        assert_eq!(problems(".cargo/config.toml", "[source.crates-io]\nreplace-with = \"x\"\n").len(), 2);
    }
}
