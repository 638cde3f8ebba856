//! The blocking proof that several locks are held.

use std::fmt;
use std::time::Duration;

use leasehold_core::{LockName, Lost, Result, Token};
use tokio_util::sync::CancellationToken;

use super::lease::Lease;
use super::mirror::mirror;
use super::wait_within;
use crate::hold::LeaseState;
use crate::proof::Proof;

/// As [`crate::LeaseSet`]: the proof that several locks are held, all of them, given back by
/// [`release`](Self::release) or on drop.
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// let client = leasehold::blocking::Leasehold::memory();
/// let both = client.lock_all(["account:17", "account:42"]).acquire()?;
/// both.check()?;
/// for (name, token) in both.tokens() {
///     println!("{name}: write under {token}");
/// }
/// both.release()
/// # }
/// ```
#[must_use = "leases that are not kept are given back at once"]
pub struct LeaseSet(crate::LeaseSet, Vec<Lease>);

impl LeaseSet {
    mirror! { "LeaseSet"
        call tokens() -> impl Iterator<Item = (&LockName, Token)>;
        look remaining() -> Duration;
        look state() -> LeaseState;
        look cancelled() -> CancellationToken;
        wait ensure(least: Duration) -> Result<()>;
        wait lost() -> Lost;
        end release() -> Result<()>;
    }

    /// As [`LeaseSet::token_of`](crate::LeaseSet::token_of): the fencing token of one of the names.
    #[must_use]
    pub fn token_of(&self, name: impl AsRef<str>) -> Option<Token> {
        self.0.token_of(name)
    }

    /// As [`LeaseSet::leases`](crate::LeaseSet::leases): in the byte order of their names.
    pub fn leases(&self) -> &[Lease] {
        &self.1
    }

    /// As [`LeaseSet::check`](crate::LeaseSet::check): whether all of them hold right now.
    ///
    /// # Errors
    ///
    /// [`Lost`], for good, as soon as one of them is lost.
    pub fn check(&self) -> Result<(), Lost> {
        self.0.check()
    }

    /// Waits until one of them is lost, for at most `most`; `None` if all still hold then.
    #[must_use]
    pub fn lost_within(&self, most: Duration) -> Option<Lost> {
        wait_within(self.0.client(), most, self.0.lost()).or_else(|| self.check().err())
    }

    /// The same for async callers.
    pub fn into_async(self) -> crate::LeaseSet {
        self.0
    }
}

impl From<crate::LeaseSet> for LeaseSet {
    fn from(leases: crate::LeaseSet) -> Self {
        let views = leases.leases().iter().map(|lease| lease.view().into()).collect();
        Self(leases, views)
    }
}

impl Proof for LeaseSet {
    fn leases(&self) -> Vec<&crate::Lease> {
        Proof::leases(&self.0)
    }

    fn release(self) -> impl Future<Output = Result<()>> + Send {
        self.0.release()
    }
}

impl fmt::Debug for LeaseSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
