//! What to do when the store cannot be reached: nothing, by default; to go on without a lease, or to ask another
//! store, if the lock says so. Which of them it was stands in the type of what comes back.

use std::time::Duration;

use leasehold_core::{Busy, Error, LockName, Result, StoreErrorKind, fault};

use crate::event::Event;
use crate::lease::Lease;
use crate::lock::{self, Lock, Outcome};

/// A lock that fails *open*: where its store cannot be reached, the work goes on without a lease.
///
/// Made by [`Lock::or_open`]. For work that had better be done twice than not at all. Nothing else opens it: a lock
/// that somebody has is waited for, and a store that refuses us or is damaged is an error as ever.
///
/// "Cannot be reached" is: no answer but failures until the client's timeout, or until the end of the wait if that is
/// shorter. So a wait shorter than the store's usual answer opens it too: give it seconds. A claim that may have been
/// executed all the same is given back by its id, in the background.
#[derive(Debug, Clone)]
#[must_use = "a lock is only a description: acquire it, or run something under it"]
pub struct OpenLock {
    lock: Lock,
}

/// What an [`OpenLock`] gives.
#[derive(Debug)]
#[must_use = "a lease that is not kept is given back at once"]
pub enum Held {
    /// The lock is held.
    Lease(Lease),
    /// Nothing is held: the store could not be reached.
    Open(OpenRun),
}

/// Leave to go on without a lease. It keeps nobody out, is never lost, and has no fencing token: what checks tokens
/// must refuse it, or be told to let it pass.
#[derive(Debug)]
pub struct OpenRun {
    name: LockName,
    why: Error,
}

impl OpenRun {
    /// What is *not* locked.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Why the store could not be used.
    #[must_use]
    pub fn why(&self) -> &Error {
        &self.why
    }
}

impl Held {
    /// The lease, if there is one.
    #[must_use]
    pub fn lease(&self) -> Option<&Lease> {
        match self {
            Self::Lease(lease) => Some(lease),
            Self::Open(_) => None,
        }
    }

    /// Gives the lease back, if there is one.
    ///
    /// # Errors
    ///
    /// As [`Lease::release`].
    ///
    /// # Cancel safety
    ///
    /// As [`Lease::release`].
    pub async fn release(self) -> Result<()> {
        match self {
            Self::Lease(lease) => lease.release().await,
            Self::Open(_) => Ok(()),
        }
    }
}

/// A lock in two stores: the second is asked where the first cannot be reached.
///
/// Made by [`Lock::or_else`]. A lease of the second store keeps out only those who ask the second store. While one
/// host reaches the first store and another does not, both may hold the lock, each in another store; their tokens are
/// not comparable. So this is for work that had better be done twice than not at all, and less often twice than with
/// [`Lock::or_open`].
#[derive(Debug, Clone)]
#[must_use = "a lock is only a description: acquire it, or run something under it"]
pub struct BackedLock {
    first: Lock,
    second: Lock,
}

/// What a [`BackedLock`] gives.
#[derive(Debug)]
#[must_use = "a lease that is not kept is given back at once"]
pub enum Backed {
    /// It is held in the first store.
    First(Lease),
    /// It is held in the second store, since the first could not be reached.
    Second(Lease),
}

impl Backed {
    /// The lease, from whichever store.
    pub fn lease(&self) -> &Lease {
        match self {
            Self::First(lease) | Self::Second(lease) => lease,
        }
    }

    /// The lease, from whichever store.
    pub fn into_lease(self) -> Lease {
        match self {
            Self::First(lease) | Self::Second(lease) => lease,
        }
    }
}

/// Whether a store could not be reached, as against having said something.
fn cannot_be_reached(error: &Error) -> bool {
    match error {
        Error::Store(error) => error.kind == StoreErrorKind::Unavailable,
        Error::Busy(_) | Error::TimedOut { .. } => fault!("open_when_busy"),
        _ => false,
    }
}

/// "No" as a value.
fn unless_busy<T>(answer: Result<T>) -> Result<Result<T, Box<Busy>>> {
    match answer {
        Ok(value) => Ok(Ok(value)),
        Err(Error::Busy(busy)) => Ok(Err(busy)),
        Err(error) => Err(error),
    }
}

impl Lock {
    /// Goes on without a lease where the store cannot be reached. By default a lock fails *closed*: then there is an
    /// error, and nothing runs.
    ///
    /// ```
    /// # leasehold::doc_test(async {
    /// # let client = leasehold::Leasehold::memory();
    /// use leasehold::Held;
    ///
    /// match client.lock("thumbnails").or_open().acquire().await? {
    ///     Held::Lease(lease) => println!("alone, under token {}", lease.token()),
    ///     Held::Open(run) => println!("perhaps not alone: {}", run.why()),
    /// }
    /// # Ok(()) });
    /// ```
    pub fn or_open(self) -> OpenLock {
        OpenLock { lock: self }
    }

    /// Asks another lock, of a client of another store, where the store of this one cannot be reached.
    ///
    /// ```
    /// # leasehold::doc_test(async {
    /// # let (cluster, this_host) = (leasehold::Leasehold::memory(), leasehold::Leasehold::memory());
    /// let lock = cluster.lock("cleanup").or_else(this_host.lock("cleanup"));
    /// lock.acquire().await?.into_lease().release().await
    /// # });
    /// ```
    pub fn or_else(self, second: Self) -> BackedLock {
        BackedLock { first: self, second }
    }
}

