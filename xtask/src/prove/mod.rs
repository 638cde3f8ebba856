//! `cargo xtask prove`: the long form of a test, or a measurement, with everything that its result hangs on.

mod cold;
mod conformance;
mod foreign;
mod harness;
mod idle;
mod machine;
mod overhead;
mod points;
mod samples;
mod wrapper_cases;
mod wrappers;

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser as _};

use crate::Result;
use crate::workspace::Workspace;

/// Closes the help.
const MORE: &str = "\
Each proof says first which commit, date, seed and machine it is about, and appends all that it says to \
target/xtask/prove-<part>.txt. It fails when what it measured is outside its bounds. Run nothing else meanwhile: \
what is measured is the whole machine.";

/// One proof.
struct Part {
    name: &'static str,
    about: &'static str,
    run: fn(&mut Proof) -> Result<bool>,
}

const PARTS: &[Part] = &[
    Part {
        name: "conformance",
        about: "Ten times as many random operations on each store, or for as long as told",
        run: conformance::run,
    },
    Part { name: "fight", about: "200 processes fight for one lock in an SQLite file", run: harness::fight },
    Part {
        name: "handover",
        about: "How long a lease takes from one process to the next",
        run: harness::handover,
    },
    Part {
        name: "foreign-release",
        about: "How late the release of a foreign client is noticed at 1, 16 and 128 waiters, beside a blind poll",
        run: harness::foreign_release,
    },
    Part {
        name: "primitives",
        about: "10,000 linearizable histories of random programs on memory, 1,000 on Redis, 300 on a quorum, 100 on SQLite",
        run: harness::primitives,
    },
    Part {
        name: "models",
        about: "Two million states and a hundred million random steps of each model",
        run: harness::models,
    },
    Part {
        name: "once",
        about: "50 processes do each thing once, and are killed at random points of it",
        run: harness::once,
    },
    Part {
        name: "foreign",
        about: "Clients of other people and ours contend for one name, on servers of every kind",
        run: foreign::run,
    },
    Part {
        name: "faults-redis",
        about: "Each fault of a real Redis server for 30 s, while clients fight for its locks: what is promised holds",
        run: harness::faults_redis,
    },
    Part {
        name: "faults-etcd",
        about: "Members of etcd are killed, stopped and cut off, leases revoked, the past forgotten, a minute each",
        run: harness::faults_etcd,
    },
    Part {
        name: "faults-zookeeper",
        about: "Members of ZooKeeper are killed, stopped and cut off, sessions end, replies are eaten, a minute each",
        run: harness::faults_zookeeper,
    },
    Part {
        name: "quorum",
        about: "16 clients fight for the locks of five Redis, which are killed, stopped and cut off, for 10 minutes",
        run: harness::quorum,
    },
    Part {
        name: "quorum-dead",
        about: "What one or two dead nodes of five cost, beside five live ones; three are told in time",
        run: harness::quorum_dead,
    },
    Part {
        name: "cluster",
        about: "16 clients fight for the locks of a Redis Cluster: slots move, masters hand over, stop and die, a minute each",
        run: harness::cluster,
    },
    Part {
        name: "split",
        about: "The network of a quorum, of servers under Sentinel and of a cluster falls apart, two minutes each",
        run: harness::split,
    },
    Part {
        name: "sentinel",
        about: "16 clients fight for locks while sentinels have one server after the other take over, twice 5 minutes",
        run: harness::sentinel,
    },
    Part {
        name: "cancelled-redis",
        about: "10,000 acquires that are dropped after each of their polls, on a real Redis server",
        run: harness::cancelled_redis,
    },
    Part {
        name: "overhead",
        about: "What `leasehold run` adds to a command, in time, memory and wake-ups",
        run: overhead::run,
    },
    Part {
        name: "points",
        about: "`run` and its guard are killed at many moments: nobody enters while their command lives",
        run: points::run,
    },
    Part {
        name: "cold",
        about: "From a fresh clone, with an empty cargo home, to the first success",
        run: cold::run,
    },
    Part {
        name: "waiting",
        about: "How long a lease of a Redis takes to the next of 1, 16 and 128 waiters, and if they polled",
        run: harness::waiting,
    },
    Part {
        name: "wrappers",
        about: "What becomes of lock and command under `flock`, others, and `leasehold run`",
        run: wrappers::run,
    },
];

