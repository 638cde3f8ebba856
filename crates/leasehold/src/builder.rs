//! How a client is made: all that may be other than the default.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Clock, MemoryStore, Owner, Result, Store, StoreUrl};

use crate::client::{Client, Leasehold};
use crate::config::DEFAULT_TIMEOUT;
use crate::engine::{self, Settings};
use crate::event::Observer;
use crate::open::{self, Opened};
use crate::sim::Rests;
use crate::{janitor, owner};

/// Opens a client with other than the defaults.
#[derive(Debug, Default)]
#[must_use = "a builder opens nothing by itself"]
pub struct Builder {
    namespace: String,
    timeout: Option<Duration>,
    owner: Option<Owner>,
    program: Option<String>,
    observers: Vec<Arc<dyn Observer>>,
    clock: Option<Clock>,
    detached: bool,
    rests: Option<Rests>,
}

impl Builder {
    /// Puts this and `:` before every name. Defaults to none.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// The longest silence to accept from the store. Defaults to 5 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Who this client is, as others read it. Defaults to this process.
    pub fn owner(mut self, owner: Owner) -> Self {
        self.owner = Some(owner);
        self
    }

    /// What runs, as others read it. Defaults to the name of this program.
    pub fn program(mut self, program: impl Into<String>) -> Self {
        self.program = Some(program.into());
        self
    }

    /// Tells this listener too of what happens. Defaults to `tracing` alone.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }

    /// The clock that decides whether leases hold. Defaults to the machine's boot clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Takes leases that are not tied to the life of this process, where a store ties them to it: for a program that
    /// takes a lease for somebody else and ends. They run to their ttl unless somebody goes on with them.
    pub fn detached(mut self) -> Self {
        self.detached = true;
        self
    }

    /// Tells when the client's thread has nothing more to do.
    pub(crate) fn rests(mut self, rests: Rests) -> Self {
        self.rests = Some(rests);
        self
    }

    /// Opens a store by its URL.
    ///
    /// # Errors
    ///
    /// As [`Leasehold::connect`].
    ///
    /// # Cancel safety
    ///
    /// The store is closed again.
    pub async fn connect(self, url: &str) -> Result<Leasehold> {
        let url: StoreUrl = url.parse().map_err(leasehold_core::Error::from)?;
        self.open(url).await
    }

    /// Opens a store by its parsed URL.
    ///
    /// # Errors
    ///
    /// As [`Leasehold::connect`].
    ///
    /// # Cancel safety
    ///
    /// The store is closed again.
    pub async fn open(self, url: StoreUrl) -> Result<Leasehold> {
        let detached = self.detached;
        let (namespace, settings) = self.settings();
        let (note, noted) = std::sync::mpsc::channel();
        let clock = settings.clock.clone();
        let opener = move || {
            let Opened { store, created } = open::open(&url, clock, detached)?;
            // Read once the store is there.
            drop(note.send(created));
            Ok(store)
        };
        let (handle, opening) = engine::start(settings.clone(), Box::new(opener))?;
        let store = opening.await.map_err(|_| janitor::ended())??;
        let opened = Opened { store, created: noted.try_recv().ok().flatten() };
        Ok(Leasehold { client: Client::new(opened, settings, Some(handle)), namespace, config: None })
    }

    /// Uses this store, such as a wrapper or one of your own.
    pub fn store(self, store: Arc<dyn Store>) -> Leasehold {
        let (namespace, settings) = self.settings();
        let client = Client::new(Opened { store, created: None }, settings, None);
        Leasehold { client, namespace, config: None }
    }

    /// Uses a store of its own in the memory of this process.
    pub fn memory(self) -> Leasehold {
        let clock = self.clock.clone().unwrap_or_default();
        self.store(Arc::new(MemoryStore::with_clock(clock)))
    }

    fn settings(self) -> (Arc<str>, Settings) {
        let Self { namespace, timeout, owner, program, observers, clock, detached: _, rests } = self;
        let mut owner = owner.unwrap_or_else(owner::this_process);
        if let Some(program) = program {
            owner.program = program;
        }
        let (clock, timeout) = (clock.unwrap_or_default(), timeout.unwrap_or(DEFAULT_TIMEOUT));
        (namespace.into(), Settings { clock, owner, timeout, observers, rests })
    }
}
