//! The blocking client.

use std::os::fd::OwnedFd;

use leasehold_core::{Capabilities, Clock, Holder, LockName, Owner, Result, Snapshot, Token};

use super::builder::Builder;
use super::lease::Lease;
use super::lock::Lock;
use super::mirror::mirror;
use super::wait;
use crate::client::AsyncLedger;
use crate::handover::LeaseTicket;
use crate::sim::OnHost;

/// As [`crate::Leasehold`]: a client of one store. Cheap to clone; clones share one thread.
///
/// See the [module](super) for an example.
#[derive(Debug, Clone)]
pub struct Leasehold(crate::Leasehold);

impl Leasehold {
    /// As [`Leasehold::connect`](crate::Leasehold::connect).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn connect(url: &str) -> Result<Self> {
        wait(crate::Leasehold::connect(url)).map(Self)
    }

    /// As [`Leasehold::from_env`](crate::Leasehold::from_env).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn from_env() -> Result<Self> {
        wait(crate::Leasehold::from_env()).map(Self)
    }

    /// As [`Leasehold::memory`](crate::Leasehold::memory).
    #[must_use]
    pub fn memory() -> Self {
        Self(crate::Leasehold::memory())
    }

    /// For other than the defaults.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// As [`Leasehold::lock`](crate::Leasehold::lock): describes the lock of this name.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        self.0.lock(name).into()
    }

    mirror! { "Leasehold"
        wait inspect(name: impl AsRef<str>) -> Result<Snapshot>;
        wait list(prefix: &str) -> Result<Vec<LockName>>;
        wait find(name: impl AsRef<str>, token: Token) -> Result<Option<LeaseTicket>>;
        wait break_lease(name: impl AsRef<str>, token: Token) -> Result<Option<Holder>>;
        wait life() -> Result<Option<OwnedFd>>;
        look capabilities() -> &Capabilities;
        look store() -> &str;
        look owner() -> &Owner;
        look namespace() -> &str;
        look clock() -> &Clock;
        look created_store() -> Option<&str>;
    }

    /// As [`Leasehold::with_ledger`](crate::Leasehold::with_ledger): the work is async, and runs on the client's own
    /// thread.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn with_ledger<T: Send + 'static>(&self, work: impl AsyncLedger<T>) -> Result<T> {
        wait(self.0.with_ledger(work))
    }

    /// As [`Leasehold::resume`](crate::Leasehold::resume): goes on with a lease.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn resume(&self, ticket: LeaseTicket) -> Result<Lease> {
        wait(self.0.resume(ticket)).map(Lease::from)
    }

    /// As [`Leasehold::close`](crate::Leasehold::close).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn close(self) -> Result<()> {
        wait(self.0.close())
    }

    /// The same client for async callers; both share its thread.
    #[must_use]
    pub fn into_async(self) -> crate::Leasehold {
        self.0
    }
}

impl From<crate::Leasehold> for Leasehold {
    fn from(client: crate::Leasehold) -> Self {
        Self(client)
    }
}

impl OnHost for Leasehold {
    fn owner_id(&self) -> String {
        self.0.owner_id()
    }
}
