//! Clients of other people that tests contend with: pinned, and installed by pip and npm into a folder of ours.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::packages::quietly;
use crate::Result;

/// Where their programs and pins are, below the root of the workspace.
const SOURCES: &str = "crates/harness/foreign";
/// Beside what is installed: the pins that it was installed from. Tests compare it with the pins of today.
const STAMP: &str = "installed";

/// The clients of one language.
#[derive(Debug)]
pub(super) struct Clients {
    names: &'static str,
    /// Their folder, below the sources and below what is installed.
    folder: &'static str,
    /// The file that pins every version, digests included.
    pins: &'static str,
    /// What must lie beside what is installed, the pins among it.
    copied: &'static [&'static str],
    /// Installs what is pinned into the folder in which it is run.
    install: &'static [&'static str],
}

/// What a program around Curator is compiled with. When it runs, the first of these names all others that it needs.
const CURATOR: &str = "/usr/share/java/curator-recipes.jar:/usr/share/java/curator-framework.jar:\
     /usr/share/java/curator-client.jar";

/// All of them. Those of Rust are dependencies of the harness, and `etcdctl` is a program of its own.
pub(super) const CLIENTS: &[Clients] = &[
    Clients {
        names: "redis-py, python-redis-lock, kazoo",
        folder: "python",
        pins: "requirements.txt",
        copied: &["requirements.txt"],
        install: &[
            "pip3",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-input",
            "--only-binary=:all:",
            "--require-hashes",
            "--target=.",
            "--requirement=requirements.txt",
        ],
    },
    Clients {
        names: "ioredis, redlock",
        folder: "node",
        pins: "package-lock.json",
        copied: &["package.json", "package-lock.json"],
        install: &["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
    },
    Clients {
        names: "Curator",
        folder: "java",
        // The library itself is a package of the distribution: what is compiled here is our program around it.
        pins: "WithCurator.java",
        copied: &["WithCurator.java"],
        install: &["ecj", "-17", "-proc:none", "-classpath", CURATOR, "-d", ".", "WithCurator.java"],
    },
];

impl Clients {
    /// Installs them, unless just these are there; says whether there was something to do, or why it failed.
    pub(super) fn get(
        &self,
        root: &Path,
        target: &Path,
        bin: &Path,
    ) -> std::result::Result<Option<String>, String> {
        let Self { names, folder, .. } = self;
        match self.install(&root.join(SOURCES).join(folder), &target.join("servers").join("clients"), bin) {
            Ok(false) => Ok(None),
            Ok(true) => Ok(Some(format!("{names} are here now"))),
            Err(error) => Err(format!("{names} (contend with us for locks): {error}")),
        }
    }

    fn install(&self, source: &Path, installed: &Path, bin: &Path) -> Result<bool> {
        let Self { names: _, folder, pins, copied, install } = self;
        let pins = std::fs::read(source.join(pins)).map_err(|error| format!("{pins}: {error}"))?;
        let place = installed.join(folder);
        if std::fs::read(place.join(STAMP)).is_ok_and(|before| before == pins) {
            return Ok(false);
        }
        std::fs::create_dir_all(installed)?;
        // Beside its place, and moved there when it is whole: a half of it would pass for all of it.
        let new = tempfile::Builder::new().prefix(folder).tempdir_in(installed)?;
        for file in *copied {
            std::fs::copy(source.join(file), new.path().join(file))?;
        }
        let (program, words) = install.split_first().ok_or("no installer")?;
        quietly(Command::new(program).args(words).current_dir(new.path()).env("PATH", path_with(bin)?))?;
        std::fs::write(new.path().join(STAMP), pins)?;
        if place.exists() {
            std::fs::remove_dir_all(&place)?;
        }
        std::fs::rename(new.keep(), &place)?;
        Ok(true)
    }
}

fn path_with(bin: &Path) -> Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    Ok(std::env::join_paths(std::env::split_paths(&path).chain([PathBuf::from(bin)]))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients(install: &'static [&'static str]) -> Clients {
        Clients { names: "x", folder: "tongue", pins: "pins", copied: &["pins"], install }
    }

    #[test]
    fn what_is_pinned_is_installed_once_and_again_when_the_pins_move() {
        let (root, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let source = root.path().join(SOURCES).join("tongue");
        std::fs::create_dir_all(&source).unwrap();
        let clients = clients(&["cp", "pins", "what-came"]);
        let get = || clients.get(root.path(), target.path(), Path::new("/nowhere"));
        assert!(get().unwrap_err().starts_with("x (contend"), "no pins");
        let came = target.path().join("servers/clients/tongue/what-came");
        for (pins, does) in [("1", true), ("1", false), ("2", true)] {
            std::fs::write(source.join("pins"), pins).unwrap();
            assert_eq!(get().unwrap().is_some(), does, "{pins}");
            assert_eq!(std::fs::read_to_string(&came).unwrap(), pins);
        }
    }

    #[test]
    fn what_cannot_be_installed_is_told_and_leaves_nothing_that_passes_for_it() {
        let (root, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let source = root.path().join(SOURCES).join("tongue");
        std::fs::create_dir_all(&source).unwrap();
        std::fs::write(source.join("pins"), "1").unwrap();
        for install in [&["sh", "-c", "echo no network >&2; exit 1"][..], &["no-such-installer"]] {
            let error = clients(install).get(root.path(), target.path(), Path::new("/nowhere")).unwrap_err();
            assert!(error.contains("x (contend"), "{error}");
            assert_eq!(std::fs::read_dir(target.path().join("servers/clients")).unwrap().count(), 0);
        }
    }

    #[test]
    fn every_version_is_pinned_by_its_digest_and_no_registry_is_named() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(SOURCES);
        // What has no registry has no digest: a package of the distribution is what that says it is.
        for clients in CLIENTS.iter().filter(|clients| clients.folder != "java") {
            let pins = std::fs::read_to_string(sources.join(clients.folder).join(clients.pins)).unwrap();
            let (entries, digests) = match clients.folder {
                "python" => (pins.matches("==").count(), pins.matches("--hash=sha256:").count()),
                _ => (
                    pins.matches("\"node_modules/").count(),
                    pins.matches("\"integrity\": \"sha512-").count(),
                ),
            };
            assert!(entries > 0 && entries == digests, "{}: {entries} and {digests}", clients.pins);
            assert!(!pins.contains("\"resolved\"") && !pins.contains("index-url"), "{}", clients.pins);
        }
    }
}
