//! Which packages tests need, and the ways to get them: installed, unpacked, or what is on the path.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::quiet::QuietServices;
use crate::Result;

/// A tool that tests use (or a file, by its whole path), the Debian package that brings it, and what for.
#[derive(Debug)]
pub(crate) struct Need {
    pub(crate) tool: &'static str,
    pub(crate) package: &'static str,
    pub(crate) uses: &'static str,
}

/// All that tests need today. A store with a server adds its packages here.
pub(super) const NEEDS: &[Need] = &[
    Need { tool: "kill", package: "procps", uses: "signals a process as a person would" },
    Need {
        tool: "strace",
        package: "strace",
        uses: "tells what a command asks of the system, and kills it there",
    },
    Need { tool: "cc", package: "gcc", uses: "compiles the clock that a server under test goes by" },
    Need { tool: "ecj", package: "ecj", uses: "compiles the client in Java that we share locks with" },
    Need { tool: "etcd", package: "etcd-server", uses: "is the store that the etcd crate speaks to" },
    Need { tool: "etcdctl", package: "etcd-client", uses: "is the client of etcd that we share locks with" },
    Need { tool: "ip", package: "iproute2", uses: "makes the networks that a test cuts" },
    Need { tool: "java", package: "default-jre-headless", uses: "runs ZooKeeper and its clients in Java" },
    Need {
        tool: "/usr/share/java/curator-recipes.jar",
        package: "libcurator-recipes-java",
        uses: "is the client in Java that we share locks with",
    },
    Need {
        tool: "/usr/share/java/zookeeper.jar",
        package: "libzookeeper-java",
        uses: "is the store that the ZooKeeper crate speaks to",
    },
    Need { tool: "node", package: "nodejs", uses: "runs the clients in JavaScript that we share locks with" },
    Need { tool: "npm", package: "npm", uses: "installs the clients in JavaScript that we share locks with" },
    Need {
        tool: "pip3",
        package: "python3-pip",
        uses: "installs the clients in Python that we share locks with",
    },
    Need { tool: "python3", package: "python3", uses: "runs the clients in Python that we share locks with" },
    Need {
        tool: "redis-server",
        package: "redis-server",
        uses: "is the store that the Redis crate speaks to",
    },
    Need { tool: "script", package: "bsdutils", uses: "gives a command a terminal" },
    Need {
        tool: "unshare",
        package: "util-linux",
        uses: "plays that the machine has slept, and keeps a network apart",
    },
];

/// How this machine gets packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// By apt, as root.
    Install,
    /// By apt without root: downloaded and unpacked into a folder of ours.
    Unpack,
    /// Not at all: what is on the path is all there is.
    Path,
}

impl Source {
    pub(super) fn of_this_machine() -> Self {
        let has_apt = cfg!(target_os = "linux") && on_path("apt-get") && on_path("dpkg");
        Self::of(has_apt, rustix::process::geteuid().is_root())
    }

    fn of(has_apt: bool, is_root: bool) -> Self {
        match (has_apt, is_root) {
            (true, true) => Self::Install,
            (true, false) => Self::Unpack,
            (false, _) => Self::Path,
        }
    }

    /// Gets the packages of these needs, all in one go.
    pub(super) fn get(self, needs: &[&Need], unpacked: &Path) -> Result<()> {
        let mut names: Vec<&str> = needs.iter().map(|need| need.package).collect();
        names.sort_unstable();
        names.dedup();
        match self {
            Self::Install => {
                // Until it is dropped, no package may start its service: tests start what they need themselves.
                let _quiet = QuietServices::below(Path::new("/"))?;
                let install = ["install", "--yes", "--no-install-recommends"];
                quietly(apt().args(install).args(&names)).or_else(|_| {
                    quietly(apt().arg("update"))?;
                    quietly(apt().args(install).args(&names))
                })
            }
            Self::Unpack => {
                let downloads = unpacked.with_extension("download");
                std::fs::create_dir_all(&downloads)?;
                quietly(apt().arg("download").args(&names).current_dir(&downloads))?;
                unpack_all(&downloads, unpacked)
            }
            Self::Path => Ok(()),
        }
    }

    /// Why a tool of this package is missing.
    pub(super) fn why_not(self, package: &str) -> String {
        match self {
            Self::Install => format!("the package {package} could not be installed"),
            Self::Unpack => format!("the package {package} could not be downloaded and unpacked"),
            Self::Path => "it is not on the path, and there is no apt here to get it".to_owned(),
        }
    }
}

fn apt() -> Command {
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive").args(["-o", "Dpkg::Options::=--force-confold"]);
    apt
}

fn unpack_all(downloads: &Path, into: &Path) -> Result<()> {
    for entry in std::fs::read_dir(downloads)? {
        let file = entry?.path();
        if file.extension().is_some_and(|end| end == "deb") {
            quietly(Command::new("dpkg").arg("-x").arg(&file).arg(into))?;
        }
    }
    Ok(())
}

/// Runs it without a terminal, and gives what it complained of as the error.
pub(super) fn quietly(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it failed");
    Err(format!("{}: {last}", command.get_program().to_string_lossy()).into())
}

/// Whether a program of this name is on the path.
pub(super) fn on_path(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Administrators' programs are often missing from the path of everybody else.
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).any(|folder| folder.join(tool).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_sudo_and_never_apt_where_there_is_none() {
        assert_eq!(Source::of(true, true), Source::Install);
        assert_eq!(Source::of(true, false), Source::Unpack);
        assert_eq!(Source::of(false, true), Source::Path);
        assert!(Source::Path.why_not("x").contains("no apt"));
    }

    #[test]
    fn what_a_program_complains_of_is_the_error() {
        let error = quietly(Command::new("sh").args(["-c", "echo first >&2; echo last >&2; exit 3"]));
        assert_eq!(error.unwrap_err().to_string(), "sh: last");
        assert!(on_path("sh") && !on_path("no-such-program"));
    }
}
