//! The blocking description of a mutex.

use std::time::Duration;

use leasehold_core::Result;

use super::lease::Lease;
use super::migrate::Both;
use super::mirror::{both_ways, mirror};
use super::policy::{BackedLock, OpenLock};
use super::run::run_under;
use super::scope::Scope;

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
        option permits(permits: u32);
        lease acquire() -> Lease;
        lease acquire_within(most: Duration) -> Lease;
        maybe try_acquire() -> Lease;
        lease attempt() -> Lease;
        run run_within(most: Duration) by acquire_within() -> Lease;
        run try_run() by attempt() -> Lease;
    }

    /// As [`Lock::within`](crate::Lock::within): has it taken by a scope, which may take again what it holds.
    pub fn within(self, scope: &Scope) -> Self {
        Self(self.0.within(scope.twin()))
    }

    /// As [`Lock::and`](crate::Lock::and): takes another lock with this one, as one.
    pub fn and(self, other: Self) -> Both {
        self.0.and(other.0).into()
    }

    /// As [`Lock::or_open`](crate::Lock::or_open): goes on without a lease where the store cannot be reached.
    pub fn or_open(self) -> OpenLock {
        self.0.or_open().into()
    }

    /// As [`Lock::or_else`](crate::Lock::or_else): asks another lock where the store of this one cannot be reached.
    pub fn or_else(self, second: Self) -> BackedLock {
        self.0.or_else(second.0).into()
    }

    /// Waits for the lock, works, and gives it back.
    ///
    /// Work that has begun goes on to its end even if the lease is lost meanwhile: nothing can stop it from outside.
    /// So the work is given the lease, to [check](Lease::check) before each step that matters.
    ///
    /// An acquire of the same name inside the work, in the same thread, would wait for itself: it is
    /// [`Error::Busy`](crate::Error::Busy) instead, which says that it is you. Work that needs the lock twice passes the
    /// lease along, or takes it in a [scope](Scope).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Error::Lost`](crate::Error::Lost) if the lease was lost before the work was done: what it
    /// returned is dropped then, since nobody vouches for it. A release that fails is logged and does not hide what
    /// the work returned.
    ///
    /// # Panics
    ///
    /// If the work does; the lease is given back then.
    pub fn run<T>(&self, work: impl FnOnce(&Lease) -> T) -> Result<T> {
        run_under(self.acquire()?, work)
    }
}

both_ways!(Lock);
