//! Clients of other people, ours and the real server: they contend for one key, and who is inside is written down.

pub mod clients;
pub mod ground;
pub mod journal;
pub mod ours;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::{Clock, Leasehold};

use crate::puppet::Trouble;
use crate::servers::NoServer;
use clients::{Foreign, NoClient, Order};
use ground::{Ground, Servers};
use journal::Verdict;
use ours::{BUSY, Did, LIBRARY, OurCommand, RUN};

/// What is contended for.
const NAME: &str = "demo";
/// How often each must have had the lock in the thirty seconds of a proof: who was starved has shown nothing.
const LEAST: u64 = 100;
const PROOF: Duration = Duration::from_secs(30);

/// A real server, or several that are a quorum, and our two programs.
#[derive(Debug)]
pub struct Arena {
    servers: Servers,
    leasehold: PathBuf,
    inside: PathBuf,
    folder: tempfile::TempDir,
    /// As we call it.
    url: String,
}

/// How a contest goes.
#[derive(Debug, Clone, Copy)]
pub struct Contest {
    /// For how long.
    pub lasting: Duration,
    /// How long each stays inside.
    pub hold: Duration,
    /// Whether `leasehold run` contends as well.
    pub with_run: bool,
}

impl Contest {
    /// As usual: short visits, and all three.
    #[must_use]
    pub const fn lasting(lasting: Duration) -> Self {
        Self { lasting, hold: Duration::from_millis(1), with_run: true }
    }

    /// How often each of them must have had the lock at the least.
    #[must_use]
    pub fn least(&self) -> u64 {
        (LEAST as f64 * self.lasting.as_secs_f64() / PROOF.as_secs_f64()).ceil() as u64
    }
}

/// What came of a contest.
#[derive(Debug)]
pub struct Contended {
    /// The other client.
    pub client: &'static str,
    /// Its version.
    pub version: String,
    /// How often it had the lock.
    pub theirs: u64,
    /// What the library did.
    pub library: Did,
    /// What `leasehold run` did, if it was there.
    pub run: Option<Did>,
    /// What the journal says.
    pub verdict: Verdict,
}

impl Contended {
    /// Whether it went as promised: no overlap, tokens rise, nobody lost anything, and everybody's count is that of
    /// the journal.
    ///
    /// # Errors
    ///
    /// When it did not.
    pub fn judge(&self) -> Result<(), Trouble> {
        let Self { client, version: _, theirs, library, run, verdict } = self;
        if !verdict.is_good() {
            return Err(format!("{client}: {verdict}").into());
        }
        let run = run.unwrap_or_default();
        let counts =
            [(*client, *theirs, 0), (LIBRARY, library.acquired, library.lost), (RUN, run.acquired, run.lost)];
        for (who, acquired, lost) in counts {
            let inside = verdict.visits(who);
            if acquired != inside || lost > 0 {
                return Err(
                    format!("{who} had the lock {acquired} times, was inside {inside}, lost {lost}").into()
                );
            }
        }
        Ok(())
    }

    /// Who had the lock less often than that.
    #[must_use]
    pub fn starved(&self, least: u64) -> Vec<&str> {
        let run = self.run.map(|run| (RUN, run.acquired));
        let counts = [Some((self.client, self.theirs)), Some((LIBRARY, self.library.acquired)), run];
        counts.into_iter().flatten().filter(|(_, count)| *count < least).map(|(who, _)| who).collect()
    }

    /// The heads of the columns in which these are shown.
    #[must_use]
    pub fn head() -> String {
        format!(
            "{:<20} {:<16} {:>8} {:>8} {:>8} {:>9}",
            "client", "version", "theirs", "run", "library", "overlaps"
        )
    }
}

impl fmt::Display for Contended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, version, theirs, library, run, verdict } = self;
        let run = run.map_or_else(|| "-".to_owned(), |run| run.acquired.to_string());
        let (library, overlaps) = (library.acquired, verdict.overlaps.len());
        write!(f, "{client:<20} {version:<16} {theirs:>8} {run:>8} {library:>8} {overlaps:>9}")
    }
}

impl Arena {
    /// On new servers.
    ///
    /// # Errors
    ///
    /// When there are none; and when one of our programs has not been built.
    pub fn open(ground: Ground) -> Result<Self, NoServer> {
        let leasehold = ours::built("leasehold", "leasehold-cli")?;
        let inside = ours::built("inside", "leasehold-harness")?;
        let servers = Servers::start(ground)?;
        let url = servers.url();
        Ok(Self { servers, leasehold, inside, folder: tempfile::tempdir()?, url })
    }

