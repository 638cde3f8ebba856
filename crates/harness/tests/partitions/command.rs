//! `leasehold run` on a host, whose command says until when it lived.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use leasehold::{BootTime, Token};
use leasehold_harness::foreign::ours::built;
use leasehold_harness::servers::net::Host;

use super::until;

/// The ttl of each run.
pub(crate) const TTL: &str = "3s";

/// One that runs, or waits for its turn.
pub(crate) struct Run {
    child: Child,
    beats: PathBuf,
    said: PathBuf,
}

impl Run {
    /// Starts it on this host; it waits for the lock as long as it takes. Who it is names its files.
    pub(crate) fn start(host: &Host, store: &str, folder: &Path, who: &str) -> Self {
        let file = |end: &str| folder.join(format!("{who}.{end}"));
        let (beats, said) = (file("beats"), file("said"));
        let mut command = host.command(built("leasehold", "leasehold-cli").unwrap());
        command.args(["run", "x", "--ttl", TTL, "--wait", "forever", "--"]);
        command.arg(env!("CARGO_BIN_EXE_beat")).arg(&beats);
        command.env("LEASEHOLD_STORE", store);
        command.env("XDG_STATE_HOME", file("state")).env("XDG_CONFIG_HOME", file("config"));
        command.stdin(Stdio::null()).stderr(std::fs::File::create(&said).unwrap());
        Self { child: command.spawn().unwrap(), beats, said }
    }

    /// When its command beat, and with which token.
    pub(crate) fn beats(&self) -> Vec<(BootTime, Token)> {
        let text = std::fs::read_to_string(&self.beats).unwrap_or_default();
        let beat = |line: &str| {
            let (at, token) = line.split_once(' ')?;
            Some((BootTime::from_nanos(at.parse().ok()?), Token::new(token.parse().ok()?)?))
        };
        text.lines().filter_map(beat).collect()
    }

    /// Returns once its command runs, with the token and since when.
    pub(crate) fn runs(&self) -> (BootTime, Token) {
        until(&format!("{} runs", self.said.display()), || !self.beats().is_empty());
        self.beats()[0]
    }

    /// When its command beat last.
    pub(crate) fn last(&self) -> BootTime {
        self.beats().last().unwrap().0
    }

    /// Returns once it has ended, with its exit code and what it said.
    pub(crate) fn ends(&mut self) -> (Option<i32>, String) {
        let mut status = None;
        until("the run ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        (status.unwrap().code(), std::fs::read_to_string(&self.said).unwrap())
    }

    /// Returns once it has ended because its lease was lost.
    pub(crate) fn is_lost(&mut self) {
        let (code, said) = self.ends();
        assert_eq!(code, Some(79), "{said}");
        assert!(said.contains("LH0031"), "{said}");
    }

    /// Stops it as whoever is in charge does, and returns once it has given its lease back, or could not.
    pub(crate) fn stops(&mut self) {
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.child),
            rustix::process::Signal::TERM,
        )
        .unwrap();
        self.ends();
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: {}", self.said.display(), std::fs::read_to_string(&self.said).unwrap_or_default());
        }
        // Its guard kills the command.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
