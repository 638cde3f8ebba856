//! How a blocking client is made.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Clock, Owner, Result, Store, StoreUrl};

use super::client::Leasehold;
use super::mirror::mirror;
use super::wait;
use crate::event::Observer;

/// As [`crate::Builder`]: opens a client with other than the defaults.
#[derive(Debug, Default)]
#[must_use = "a builder opens nothing by itself"]
pub struct Builder(crate::Builder);

impl Builder {
    mirror! { "Builder"
        option namespace(namespace: impl Into<String>);
        option timeout(timeout: Duration);
        option owner(owner: Owner);
        option program(program: impl Into<String>);
        option observer(observer: Arc<dyn Observer>);
        option clock(clock: Clock);
        option detached();
    }

    /// As [`Builder::connect`](crate::Builder::connect).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn connect(self, url: &str) -> Result<Leasehold> {
        wait(self.0.connect(url)).map(Leasehold::from)
    }

    /// As [`Builder::open`](crate::Builder::open).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn open(self, url: StoreUrl) -> Result<Leasehold> {
        wait(self.0.open(url)).map(Leasehold::from)
    }

    /// As [`Builder::store`](crate::Builder::store).
    pub fn store(self, store: Arc<dyn Store>) -> Leasehold {
        self.0.store(store).into()
    }

    /// As [`Builder::memory`](crate::Builder::memory).
    pub fn memory(self) -> Leasehold {
        self.0.memory().into()
    }
}

impl From<crate::Builder> for Builder {
    fn from(builder: crate::Builder) -> Self {
        Self(builder)
    }
}
