//! The proof `overhead`: what `leasehold run` adds to a command. Its first half is time.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::samples::{Samples, milliseconds};
use super::{Proof, idle, own_settings};
use crate::Result;
use crate::stopwatch::Stopwatch;

/// How often each of the two is run.
const RUNS: usize = 200;
/// Runs before the first that counts: the file is made, and caches are warm.
const WARM_UP: usize = 10;
/// What `leasehold run` may add to the time of a command.
const MOST_TIME: Duration = Duration::from_millis(8);

pub(super) fn run(proof: &mut Proof) -> Result<bool> {
    let folder = tempfile::tempdir()?;
    let program = proof.build("leasehold-cli", "leasehold")?;
    let bench = Bench { program, folder: folder.path().to_owned(), file: "x.db" };
    let size = fs::metadata(&bench.program)?.len();
    proof.say(&format!("program    {:.1} MiB", size as f64 / f64::from(1 << 20)))?;
    let quick = time(proof, &bench)?;
    let idle = idle::run(proof, &bench)?;
    Ok(quick && idle)
}

/// Where everything is that is measured.
pub(super) struct Bench {
    pub(super) program: PathBuf,
    folder: PathBuf,
    /// The store, in this folder.
    file: &'static str,
}

impl Bench {
    /// The same with another store.
    pub(super) fn beside(&self, file: &'static str) -> Self {
        Self { program: self.program.clone(), folder: self.folder.clone(), file }
    }

    /// `leasehold` with these words, on a store of our own.
    pub(super) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words);
        self.alone(&mut command);
        command.env("LEASEHOLD_STORE", format!("sqlite:{}", self.folder.join(self.file).display()));
        command
    }

    /// `leasehold run NAME FLAGS -- command`.
    pub(super) fn leased(&self, name: &str, flags: &[&str], command: &[&str]) -> Command {
        let words: Vec<&str> =
            ["run", name].iter().chain(flags).chain(&["--"]).chain(command).copied().collect();
        self.command(&words)
    }

    fn plain(&self) -> Command {
        let mut plain = Command::new("true");
        self.alone(&mut plain);
        plain
    }

    /// Nothing of whoever measures must count: neither their settings nor their terminal.
    fn alone(&self, command: &mut Command) {
        own_settings().for_each(|name| _ = command.env_remove(name));
        command.env("XDG_STATE_HOME", &self.folder).env("XDG_CONFIG_HOME", &self.folder);
        command.current_dir(&self.folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    }
}

fn once(mut command: Command) -> Result<Duration> {
    let watch = Stopwatch::start();
    let output = command.output()?;
    let took = watch.elapsed();
    if output.status.success() {
        return Ok(took);
    }
    Err(format!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}

fn time(proof: &mut Proof, bench: &Bench) -> Result<bool> {
    let leased = || once(bench.leased("overhead", &[], &["true"]));
    let plain = || once(bench.plain());
    for _ in 0..WARM_UP {
        leased()?;
        plain()?;
    }
    let (mut with, mut without) = (Samples::default(), Samples::default());
    let watch = Stopwatch::start();
    let goes_on = |runs: usize| match proof.seconds {
        Some(seconds) => watch.elapsed() < Duration::from_secs(seconds),
        None => runs < RUNS,
    };
    // One after the other, and each first as often as second: what else the machine does hits both alike.
    while goes_on(with.len()) {
        if (with.len() as u64 + proof.seed).is_multiple_of(2) {
            with.add(leased()?);
            without.add(plain()?);
        } else {
            without.add(plain()?);
            with.add(leased()?);
        }
    }
    let added = with.median().saturating_sub(without.median());
    let ratio = with.median().as_secs_f64() / without.median().as_secs_f64().max(f64::MIN_POSITIVE);
    proof.say(&format!("runs       {} of each", with.len()))?;
    proof.say(&format!("leasehold run x -- true    {with}"))?;
    proof.say(&format!("true                       {without}"))?;
    proof.say(&format!(
        "added      {} ms at the median ({ratio:.1} times), {} ms are the most",
        milliseconds(added),
        milliseconds(MOST_TIME)
    ))?;
    Ok(added <= MOST_TIME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_is_no_sample() {
        assert!(once(Command::new("true")).is_ok());
        assert!(once(Command::new("false")).is_err());
    }
}
