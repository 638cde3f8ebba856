//! Our two sides of a contest: the library in this process, and `leasehold run`, one process after another.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use leasehold::{BootTime, Clock, Error, Leasehold};
use tokio::process::Command;

use super::clients::program;
use super::journal::Visitor;
use crate::puppet::Trouble;
use crate::servers::NoServer;

/// As the library is called in the journal.
pub const LIBRARY: &str = "library";
/// As `leasehold run` is called there.
pub const RUN: &str = "leasehold-run";
/// No turn takes so long: between two tries a foreign client leaves the key alone for a while.
const WAIT: Duration = Duration::from_secs(10);
/// `leasehold run --busy fail` ends with this when others have the lock.
pub(super) const BUSY: i32 = 75;

/// A program of ours that is not older than its sources: an old one would be judged for what is no longer there.
///
/// # Errors
///
/// When it has not been built, or not since.
pub fn built(name: &'static str, package: &str) -> Result<PathBuf, NoServer> {
    let broken = |why: String| NoServer::Broken {
        tool: name,
        why: format!("{why}: `cargo build -p {package}`, or test the whole workspace"),
    };
    let program = program(name).ok_or_else(|| broken("it was not built".to_owned()))?;
    // What cargo writes beside it: the program, a colon, and all that it was made of. What it builds for tests alone it
    // leaves without, and that is never old.
    let Ok(made_of) = std::fs::read_to_string(program.with_extension("d")) else { return Ok(program) };
    let sources = made_of.split_once(": ").map_or("", |(_, sources)| sources.trim());
    let made = std::fs::metadata(&program)?.modified()?;
    for source in sources.replace("\\ ", "\0").split(' ') {
        let source = PathBuf::from(source.replace('\0', " "));
        if std::fs::metadata(&source).and_then(|source| source.modified()).is_ok_and(|changed| changed > made)
        {
            return Err(broken(format!("it is older than {}", source.display())));
        }
    }
    Ok(program)
}

/// What one of ours did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Did {
    /// How often it had the lock.
    pub acquired: u64,
    /// How often somebody took it away.
    pub lost: u64,
}

/// Contends with the library until then.
pub(super) async fn library(
    client: &Leasehold,
    name: &str,
    journal: &Path,
    hold: Duration,
    until: BootTime,
) -> Result<Did, Trouble> {
    let clock = Clock::system();
    let mut visitor = Visitor::open(journal, LIBRARY)?;
    let lock = client.lock(name);
    let mut did = Did::default();
    while clock.now() < until {
        let lease = match lock.acquire_within(WAIT).await {
            Ok(lease) => lease,
            Err(Error::TimedOut { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        did.acquired += 1;
        visitor.enter(Some(lease.token()))?;
        clock.sleep_until(clock.now().after(hold)).await;
        visitor.leave()?;
        match lease.release().await {
            Ok(()) => {}
            Err(Error::Lost(_)) => did.lost += 1,
            Err(error) => return Err(error.into()),
        }
        // As long as the others stay away.
        let pause = Duration::from_micros(fastrand::u64(5_000..20_000));
        clock.sleep_until(clock.now().after(pause)).await;
    }
    Ok(did)
}

/// The command `leasehold`, with settings of its own and nobody else's.
#[derive(Debug)]
pub struct OurCommand<'a> {
    /// Where it is.
    pub program: PathBuf,
    /// What it runs: the program `inside`.
    pub inside: PathBuf,
    /// Its store.
    pub url: &'a str,
    /// A folder for what it keeps.
    pub folder: &'a Path,
}

impl OurCommand<'_> {
    /// Runs it with these words, and gives what it said.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub async fn say(&self, words: &[&str]) -> Result<Output, Trouble> {
        let mut command = Command::new(&self.program);
        command.args(words);
        let theirs = std::env::vars_os().map(|(name, _)| name);
        theirs.filter(|name| name.to_string_lossy().starts_with("LEASE")).for_each(|name| {
            command.env_remove(name);
        });
        command.env("LEASEHOLD_STORE", self.url);
        command.env("XDG_STATE_HOME", self.folder).env("XDG_CONFIG_HOME", self.folder);
        command.current_dir(self.folder).stdin(Stdio::null()).kill_on_drop(true);
        Ok(command.output().await?)
    }

    /// Contends with one `leasehold run` after another until then.
    pub(super) async fn contend(
        &self,
        name: &str,
        journal: &Path,
        hold: Duration,
        until: BootTime,
    ) -> Result<Did, Trouble> {
        let clock = Clock::system();
        let (inside, journal) = (self.inside.display().to_string(), journal.display().to_string());
        let (hold, wait) = (hold.as_millis().to_string(), format!("{}s", WAIT.as_secs()));
        let words = ["run", name, "--wait", &wait, "--busy", "fail", "--", &inside, &journal, &hold];
        let mut did = Did::default();
        while clock.now() < until {
            let output = self.say(&words).await?;
            match output.status.code() {
                Some(0) => did.acquired += 1,
                Some(BUSY) => {}
                _ => return Err(format!("leasehold run: {}: {}", output.status, text(&output.stderr)).into()),
            }
        }
        Ok(did)
    }
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}