    fn command(&self) -> OurCommand<'_> {
        let (program, inside) = (self.leasehold.clone(), self.inside.clone());
        OurCommand { program, inside, url: &self.url, folder: self.folder.path() }
    }

    /// Which server it is.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn version(&self) -> Result<String, Trouble> {
        self.servers.version()
    }

    /// Lets a foreign client, the library and `leasehold run` contend for the one key.
    ///
    /// # Errors
    ///
    /// When one of them cannot be started, or fails.
    pub async fn contend(&self, foreign: &Foreign, contest: Contest) -> Result<Contended, NoClient> {
        let broken = |trouble: Trouble| NoClient::Broken(foreign.name, trouble);
        let Contest { lasting, hold, with_run } = contest;
        let folder = tempfile::tempdir().map_err(|error| broken(error.into()))?;
        let journal = folder.path().join("journal");
        let theirs = self.servers.theirs();
        let running =
            foreign.start(&theirs, &self.servers.key(), Order::Contend(lasting, &journal, hold)).await?;
        let version = running.version.clone();
        let result = async {
            let client = Leasehold::connect(&self.url).await?;
            let until = Clock::system().now().after(lasting);
            let command = self.command();
            let run = async {
                match with_run {
                    true => command.contend(NAME, &journal, hold, until).await.map(Some),
                    false => Ok(None),
                }
            };
            let library = ours::library(&client, NAME, &journal, hold, until);
            let (theirs, library, run) = tokio::try_join!(running.go(lasting), library, run)?;
            client.close().await?;
            let verdict = Verdict::of(&std::fs::read_to_string(&journal)?);
            Ok(Contended { client: foreign.name, version, theirs, library, run, verdict })
        };
        result.await.map_err(|trouble: Trouble| {
            // Who finds that he has been robbed complains before he is asked: the journal tells more.
            let so_far = Verdict::of(&std::fs::read_to_string(&journal).unwrap_or_default());
            broken(format!("{trouble}; {} overlaps until then", so_far.overlaps.len()).into())
        })
    }

    /// Lets a foreign client hold the key: we see that, are kept out, change nothing, and get it afterwards.
    ///
    /// # Errors
    ///
    /// When it is otherwise.
    pub async fn leaves_alone(&self, foreign: &Foreign) -> Result<(), NoClient> {
        let running = foreign.start(&self.servers.theirs(), &self.servers.key(), Order::Hold).await?;
        let result = async {
            let client = Leasehold::connect(&self.url).await?;
            let before = self.servers.held()?;
            self.is_kept_out(&client).await?;
            let after = self.servers.held()?;
            if !before.goes_on_as(&after) {
                return Err(format!("there was {before:?}, and is {after:?}").into());
            }
            // It still owns what it gives back, or says that it does not.
            let acquired = running.go(Duration::ZERO).await?;
            if acquired != 1 {
                return Err(format!("it held the key {acquired} times").into());
            }
            client.lock(NAME).try_acquire().await?.ok_or("it was given back")?.release().await?;
            Ok(client.close().await?)
        };
        result.await.map_err(|trouble| NoClient::Broken(foreign.name, trouble))
    }

    async fn is_kept_out(&self, client: &Leasehold) -> Result<(), Trouble> {
        let lock = client.lock(NAME);
        let shares =
            self.servers.has_shared_locks() && client.rwlock(NAME).read().try_acquire().await?.is_some();
        if shares || lock.try_acquire().await?.is_some() {
            return Err("we got what somebody else holds".into());
        }
        match lock.acquire_within(Duration::from_millis(50)).await {
            Err(leasehold::Error::TimedOut { .. }) => {}
            other => return Err(format!("a wait for it ended with {other:?}").into()),
        }
        let holders = client.inspect(NAME).await?.holders;
        let [holder] = &holders[..] else { return Err(format!("held by {holders:?}").into()) };
        if holder.owner.program != "foreign" || holder.token.is_some() {
            return Err(format!("seen as {holder:?}").into());
        }
        let command = self.command();
        let status = command.say(&["status", NAME]).await?;
        let said = ours::text(&status.stdout);
        if status.status.code() != Some(0) || !said.contains("another client") {
            return Err(format!("status: {} {said}", status.status).into());
        }
        let run = command.say(&["run", NAME, "--wait", "50ms", "--busy", "fail", "--", "false"]).await?;
        if run.status.code() != Some(BUSY) {
            return Err(format!("run: {} {}", run.status, ours::text(&run.stderr)).into());
        }
        let break_it = command.say(&["break", NAME, "--token", "1", "--yes"]).await?;
        if break_it.status.success() {
            return Err("break: it ended what is not ours".into());
        }
        Ok(())
    }
}
