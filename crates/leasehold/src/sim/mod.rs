//! A store, some hosts and a clock in the hands of a test: so that a program's reaction to the loss of a lease is
//! tested in milliseconds.
//!
//! ```
//! # leasehold::doc_test(async {
//! use std::time::Duration;
//! use leasehold::sim::Sim;
//! use leasehold::{Error, Lease, Leasehold};
//!
//! /// What is to be tested: it works under a lock, and stops if the lease is lost.
//! async fn worker(client: Leasehold) -> Result<(), Error> {
//!     client.lock("reindex").run(async |_| std::future::pending::<()>().await).await
//! }
//!
//! let sim = Sim::new();
//! sim.cut_off(&sim.client()); // from now on nothing that it asks arrives
//! let stopped = sim.until(worker(sim.client())).await;
//! assert!(matches!(stopped, Err(Error::Store(_))), "it never got the lock");
//!
//! sim.mend(&sim.client()).await;
//! let worker = tokio::spawn(worker(sim.client()));
//! sim.advance(Duration::from_secs(3600)).await; // an hour passes: the lease is renewed all the time
//! assert!(!worker.is_finished());
//! sim.cut_off(&sim.client());
//! sim.advance(Duration::from_secs(31)).await; // longer than the ttl
//! assert!(matches!(worker.await, Ok(Err(Error::Lost(_)))));
//! assert!(sim.host("b").lock("reindex").try_acquire().await?.is_some(), "and another host gets in");
//! # Ok(()) });
//! ```
//!
//! # Time
//!
//! The clock stands still unless the test moves it. [`Sim::advance`] goes from one thing that is due to the next, and
//! waits each time until every client has done what it does then; so everything that is due within that time has
//! happened when it returns, in its order, however short the real time is. [`Sim::until`] lets as much time pass as a
//! future needs.
//!
//! What the test's own tasks make of it, they do when their executor polls them: await them. Other clocks, such as
//! that of `tokio::time::sleep`, are not moved; [`Sim::sleep`] waits by this one.
//!
//! # What it is not
//!
//! A host is a client with a clock and a wire of its own, not a process: memory is shared, and nothing is killed. Use
//! [`Wire`] around a real store to see what that store makes of it.
//!
//! It is in every build: like the store in memory it needs nothing that a client does not need anyway.

mod rest;
mod time;
mod wire;

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Clock, MemoryStore, Owner, Store};
use tokio::sync::Mutex;

use crate::builder::Builder;
use crate::client::Leasehold;
use crate::lease::Lease;

pub(crate) use rest::Rests;
pub use wire::{Mishap, Wire};

/// The name of the host of [`Sim::client`].
const FIRST: &str = "a";
/// How long it takes a store to fail over: its clock is beyond every token that it has given when it comes back.
const FAIL_OVER: Duration = Duration::from_millis(1);

/// A store in memory, any number of hosts, and a clock that stands still unless it is [moved](Self::advance).
/// Clones share it all.
///
/// See the [module](self) for an example.
#[derive(Clone)]
pub struct Sim(Arc<World>);

struct World {
    store: MemoryStore,
    /// The store's clock, which the hosts' clocks follow unless they are frozen.
    clock: Clock,
    hosts: StdMutex<Vec<Host>>,
    delay: StdMutex<Duration>,
    /// Rises with whatever happens.
    activity: Arc<AtomicU64>,
    /// Whoever moves time moves it alone.
    moving: Mutex<()>,
}

#[derive(Clone)]
struct Host {
    name: String,
    client: Leasehold,
    clock: Clock,
    wire: Arc<Wire>,
    rests: Rests,
    frozen: bool,
}

/// Something that tells which host is meant: a client on it, or a lease that it holds.
pub trait OnHost {
    /// The public id of the client: `host/pid/tag`.
    fn owner_id(&self) -> String;
}

impl OnHost for Leasehold {
    fn owner_id(&self) -> String {
        self.owner().id()
    }
}

impl OnHost for Lease {
    fn owner_id(&self) -> String {
        self.owner_id().to_owned()
    }
}

impl Default for Sim {
    fn default() -> Self {
        Self::new()
    }
}

impl Sim {
    /// An empty store, no host yet, and a clock that stands still.
    #[must_use]
    pub fn new() -> Self {
        let clock = Clock::frozen();
        Self(Arc::new(World {
            store: MemoryStore::with_clock(clock.clone()),
            clock,
            hosts: StdMutex::default(),
            delay: StdMutex::default(),
            activity: Arc::default(),
            moving: Mutex::default(),
        }))
    }

    /// The client of the first host, whose name is `a`.
    #[must_use]
    pub fn client(&self) -> Leasehold {
        self.host(FIRST)
    }

    /// The client of the host of this name, which is there from the first time that it is asked for. Hosts are to
    /// each other what processes on different machines are.
    #[must_use]
    pub fn host(&self, name: &str) -> Leasehold {
        let known = self.hosts().iter().find(|host| host.name == name).map(|host| host.client.clone());
        known.unwrap_or_else(|| self.host_with(name, |builder| builder))
    }

