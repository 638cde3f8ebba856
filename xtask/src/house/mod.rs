//! The rules of the house that no compiler knows. Each has one file; CONTRIBUTING.md tells them to people.

mod contract;
mod files;
mod imports;
mod links;
mod surface;
mod verbs;

use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::workspace::Workspace;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Broken rules.
    pub(crate) problems: Vec<String>,
    /// What is not broken yet.
    pub(crate) notes: Vec<String>,
}

impl Findings {
    fn problem(&mut self, problem: impl Into<String>) {
        self.problems.push(problem.into());
    }
}

/// A file of the project, by its path from the root, with `/` between folders.
#[derive(Debug)]
struct File {
    path: String,
    text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn is_page(&self) -> bool {
        self.path.ends_with(".md")
    }
}

/// Checks every rule.
pub(crate) fn check(workspace: &Workspace) -> Result<Findings> {
    let files = text_files(&workspace.workspace_root)?;
    let mut findings = Findings::default();
    imports::check(workspace, &files, &mut findings);
    surface::check(workspace, &files, &mut findings);
    verbs::check(&files, &mut findings);
    files::check(&files, &mut findings);
    contract::check(&files, &mut findings);
    links::check(&workspace.workspace_root, &files, &mut findings);
    Ok(findings)
}

/// Every text file that belongs to the project, whether it was committed yet or not.
fn text_files(root: &Path) -> Result<Vec<File>> {
    let mut files = Vec::new();
    for path in paths(root)? {
        // What is not UTF-8 is a picture or the like; what is gone was deleted and not committed yet.
        if let Ok(text) = std::fs::read_to_string(root.join(&path)) {
            files.push(File { path, text });
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

fn paths(root: &Path) -> Result<Vec<String>> {
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let git = Command::new("git").args(list).current_dir(root).output();
    if let Ok(output) = git
        && output.status.success()
    {
        let list = String::from_utf8(output.stdout)?;
        return Ok(list.split_terminator('\0').map(str::to_owned).collect());
    }
    // An unpacked archive has no git.
    let mut found = Vec::new();
    walk(root, "", &mut found)?;
    Ok(found)
}

fn walk(folder: &Path, prefix: &str, found: &mut Vec<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if !entry.file_type()?.is_dir() {
            found.push(path);
        } else if name != "target" && name != ".git" {
            walk(&entry.path(), &format!("{path}/"), found)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_without_git_is_walked() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("a/target")).unwrap();
        std::fs::write(root.path().join("a/b.rs"), "//! B.\n").unwrap();
        std::fs::write(root.path().join("a/target/c.rs"), "").unwrap();
        let mut found = Vec::new();
        walk(root.path(), "", &mut found).unwrap();
        assert_eq!(found, ["a/b.rs"]);
    }

    #[test]
    fn this_very_house_is_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let files = text_files(root).unwrap();
        assert!(files.iter().any(|file| file.path == "xtask/src/house/mod.rs" && file.is_rust()));
    }
}
