//! The description of several locks that are wanted together, and the verbs that acquire all of them or none.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{ConfigError, Error, Result};

use crate::client::{Client, Leasehold};
use crate::gather::{self, Asks};
use crate::lease_set::LeaseSet;
use crate::lock::{Lock, Outcome, run_under};

/// The most names that may be asked for together.
const MOST: usize = 64;

/// Describes several locks that are wanted together: all of them, or none. It holds nothing, and may be used any
/// number of times.
///
/// | verb | waits | when somebody has one of them |
/// |---|---|---|
/// | [`acquire`](Self::acquire) | as long as it takes | |
/// | [`acquire_within`](Self::acquire_within) | at most so long, for all together | [`Error::TimedOut`] |
/// | [`try_acquire`](Self::try_acquire) | no | `None` |
/// | [`attempt`](Self::attempt) | no | [`Error::Busy`], which says which and who |
///
/// # How
///
/// Where the store can, all are taken in one step. If somebody is in the way and we may wait, they are waited for one
/// after the other in the byte order of their names, each in the line of its name, while those that are held already
/// are renewed. So whatever order people write them in, no two `lock_all` wait for each other for ever, and none
/// starves. (One that holds another lock by hand, and waits here, may still do so.) A try is the one step; a store
/// that has none is asked one by one, and what was got is given back.
///
/// The same name given twice counts once.
///
/// Whoever waits keeps what he has got so far: others find those names held meanwhile.
#[derive(Debug, Clone)]
#[must_use = "this is only a description: acquire it, or run something under it"]
pub struct LockAll {
    client: Arc<Client>,
    namespace: Arc<str>,
    locks: Vec<Lock>,
}

impl Leasehold {
    /// Describes the locks of these names, 1 to 64 of them, to be acquired together; nothing happens until they are
    /// asked for. A bad name, no name at all and too many are reported then.
    ///
    /// ```
    /// # leasehold::doc_test(async {
    /// use std::time::Duration;
    ///
    /// # let client = leasehold::Leasehold::memory();
    /// let accounts = client.lock_all(["account:17", "account:42"]).ttl(Duration::from_secs(20));
    /// let both = accounts.acquire_within(Duration::from_secs(3)).await?;
    /// println!("{:?} {:?}", both.token_of("account:17"), both.token_of("account:42"));
    /// both.release().await
    /// # });
    /// ```
    pub fn lock_all(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> LockAll {
        let mut typed: Vec<String> = Vec::new();
        for name in names {
            if !typed.iter().any(|other| other == name.as_ref()) {
                typed.push(name.as_ref().to_owned());
            }
            // One more than may be is enough to see that there are too many.
            if typed.len() > MOST {
                break;
            }
        }
        let locks = typed.iter().map(|name| self.lock(name)).collect();
        LockAll { client: self.client.clone(), namespace: self.namespace.clone(), locks }
    }
}

impl LockAll {
    fn each(self, change: impl Fn(Lock) -> Lock) -> Self {
        Self { locks: self.locks.into_iter().map(change).collect(), ..self }
    }

    /// As [`Lock::ttl`], for each of them. Defaults to 30 s.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.each(|lock| lock.ttl(ttl))
    }

    /// As [`Lock::grace`], for each of them. Defaults to a sixth of the ttl.
    pub fn grace(self, grace: Duration) -> Self {
        self.each(|lock| lock.grace(grace))
    }

    /// As [`Lock::max_hold`], for each of them, from when all of them are held. Defaults to no limit.
    pub fn max_hold(self, most: Duration) -> Self {
        self.each(|lock| lock.max_hold(most))
    }

    /// As [`Lock::note`], for each of them.
    pub fn note(self, note: impl AsRef<str>) -> Self {
        self.each(|lock| lock.note(note.as_ref()))
    }

    /// Waits for each in strict order of arrival, as [`Lock::fair`].
    pub fn fair(self) -> Self {
        self.each(Lock::fair)
    }

