//! The blocking client.

use std::os::fd::OwnedFd;
use std::time::Duration;

use leasehold_core::{Capabilities, Check, Clock, Holder, LockName, Owner, Result, Snapshot, Token};

use super::builder::Builder;
use super::election::Election;
use super::lease::Lease;
use super::lock::Lock;
use super::lock_all::LockAll;
use super::mirror::{both_ways, mirror};
use super::once::Once;
use super::rwlock::RwLock;
use super::scope::Scope;
use super::wait;
use crate::checkup::Bare;
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

    mirror! { "Leasehold"
        describe lock(name: impl AsRef<str>) -> Lock;
        describe rwlock(name: impl AsRef<str>) -> RwLock;
        describe semaphore(name: impl AsRef<str>, permits: u32) -> Lock;
        describe lock_all(names: impl IntoIterator<Item = impl AsRef<str>>) -> LockAll;
        describe election(name: impl AsRef<str>) -> Election;
        describe once(key: impl AsRef<str>) -> Once;
        describe once_per(period: impl AsRef<str>, name: impl AsRef<str>) -> Once;
        describe scope(label: impl AsRef<str>) -> Scope;
        lease resume(ticket: LeaseTicket) -> Lease;
        lease take_over(ticket: LeaseTicket) -> Lease;
        wait inspect(name: impl AsRef<str>) -> Result<Snapshot>;
        wait list(prefix: &str) -> Result<Vec<LockName>>;
        wait checkup(ttl: Duration) -> Result<Vec<Check>>;
        wait bare(prefix: &str, at_once: usize, lasting: Duration) -> Result<Option<Bare>>;
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

    /// As [`Leasehold::close`](crate::Leasehold::close).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn close(self) -> Result<()> {
        wait(self.0.close())
    }
}

both_ways!(Leasehold);

impl OnHost for Leasehold {
    fn owner_id(&self) -> String {
        self.0.owner_id()
    }
}