impl OpenLock {
    /// As [`Lock::acquire`], or open.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`], but for a store that cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub async fn acquire(&self) -> Result<Held> {
        self.held(self.lock.acquire().await)
    }

    /// As [`Lock::acquire_within`], or open.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire_within`], but for a store that cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub async fn acquire_within(&self, wait: Duration) -> Result<Held> {
        self.held(self.lock.acquire_within(wait).await)
    }

    /// As [`Lock::attempt`], or open.
    ///
    /// # Errors
    ///
    /// As [`Lock::attempt`], but for a store that cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub async fn attempt(&self) -> Result<Held> {
        self.held(self.lock.attempt().await)
    }

    /// As [`Lock::run`], under a lease or open.
    ///
    /// # Errors
    ///
    /// As [`Lock::run`], but for a store that cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::run`].
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&Held) -> T) -> Result<T> {
        run_held(self.acquire().await?, work).await
    }

    /// As [`Lock::run_within`], under a lease or open.
    ///
    /// # Errors
    ///
    /// As [`Lock::run_within`], but for a store that cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::run`].
    pub async fn run_within<T>(&self, wait: Duration, work: impl AsyncFnOnce(&Held) -> T) -> Result<T> {
        run_held(self.acquire_within(wait).await?, work).await
    }

    /// As [`Lock::try_run`], under a lease or open.
    ///
    /// # Errors
    ///
    /// As [`Lock::try_run`], but for a store that cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::run`].
    pub async fn try_run<T>(&self, work: impl AsyncFnOnce(&Held) -> T) -> Result<Outcome<T>> {
        match unless_busy(self.attempt().await)? {
            Ok(held) => run_held(held, work).await.map(Outcome::Ran),
            Err(busy) => Ok(Outcome::Skipped(busy)),
        }
    }

    fn held(&self, answer: Result<Lease>) -> Result<Held> {
        match answer {
            Ok(lease) => Ok(Held::Lease(lease)),
            Err(why) if cannot_be_reached(&why) => {
                let name = self.lock.full_name()?.clone();
                let event = Event::WithoutStore { name: name.clone(), error: why.clone(), instead: None };
                self.lock.client().tell(event);
                Ok(Held::Open(OpenRun { name, why }))
            }
            Err(error) => Err(error),
        }
    }
}

async fn run_held<T>(held: Held, work: impl AsyncFnOnce(&Held) -> T) -> Result<T> {
    let value = match held.lease() {
        Some(lease) => lock::work_under(&[lease], work(&held)).await?,
        None => work(&held).await,
    };
    if let Held::Lease(lease) = held {
        lock::give_back(lease).await;
    }
    Ok(value)
}

impl BackedLock {
    /// As [`Lock::acquire`], in the first store or the second.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`]: of the first store if that could be reached, else of the second.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub async fn acquire(&self) -> Result<Backed> {
        match self.first.acquire().await {
            Err(error) if self.goes_on(&error)? => self.second.acquire().await.map(Backed::Second),
            answer => answer.map(Backed::First),
        }
    }

    /// As [`Lock::acquire_within`], in the first store or the second: at most `wait` in each, so at most twice that
    /// in all.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire_within`]: of the first store if that could be reached, else of the second.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub async fn acquire_within(&self, wait: Duration) -> Result<Backed> {
        match self.first.acquire_within(wait).await {
            Err(error) if self.goes_on(&error)? => self.second.acquire_within(wait).await.map(Backed::Second),
            answer => answer.map(Backed::First),
        }
    }

    /// As [`Lock::attempt`], in the first store or the second.
    ///
    /// # Errors
    ///
    /// As [`Lock::attempt`]: of the first store if that could be reached, else of the second.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub async fn attempt(&self) -> Result<Backed> {
        match self.first.attempt().await {
            Err(error) if self.goes_on(&error)? => self.second.attempt().await.map(Backed::Second),
            answer => answer.map(Backed::First),
        }
    }

    /// As [`Lock::run`], under a lease of the first store or the second.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Error::Lost`] if the work was stopped.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::run`].
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&Backed) -> T) -> Result<T> {
        run_backed(self.acquire().await?, work).await
    }

    /// As [`Lock::run_within`], under a lease of the first store or the second.
    ///
    /// # Errors
    ///
    /// As [`acquire_within`](Self::acquire_within), and [`Error::Lost`] if the work was stopped.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::run`].
    pub async fn run_within<T>(&self, wait: Duration, work: impl AsyncFnOnce(&Backed) -> T) -> Result<T> {
        run_backed(self.acquire_within(wait).await?, work).await
    }

    /// As [`Lock::try_run`], under a lease of the first store or the second.
    ///
    /// # Errors
    ///
    /// As [`attempt`](Self::attempt) but for [`Error::Busy`], and [`Error::Lost`] if the work was stopped.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::run`].
    pub async fn try_run<T>(&self, work: impl AsyncFnOnce(&Backed) -> T) -> Result<Outcome<T>> {
        match unless_busy(self.attempt().await)? {
            Ok(backed) => run_backed(backed, work).await.map(Outcome::Ran),
            Err(busy) => Ok(Outcome::Skipped(busy)),
        }
    }

    /// Whether the second store is to be asked after this answer of the first.
    fn goes_on(&self, error: &Error) -> Result<bool> {
        if !cannot_be_reached(error) {
            return Ok(false);
        }
        let name = self.first.full_name()?.clone();
        let instead = Some(self.second.client().store_name().to_owned());
        self.first.client().tell(Event::WithoutStore { name, error: error.clone(), instead });
        Ok(true)
    }
}

async fn run_backed<T>(backed: Backed, work: impl AsyncFnOnce(&Backed) -> T) -> Result<T> {
    let value = lock::work_under(&[backed.lease()], work(&backed)).await?;
    lock::give_back(backed.into_lease()).await;
    Ok(value)
}