/// Runs the long form of a test, or measures something, and writes the result down.
#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub(crate) struct Args {
    /// What to prove
    #[arg(value_name = "PART", value_parser = names().map(|name| name))]
    part: String,
    /// For how long, where it can be chosen
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// From what random choices start, to repeat a result
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
}

fn names() -> PossibleValuesParser {
    PARTS.iter().map(|part| PossibleValue::new(part.name).help(part.about)).collect::<Vec<_>>().into()
}

pub(crate) fn run(args: &Args) -> Result<bool> {
    let Args { part, seconds, seed } = args;
    let part = PARTS.iter().find(|one| one.name == part).ok_or("there is no such proof")?;
    let workspace = Workspace::load(false)?;
    let folder = workspace.target_directory.join("xtask");
    std::fs::create_dir_all(&folder)?;
    let path = folder.join(format!("prove-{}.txt", part.name));
    let file = File::options().create(true).append(true).open(&path)?;
    // Different each time unless it is given: a proof is repeated to find what the last one did not.
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    let mut proof = Proof { workspace, file, seconds: *seconds, seed };
    proof.say(&format!("== {}: {}", part.name, part.about))?;
    for line in machine::describe(&proof.workspace.workspace_root, seed) {
        proof.say(&line)?;
    }
    let good = match (part.run)(&mut proof) {
        Ok(good) => good,
        Err(error) => {
            proof.say(&format!("error: {error}"))?;
            false
        }
    };
    proof.say(if good { "result     good\n" } else { "result     BAD\n" })?;
    println!("written to {}", proof.workspace.short(&path).display());
    Ok(good)
}

/// A proof under way.
struct Proof {
    workspace: Workspace,
    file: File,
    seconds: Option<u64>,
    seed: u64,
}

impl Proof {
    /// Says a line, and writes it down.
    fn say(&mut self, line: &str) -> Result<()> {
        println!("{line}");
        Ok(writeln!(self.file, "{line}")?)
    }

    fn root(&self) -> &Path {
        &self.workspace.workspace_root
    }

    /// Runs a command; what it says on its standard output is part of the result.
    fn run(&mut self, command: &mut Command) -> Result<bool> {
        let mut child =
            command.current_dir(self.root()).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        if let Some(output) = child.stdout.take() {
            for line in BufReader::new(output).lines() {
                self.say(&line?)?;
            }
        }
        Ok(child.wait()?.success())
    }

    /// Builds a program for release, with those beside it that it may start, and says where it is.
    fn build(&self, package: &str, program: &str) -> Result<PathBuf> {
        if self
            .workspace
            .member(package)
            .is_none_or(|package| package.targets("bin").all(|bin| bin.name != program))
        {
            return Err(format!("{package} has no program {program}").into());
        }
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--quiet", "--release", "-p", package, "--bins"]);
        if !cargo.current_dir(self.root()).stdin(Stdio::null()).status()?.success() {
            return Err(format!("{package} does not build").into());
        }
        Ok(self.workspace.target_directory.join("release").join(program))
    }
}

/// The settings of whoever proves something, which must not count.
fn own_settings() -> impl Iterator<Item = OsString> {
    let names = std::env::vars_os().map(|(name, _)| name);
    names.filter(|name| name.to_string_lossy().starts_with("LEASEHOLD_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_says_is_written_down() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.txt");
        let file = File::create(&path).unwrap();
        let workspace = Workspace::load(false).unwrap();
        let mut proof = Proof { workspace, file, seconds: None, seed: 1 };
        assert!(proof.run(Command::new("sh").args(["-c", "echo one; echo two"])).unwrap());
        assert!(!proof.run(&mut Command::new("false")).unwrap());
        assert!(proof.build("leasehold-core", "nothing").is_err());
        assert_eq!(std::fs::read_to_string(path).unwrap(), "one\ntwo\n");
    }
}
