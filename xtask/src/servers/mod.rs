//! Real servers and tools for tests: where they come from, and who starts and stops them.

mod clients;
mod packages;
mod quiet;
mod supervisor;

use std::path::{Path, PathBuf};

use clients::CLIENTS;
pub(crate) use packages::Need;
use packages::{NEEDS, Source};
pub(crate) use supervisor::Server;

/// Where packages are unpacked that cannot be installed.
fn unpacked(target: &Path) -> PathBuf {
    target.join("servers").join("packages")
}

/// What tests need beside the toolchain, as far as it could be had.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    folder: Option<PathBuf>,
    missing: Vec<String>,
    notes: Vec<String>,
}

impl Tools {
    /// Looks for everything that tests need, and gets what is not there.
    pub(crate) fn provide(root: &Path, target: &Path) -> Self {
        let mut tools = Self::these(NEEDS, target);
        let bin = unpacked(target).join("usr").join("bin");
        for clients in CLIENTS {
            match clients.get(root, target, &bin) {
                Ok(note) => tools.notes.extend(note),
                Err(why) => tools.missing.push(why),
            }
        }
        tools
    }

    /// Looks for these, and gets what is not there. All packages come before any server: to upgrade a package
    /// under a running server would break it half-way.
    pub(crate) fn these(needs: &[Need], target: &Path) -> Self {
        let unpacked = unpacked(target);
        let bin = unpacked.join("usr").join("bin");
        let mut tools = Self::default();
        let is_there = |need: &Need| packages::on_path(need.tool) || bin.join(need.tool).is_file();
        let absent: Vec<&Need> = needs.iter().filter(|need| !is_there(need)).collect();
        if !absent.is_empty() {
            let source = Source::of_this_machine();
            if let Err(error) = source.get(&absent, &unpacked) {
                tools.notes.push(format!("packages: {error}"));
            }
            for need in absent {
                let Need { tool, package, uses } = need;
                if is_there(need) {
                    tools.notes.push(format!("{tool} is here now, from the package {package}"));
                } else {
                    tools.missing.push(format!("{tool} ({uses}): {}", source.why_not(package)));
                }
            }
        }
        tools.folder = bin.is_dir().then_some(bin);
        tools
    }

    /// Where unpacked programs are, beside those of the machine.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// What could not be had, with the reason.
    pub(crate) fn missing(&self) -> &[String] {
        &self.missing
    }

    /// What was done.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }
}
