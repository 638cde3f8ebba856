//! What work is done under: a lease, or a set of them.

use leasehold_core::{LockName, Lost, Result, Token};

use crate::lease::Lease;
use crate::lease_set::LeaseSet;

/// A proof that something is held.
pub(crate) trait Proof {
    /// Of what, for logs; of a set, its first.
    fn told(&self) -> Option<(LockName, Token)>;
    /// Returns once it is lost.
    fn lost(&self) -> impl Future<Output = Lost> + Send;
    /// Gives it back.
    fn release(self) -> impl Future<Output = Result<()>> + Send;
}

impl Proof for Lease {
    fn told(&self) -> Option<(LockName, Token)> {
        Some((self.name().clone(), self.token()))
    }

    fn lost(&self) -> impl Future<Output = Lost> + Send {
        Self::lost(self)
    }

    fn release(self) -> impl Future<Output = Result<()>> + Send {
        Self::release(self)
    }
}

impl Proof for LeaseSet {
    fn told(&self) -> Option<(LockName, Token)> {
        self.leases().first().and_then(Proof::told)
    }

    fn lost(&self) -> impl Future<Output = Lost> + Send {
        Self::lost(self)
    }

    fn release(self) -> impl Future<Output = Result<()>> + Send {
        Self::release(self)
    }
}
