//! Which crate may import which, by the table in ARCHITECTURE.md: the table people read is the one that counts.

use std::collections::BTreeMap;

use super::{File, Findings};
use crate::source;
use crate::workspace::{Package, Workspace};

const PAGE: &str = "ARCHITECTURE.md";
/// The heading of the table's first column, by which it is found.
const FIRST_COLUMN: &str = "crate";
/// The one file that may name store crates, and the folder in which that is so.
const OPEN: (&str, &str) = ("crates/leasehold/src/", "crates/leasehold/src/open.rs");

/// One row: what a crate may import.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    ours: Vec<String>,
    ours_for_tests: Vec<String>,
    /// `None` when there is no bound.
    others: Option<Vec<String>>,
}

pub(super) fn check(workspace: &Workspace, files: &[File], findings: &mut Findings) {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else {
        return findings.problem(format!("{PAGE} is missing, and with it the table of imports"));
    };
    let table = match parse(&page.text) {
        Ok(table) => table,
        Err(error) => return findings.problem(format!("{PAGE}: {error}")),
    };
    for package in workspace.members() {
        match table.get(&package.name) {
            Some(row) => check_package(workspace, package, row, findings),
            None => findings.problem(format!("{PAGE}: the table of imports has no row for {}", package.name)),
        }
    }
    for name in table.keys().filter(|name| workspace.member(name).is_none()) {
        findings.problem(format!("{PAGE}: the table of imports has a row for {name}, which does not exist"));
    }
    check_open(workspace, files, findings);
}

fn check_package(workspace: &Workspace, package: &Package, row: &Row, findings: &mut Findings) {
    for dependency in &package.dependencies {
        let name = &dependency.name;
        let for_tests = dependency.kind.as_deref() == Some("dev");
        let allowed = if workspace.member(name).is_some() {
            row.ours.contains(name) || (for_tests && row.ours_for_tests.contains(name))
        } else {
            // What only tests use reaches nobody's build.
            for_tests || row.others.as_ref().is_none_or(|others| others.contains(name))
        };
        if !allowed {
            findings.problem(format!(
                "{} must not import {name}{}: see the table of imports in {PAGE}",
                package.name,
                if for_tests { " for tests" } else { "" }
            ));
        }
    }
}

/// Store crates are those that import the contract and are no part of the house's own machinery.
fn check_open(workspace: &Workspace, files: &[File], findings: &mut Findings) {
    let Some(leasehold) = workspace.member("leasehold") else { return };
    let stores = leasehold.dependencies.iter().filter(|dependency| {
        dependency.kind.is_none()
            && dependency.name != "leasehold-core"
            && workspace.member(&dependency.name).is_some()
    });
    let (folder, open) = OPEN;
    for store in stores {
        let word = store.name.replace('-', "_");
        for file in files.iter().filter(|file| file.path.starts_with(folder) && file.path != open) {
            if let Some(at) = source::shipped(&file.text).find(&word) {
                let line = source::line_of(&file.text, at);
                findings
                    .problem(format!("{}:{line}: names the store crate {word}; only {open} may", file.path));
            }
        }
    }
}

fn parse(page: &str) -> Result<BTreeMap<String, Row>, String> {
    let mut lines =
        page.lines().skip_while(|line| cells(line).first().map(String::as_str) != Some(FIRST_COLUMN));
    let head = lines.next().map(cells).unwrap_or_default();
    if head.len() != 4 {
        return Err("the table of imports, of four columns from `crate` on, is missing".to_owned());
    }
    let mut table = BTreeMap::new();
    // The line after the head only draws a rule.
    for line in lines.skip(1).take_while(|line| line.starts_with('|')) {
        let cells = cells(line);
        let [name, ours, for_tests, others] = &cells[..] else {
            return Err(format!("a row of the table of imports has not four cells: {line}"));
        };
        let list = |cell: &str| -> Vec<String> {
            let words = cell.split(',').map(str::trim);
            words.filter(|word| !word.is_empty() && *word != "nothing").map(str::to_owned).collect()
        };
        let others = (others != "what it needs").then(|| list(others));
        let row = Row { ours: list(ours), ours_for_tests: list(for_tests), others };
        if table.insert(name.clone(), row).is_some() {
            return Err(format!("the table of imports has two rows for {name}"));
        }
    }
    Ok(table)
}

/// The cells of a table's line, without the marks of code.
fn cells(line: &str) -> Vec<String> {
    let Some(inner) = line.trim().strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
        return Vec::new();
    };
    inner.split('|').map(|cell| cell.replace('`', "").trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "| a | b |\n|---|---|\n| x | y |\n\n| crate | of ours | for tests also | of others |\n\
                         |---|---|---|---|\n| `a` | nothing | `b` | `x`, `y` |\n| `c` | `a`, `b` | nothing | \
                         what it needs |\n\nmore\n";

    #[test]
    fn the_table_is_read_as_people_read_it() {
        let table = parse(TABLE).unwrap();
        let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let a = Row { ours: vec![], ours_for_tests: list(&["b"]), others: Some(list(&["x", "y"])) };
        assert_eq!(table["a"], a);
        assert_eq!(table["c"], Row { ours: list(&["a", "b"]), ours_for_tests: vec![], others: None });
        assert_eq!(table.len(), 2);
        assert!(parse("no table").is_err());
    }

    fn workspace(core_imports: &str) -> Workspace {
        let package = |name: &str, dependencies: &str| {
            format!(
                r#"{{"name":"{name}","version":"0.1.0","id":"{name}","license":null,"source":null,
                    "targets":[],"features":{{}},"dependencies":[{dependencies}]}}"#
            )
        };
        let json = format!(
            r#"{{"packages":[{},{}],"workspace_members":["a","b"],"workspace_root":".","target_directory":"target"}}"#,
            package("a", core_imports),
            package("b", r#"{"name":"a","kind":null}"#),
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn what_the_table_does_not_allow_is_found() {
        let text = "| crate | of ours | for tests also | of others |\n|---|---|---|---|\n| a | nothing | b | x |\n\
                    | b | a | nothing | what it needs |\n";
        let page = [File { path: PAGE.to_owned(), text: text.to_owned() }];
        let problems = |imports: &str| {
            let mut findings = Findings::default();
            check(&workspace(imports), &page, &mut findings);
            findings.problems.len()
        };
        assert_eq!(
            problems(r#"{"name":"x","kind":null},{"name":"b","kind":"dev"},{"name":"z","kind":"dev"}"#),
            0
        );
        assert_eq!(
            problems(r#"{"name":"b","kind":null},{"name":"z","kind":null},{"name":"z","kind":"build"}"#),
            3
        );
    }
}
