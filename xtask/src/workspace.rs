//! The workspace as cargo tells of it: packages, their targets, features and dependencies.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::Result;

/// What `cargo metadata` says, as far as it is asked about here.
#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    pub(crate) packages: Vec<Package>,
    workspace_members: Vec<String>,
    pub(crate) workspace_root: PathBuf,
    pub(crate) target_directory: PathBuf,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    id: String,
    pub(crate) license: Option<String>,
    pub(crate) source: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
    pub(crate) features: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None` for a normal one, else `dev` or `build`.
    pub(crate) kind: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
    /// Whether it is tested by default.
    pub(crate) test: bool,
}

impl Workspace {
    /// Asks cargo. Without `--no-deps` dependencies are told as well, which may need a look at the registry.
    pub(crate) fn load(with_dependencies: bool) -> Result<Self> {
        let mut cargo = Command::new("cargo");
        cargo.args(["metadata", "--format-version", "1", "--all-features"]);
        if !with_dependencies {
            cargo.arg("--no-deps");
        }
        // Wherever in the workspace it was called: the answer is about the workspace of this file.
        let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output()?;
        if !output.status.success() {
            return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Our own packages.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }

    /// The package with this name, if it is ours.
    pub(crate) fn member(&self, name: &str) -> Option<&Package> {
        self.members().find(|package| package.name == name)
    }

    /// A path as people want to read it.
    pub(crate) fn short<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.workspace_root).unwrap_or(path)
    }
}

impl Package {
    /// Its targets of a kind, such as `test` or `bin`.
    pub(crate) fn targets<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Target> {
        self.targets.iter().filter(move |target| target.kind.iter().any(|one| one == kind))
    }
}
