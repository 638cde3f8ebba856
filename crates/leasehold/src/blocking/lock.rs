//! The blocking description of a mutex.

use std::time::Duration;

use leasehold_core::{Error, Result};

use super::lease::Lease;
use super::mirror::mirror;
use super::wait;
use crate::lock::Outcome;

/// As [`crate::Lock`]: describes a lock. It holds nothing, and may be used any number of times.
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// use std::time::Duration;
///
/// let client = leasehold::blocking::Leasehold::memory();
/// let lock = client.lock("import").ttl(Duration::from_secs(10));
/// let lease = lock.acquire_within(Duration::from_secs(5))?;
/// println!("import under token {}", lease.check()?);
/// assert!(lock.try_acquire()?.is_none());
/// lease.release()
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a lock is only a description: acquire it, or run something under it"]
pub struct Lock(crate::Lock);

impl Lock {
    mirror! { "Lock"
        option ttl(ttl: Duration);
        option grace(grace: Duration);
        option max_hold(most: Duration);
        option note(note: impl AsRef<str>);
        option fair();
        option anchored();
        option lock_delay(delay: Duration);
        option at_least(least: Duration);
    }

    /// As [`Lock::acquire`](crate::Lock::acquire): waits as long as it takes.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn acquire(&self) -> Result<Lease> {
        wait(self.0.acquire()).map(Lease::from)
    }

    /// As [`Lock::acquire_within`](crate::Lock::acquire_within): waits for at most `most`.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn acquire_within(&self, most: Duration) -> Result<Lease> {
        wait(self.0.acquire_within(most)).map(Lease::from)
    }

    /// As [`Lock::try_acquire`](crate::Lock::try_acquire): takes it if it is free.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn try_acquire(&self) -> Result<Option<Lease>> {
        Ok(wait(self.0.try_acquire())?.map(Lease::from))
    }

    /// As [`Lock::attempt`](crate::Lock::attempt): takes it if it is free, and says who has it if not.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn attempt(&self) -> Result<Lease> {
        wait(self.0.attempt()).map(Lease::from)
    }

    /// Waits for the lock, works, and gives it back.
    ///
    /// Work that has begun goes on to its end even if the lease is lost meanwhile: nothing can stop it from outside.
    /// So the work is given the lease, to [check](Lease::check) before each step that matters.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Error::Lost`] if the lease was lost before the work was done: what it
    /// returned is dropped then, since nobody vouches for it. A release that fails is logged and does not hide what
    /// the work returned.
    ///
    /// # Panics
    ///
    /// If the work does; the lease is given back then.
    pub fn run<T>(&self, work: impl FnOnce(&Lease) -> T) -> Result<T> {
        run_under(self.acquire()?, work)
    }

    /// As [`run`](Self::run), waiting for at most `most`.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and [`Error::TimedOut`].
    pub fn run_within<T>(&self, most: Duration, work: impl FnOnce(&Lease) -> T) -> Result<T> {
        run_under(self.acquire_within(most)?, work)
    }

    /// As [`run`](Self::run), if the lock is free.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn try_run<T>(&self, work: impl FnOnce(&Lease) -> T) -> Result<Outcome<T>> {
        match self.attempt() {
            Ok(lease) => run_under(lease, work).map(Outcome::Ran),
            Err(Error::Busy(busy)) => Ok(Outcome::Skipped(busy)),
            Err(error) => Err(error),
        }
    }

    /// The same description for async callers.
    pub fn into_async(self) -> crate::Lock {
        self.0
    }
}

impl From<crate::Lock> for Lock {
    fn from(lock: crate::Lock) -> Self {
        Self(lock)
    }
}

/// Works under a lease, and says afterwards whether it held all the time.
pub(super) fn run_under<T>(lease: Lease, work: impl FnOnce(&Lease) -> T) -> Result<T> {
    let span = crate::event::run_span(lease.name(), lease.token());
    let value = span.in_scope(|| work(&lease));
    lease.check()?;
    wait(crate::lock::give_back(lease.into_async()));
    Ok(value)
}
