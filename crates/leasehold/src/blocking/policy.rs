//! What to do when the store cannot be reached, for blocking locks.

use std::time::Duration;

use leasehold_core::Result;

use super::lease::Lease;
use super::mirror::{both_ways, mirror};
use super::wait;
use crate::policy::OpenRun;
use crate::proof::Proof;

/// As [`crate::OpenLock`]: where its store cannot be reached, the work goes on without a lease. Made by
/// [`Lock::or_open`](super::Lock::or_open).
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// use leasehold::blocking::{Held, Leasehold};
///
/// # let client = Leasehold::memory();
/// match client.lock("thumbnails").or_open().acquire()? {
///     Held::Lease(lease) => println!("alone, under token {}", lease.token()),
///     Held::Open(run) => println!("perhaps not alone: {}", run.why()),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a lock is only a description: acquire it, or run something under it"]
pub struct OpenLock(crate::OpenLock);

impl OpenLock {
    mirror! { "OpenLock"
        lease acquire() -> Held;
        lease acquire_within(most: Duration) -> Held;
        lease attempt() -> Held;
        run run() by acquire() -> Held;
        run run_within(most: Duration) by acquire_within() -> Held;
        run try_run() by attempt() -> Held;
    }
}

both_ways!(OpenLock);

/// As [`crate::Held`]: what an [`OpenLock`] gives.
#[derive(Debug)]
#[must_use = "a lease that is not kept is given back at once"]
pub enum Held {
    /// The lock is held.
    Lease(Lease),
    /// Nothing is held: the store could not be reached.
    Open(OpenRun),
}

impl Held {
    /// As [`Held::lease`](crate::Held::lease): the lease, if there is one.
    #[must_use]
    pub fn lease(&self) -> Option<&Lease> {
        match self {
            Self::Lease(lease) => Some(lease),
            Self::Open(_) => None,
        }
    }

    /// As [`Held::release`](crate::Held::release): gives the lease back, if there is one.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn release(self) -> Result<()> {
        wait(Proof::release(self))
    }

    /// The same for async callers.
    pub fn into_async(self) -> crate::Held {
        match self {
            Self::Lease(lease) => crate::Held::Lease(lease.into_async()),
            Self::Open(run) => crate::Held::Open(run),
        }
    }
}

impl From<crate::Held> for Held {
    fn from(held: crate::Held) -> Self {
        match held {
            crate::Held::Lease(lease) => Self::Lease(lease.into()),
            crate::Held::Open(run) => Self::Open(run),
        }
    }
}

impl Proof for Held {
    fn leases(&self) -> Vec<&crate::Lease> {
        self.lease().map(Lease::twin).into_iter().collect()
    }

    fn release(self) -> impl Future<Output = Result<()>> + Send {
        self.into_async().release()
    }
}

/// As [`crate::BackedLock`]: a lock in two stores, the second of which is asked where the first cannot be reached. Made
/// by [`Lock::or_else`](super::Lock::or_else).
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// # use leasehold::blocking::Leasehold;
/// # let (cluster, this_host) = (Leasehold::memory(), Leasehold::memory());
/// let lock = cluster.lock("cleanup").or_else(this_host.lock("cleanup"));
/// lock.acquire()?.into_lease().release()
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a lock is only a description: acquire it, or run something under it"]
pub struct BackedLock(crate::BackedLock);

impl BackedLock {
    mirror! { "BackedLock"
        lease acquire() -> Backed;
        lease acquire_within(most: Duration) -> Backed;
        lease attempt() -> Backed;
        run run() by acquire() -> Backed;
        run run_within(most: Duration) by acquire_within() -> Backed;
        run try_run() by attempt() -> Backed;
    }
}

both_ways!(BackedLock);

/// As [`crate::Backed`]: what a [`BackedLock`] gives.
#[derive(Debug)]
#[must_use = "a lease that is not kept is given back at once"]
pub enum Backed {
    /// It is held in the first store.
    First(Lease),
    /// It is held in the second store, since the first could not be reached.
    Second(Lease),
}

impl Backed {
    /// As [`Backed::lease`](crate::Backed::lease): the lease, from whichever store.
    pub fn lease(&self) -> &Lease {
        match self {
            Self::First(lease) | Self::Second(lease) => lease,
        }
    }

    /// As [`Backed::into_lease`](crate::Backed::into_lease): the lease, from whichever store.
    pub fn into_lease(self) -> Lease {
        match self {
            Self::First(lease) | Self::Second(lease) => lease,
        }
    }

    /// The same for async callers.
    pub fn into_async(self) -> crate::Backed {
        match self {
            Self::First(lease) => crate::Backed::First(lease.into_async()),
            Self::Second(lease) => crate::Backed::Second(lease.into_async()),
        }
    }
}

impl From<crate::Backed> for Backed {
    fn from(backed: crate::Backed) -> Self {
        match backed {
            crate::Backed::First(lease) => Self::First(lease.into()),
            crate::Backed::Second(lease) => Self::Second(lease.into()),
        }
    }
}

impl Proof for Backed {
    fn leases(&self) -> Vec<&crate::Lease> {
        vec![self.lease().twin()]
    }

    fn release(self) -> impl Future<Output = Result<()>> + Send {
        self.into_lease().into_async().release()
    }
}