    /// A new host whose client has other than the defaults: observers, a namespace, a timeout. Its store, clock and
    /// owner are the simulation's.
    ///
    /// # Panics
    ///
    /// If there is a host of this name already.
    pub fn host_with(&self, name: &str, options: impl FnOnce(Builder) -> Builder) -> Leasehold {
        let mut hosts = self.hosts();
        assert!(
            hosts.iter().all(|host| host.name != name),
            "there is a host {name} already: ask for it before"
        );
        let clock = Clock::frozen();
        clock.advance(Duration::from_nanos(u64::try_from(self.0.clock.ahead_nanos()).unwrap_or(0)));
        // By the host's clock, which moves after the store's: what comes late must not come before the host's own time
        // has passed.
        let wire = Wire::new(Arc::new(self.0.store.clone()), clock.clone(), self.0.activity.clone());
        wire.delay(*self.0.delay.lock().unwrap_or_else(PoisonError::into_inner));
        let (wire, rests) = (Arc::new(wire), Rests::default());
        let number = u32::try_from(hosts.len()).unwrap_or(0);
        let owner = Owner {
            host: name.to_owned(),
            user: "sim".to_owned(),
            pid: 1000 + number,
            program: "sim".to_owned(),
            tag: format!("{number:04}"),
        };
        let builder = options(Leasehold::builder()).owner(owner).clock(clock.clone()).rests(rests.clone());
        let builder = builder.observer(Arc::new(rest::Pulse(self.0.activity.clone())));
        let client = builder.store(wire.clone());
        hosts.push(Host { name: name.to_owned(), client: client.clone(), clock, wire, rests, frozen: false });
        client
    }

    /// The store's clock, which only the simulation should move.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Nothing gets through between this host and the store any more: requests and answers wait.
    ///
    /// # Panics
    ///
    /// If it is no host of this simulation; so do the others that take one.
    pub fn cut_off(&self, host: &impl OnHost) {
        self.find(host).wire.cut();
    }

    /// This host renews nothing any more, though it runs and asks everything else: as a program does whose renewals
    /// are starved.
    pub fn pause_renewals(&self, host: &impl OnHost) {
        self.find(host).wire.pause_renewals();
    }

    /// This host stands still: its clock stops, and it asks nothing. It goes on believing in its leases, as a frozen
    /// process does, until it is [mended](Self::mend) and sees the time that has passed.
    pub fn freeze(&self, host: &impl OnHost) {
        self.find(host).wire.freeze();
        let id = host.owner_id();
        for host in self.hosts().iter_mut().filter(|host| host.client.owner().id() == id) {
            host.frozen = true;
        }
    }

    /// The next `times` requests of this host are done, and their answers lost.
    pub fn lose_replies(&self, host: &impl OnHost, times: u32) {
        self.find(host).wire.lose_replies(times);
    }

    /// The wire between this host and the store, for whatever else is to go wrong.
    #[must_use]
    pub fn wire(&self, host: &impl OnHost) -> Arc<Wire> {
        self.find(host).wire
    }

    /// Every answer takes so long from now on, for every host.
    pub fn delay(&self, each: Duration) {
        *self.0.delay.lock().unwrap_or_else(PoisonError::into_inner) = each;
        for host in self.hosts().iter() {
            host.wire.delay(each);
        }
    }

    /// All is well again for this host: what waited goes on, and a frozen one sees at once how much time has passed.
    ///
    /// # Cancel safety
    ///
    /// It is mended all the same.
    pub async fn mend(&self, host: &impl OnHost) {
        let Host { wire, clock, .. } = self.find(host);
        let id = host.owner_id();
        for host in self.hosts().iter_mut().filter(|host| host.client.owner().id() == id) {
            host.frozen = false;
        }
        clock.advance(self.0.clock.now().since(clock.now()));
        wire.mend();
        wire.delay(*self.0.delay.lock().unwrap_or_else(PoisonError::into_inner));
        self.settle().await;
    }

    /// Lets this lease run out, for its holder and in the store, by letting the time pass without a renewal of it.
    ///
    /// # Cancel safety
    ///
    /// Some of the time has passed, and the lease may go on without renewals.
    pub async fn expire(&self, lease: &Lease) {
        let wire = self.find(lease).wire;
        wire.unrenewed(lease.name(), true);
        while let Ok(snapshot) = self.0.store.inspect(lease.name()).await
            && let Some(holder) = snapshot.holders.iter().find(|held| held.token == Some(lease.token()))
        {
            self.advance(holder.left).await;
        }
        wire.unrenewed(lease.name(), false);
    }

    /// Somebody ends this lease behind its holder's back, who hears of it with the next renewal.
    ///
    /// # Cancel safety
    ///
    /// It may have been ended.
    pub async fn break_lease(&self, lease: &Lease) {
        let wire = self.find(lease).wire;
        // The store in memory does not fail.
        drop(wire.end(lease.name(), lease.token()).await);
        self.settle().await;
    }

    /// The store loses everything, and comes back empty a millisecond later: holders hear of it with the next
    /// renewal, and until then others may get in. Tokens rise all the same, by the clock.
    ///
    /// # Cancel safety
    ///
    /// It may have failed over.
    pub async fn fail_over(&self) {
        self.fail_over_losing(Duration::MAX).await;
    }

    /// As [`fail_over`](Self::fail_over), to a copy that lacks what was granted, queued or marked in the last
    /// `lost`. Releases are not taken back.
    ///
    /// # Cancel safety
    ///
    /// As [`fail_over`](Self::fail_over).
    pub async fn fail_over_losing(&self, lost: Duration) {
        self.advance(FAIL_OVER).await;
        self.0.store.forget(lost.saturating_add(FAIL_OVER));
        self.settle().await;
    }

    fn hosts(&self) -> MutexGuard<'_, Vec<Host>> {
        self.0.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, host: &impl OnHost) -> Host {
        let id = host.owner_id();
        let found = self.hosts().iter().find(|host| host.client.owner().id() == id).cloned();
        found.unwrap_or_else(|| panic!("{id} is no host of this simulation: make it with Sim::host"))
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self.hosts().iter().map(|host| host.name.clone()).collect();
        f.debug_struct("Sim").field("hosts", &hosts).finish_non_exhaustive()
    }
}
