//! Two blocking locks that are held as one.

use std::fmt;
use std::time::Duration;

use leasehold_core::{Lost, Result, Token};

use super::lease::Lease;
use super::mirror::{both_ways, mirror};
use super::wait_within;
use crate::hold::LeaseState;
use crate::proof::Proof;

/// As [`crate::Both`]: two locks, of one client or of two, that are held as one. Made by
/// [`Lock::and`](super::Lock::and).
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// # use leasehold::blocking::Leasehold;
/// # let (redis, etcd) = (Leasehold::memory(), Leasehold::memory());
/// let lock = redis.lock("cron:report").and(etcd.lock("report:daily"));
/// lock.run(|both| println!("under the tokens {} and {}", both.first().token(), both.second().token()))
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a lock is only a description: acquire it, or run something under it"]
pub struct Both(crate::Both);

impl Both {
    mirror! { "Both"
        lease acquire() -> LeasePair;
        lease acquire_within(most: Duration) -> LeasePair;
        maybe try_acquire() -> LeasePair;
        lease attempt() -> LeasePair;
        run run() by acquire() -> LeasePair;
        run run_within(most: Duration) by acquire_within() -> LeasePair;
        run try_run() by attempt() -> LeasePair;
    }
}

both_ways!(Both);

/// As [`crate::LeasePair`]: the proof that [both](Both) locks are held. Dropping it gives both back.
#[must_use = "a lease that is not kept is given back at once"]
pub struct LeasePair(crate::LeasePair, [Lease; 2]);

impl LeasePair {
    mirror! { "LeasePair"
        look remaining() -> Duration;
        look state() -> LeaseState;
        wait ensure(least: Duration) -> Result<()>;
        wait lost() -> Lost;
        end release() -> Result<()>;
    }

    /// As [`LeasePair::first`](crate::LeasePair::first): the lease of the lock that was written first.
    pub fn first(&self) -> &Lease {
        let [first, _] = &self.1;
        first
    }

    /// As [`LeasePair::second`](crate::LeasePair::second): the lease of the lock that was written second.
    pub fn second(&self) -> &Lease {
        let [_, second] = &self.1;
        second
    }

    /// As [`LeasePair::check`](crate::LeasePair::check): the tokens, if both hold right now.
    ///
    /// # Errors
    ///
    /// [`Lost`], for good, if one of them is lost.
    pub fn check(&self) -> Result<(Token, Token), Lost> {
        self.0.check()
    }

    /// Waits until one of them is lost, for at most `most` by the clock of the first one's client; `None` if both
    /// still hold then.
    #[must_use]
    pub fn lost_within(&self, most: Duration) -> Option<Lost> {
        wait_within(self.0.first().client(), most, self.0.lost()).or_else(|| self.check().err())
    }

    /// The same for async callers.
    pub fn into_async(self) -> crate::LeasePair {
        self.0
    }
}

impl From<crate::LeasePair> for LeasePair {
    fn from(pair: crate::LeasePair) -> Self {
        let views = [pair.first(), pair.second()].map(|lease| lease.view().into());
        Self(pair, views)
    }
}

impl Proof for LeasePair {
    fn leases(&self) -> Vec<&crate::Lease> {
        self.0.leases()
    }

    fn release(self) -> impl Future<Output = Result<()>> + Send {
        self.0.release()
    }
}

impl fmt::Debug for LeasePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
