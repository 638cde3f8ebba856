//! What work is done under: a lease, or several of them as one.

use leasehold_core::Result;

use crate::lease::Lease;
use crate::lease_set::LeaseSet;
use crate::migrate::LeasePair;

/// A proof that something is held. It is lost when one of its leases is.
pub(crate) trait Proof {
    /// What it consists of.
    fn leases(&self) -> Vec<&Lease>;
    /// Gives it back.
    fn release(self) -> impl Future<Output = Result<()>> + Send;
}

impl Proof for Lease {
    fn leases(&self) -> Vec<&Lease> {
        vec![self]
    }

    fn release(self) -> impl Future<Output = Result<()>> + Send {
        Self::release(self)
    }
}

impl Proof for LeaseSet {
    fn leases(&self) -> Vec<&Lease> {
        Self::leases(self).iter().collect()
    }

    fn release(self) -> impl Future<Output = Result<()>> + Send {
        Self::release(self)
    }
}

impl Proof for LeasePair {
    fn leases(&self) -> Vec<&Lease> {
        vec![self.first(), self.second()]
    }

    fn release(self) -> impl Future<Output = Result<()>> + Send {
        Self::release(self)
    }
}