    async fn ask(&self, asks: Asks) -> Result<LeaseSet> {
        if self.locks.is_empty() || self.locks.len() > MOST {
            let given = if self.locks.is_empty() {
                "none were given".to_owned()
            } else {
                format!("{MOST} are the most")
            };
            let message = format!("several locks together take at least one name: {given}");
            return Err(ConfigError::new(message).help("ask for 1 to 64 names").into());
        }
        let now = matches!(asks, Asks::Tries { .. });
        let terms = self.locks.iter().map(|lock| lock.terms(now)).collect::<Result<Vec<_>>>()?;
        let leases = gather::gather(&self.client, gather::in_order(terms), asks).await?;
        Ok(LeaseSet::new(self.client.clone(), self.namespace.clone(), leases))
    }

    /// Waits for all of them as long as it takes.
    ///
    /// # Errors
    ///
    /// A bad name or note, no names or more than 64, a ttl that the store does not take, and a store that has been
    /// silent for longer than the client's timeout. Nothing is held then.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the line; whatever it holds so far is given back in the background. A future that is not
    /// polled loses its place after 2 s, and what it holds after its ttl.
    ///
    /// # Examples
    ///
    /// ```
    /// # leasehold::doc_test(async {
    /// # let client = leasehold::Leasehold::memory();
    /// let all = client.lock_all(["shelf:1", "shelf:2", "shelf:3"]).acquire().await?;
    /// assert_eq!(all.tokens().count(), 3);
    /// all.release().await
    /// # });
    /// ```
    pub async fn acquire(&self) -> Result<LeaseSet> {
        self.ask(Asks::Waits(None)).await
    }

    /// Waits for all of them, for at most `wait` in total.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Error::TimedOut`], which says which name was waited for and who has it.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Examples
    ///
    /// ```
    /// # leasehold::doc_test(async {
    /// # let client = leasehold::Leasehold::memory();
    /// use std::time::Duration;
    /// use leasehold::Error;
    ///
    /// let one = client.lock("shelf:2").acquire().await?;
    /// match client.lock_all(["shelf:1", "shelf:2"]).acquire_within(Duration::from_millis(10)).await {
    ///     Err(Error::TimedOut { busy, .. }) => assert_eq!(busy.name.as_str(), "shelf:2"),
    ///     other => panic!("it is held: {other:?}"),
    /// }
    /// # one.release().await });
    /// ```
    pub async fn acquire_within(&self, wait: Duration) -> Result<LeaseSet> {
        self.ask(Asks::Waits(Some(wait))).await
    }

    /// Takes them if all are free.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// What was granted is given back in the background.
    pub async fn try_acquire(&self) -> Result<Option<LeaseSet>> {
        match self.ask(Asks::Tries { wants_busy: false }).await {
            Ok(leases) => Ok(Some(leases)),
            Err(Error::Busy(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes them if all are free, and says which is not and who has it.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Error::Busy`].
    ///
    /// # Cancel safety
    ///
    /// As [`try_acquire`](Self::try_acquire).
    pub async fn attempt(&self) -> Result<LeaseSet> {
        self.ask(Asks::Tries { wants_busy: true }).await
    }

    /// Waits for all of them, works, and gives them back. If one is lost the work is stopped: its future is dropped
    /// where it stands.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Error::Lost`] if the work was stopped. A release that fails is logged and
    /// does not hide what the work returned.
    ///
    /// # Cancel safety
    ///
    /// The work is dropped, and all are given back in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # leasehold::doc_test(async {
    /// # let client = leasehold::Leasehold::memory();
    /// let moved = client.lock_all(["account:17", "account:42"]).run(async |both| both.check().map(|()| 5)).await??;
    /// assert_eq!(moved, 5);
    /// # Ok(()) });
    /// ```
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&LeaseSet) -> T) -> Result<T> {
        run_under(self.acquire().await?, work).await
    }

    /// As [`run`](Self::run), waiting for at most `wait`.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and [`Error::TimedOut`].
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    pub async fn run_within<T>(&self, wait: Duration, work: impl AsyncFnOnce(&LeaseSet) -> T) -> Result<T> {
        run_under(self.acquire_within(wait).await?, work).await
    }

    /// As [`run`](Self::run), if all are free.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    pub async fn try_run<T>(&self, work: impl AsyncFnOnce(&LeaseSet) -> T) -> Result<Outcome<T>> {
        match self.attempt().await {
            Ok(leases) => run_under(leases, work).await.map(Outcome::Ran),
            Err(Error::Busy(busy)) => Ok(Outcome::Skipped(busy)),
            Err(error) => Err(error),
        }
    }
}
