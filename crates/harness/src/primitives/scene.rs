//! Where a run happens: the hosts, the clock that they share, and what may befall them.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use leasehold::{Clock, Leasehold, Ledger, Store};
use leasehold_conformance::{Chaos, Check, Failure, Odds};
use tokio::sync::watch;

use super::history::Lingers;

/// How many hosts fight, besides the one that looks afterwards.
pub(super) const HOSTS: usize = 3;
/// How long a client accepts silence.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The ttl of leases in real time.
const REAL_TTL: Duration = Duration::from_millis(400);
/// For how many ttl a run may go on: nobody waits longer than all others may hold one after the other.
pub(super) const MOST: u32 = 200;
/// By how much a clock that stands still is moved at once, at the most.
const TICK: Duration = Duration::from_millis(60);

/// A store under test: gives each run a fresh scene.
pub trait Site: Sync {
    /// For people.
    fn name(&self) -> &str;
    /// A fresh one.
    fn open(&self, seed: u64) -> impl Future<Output = Check<Scene>>;
    /// How many runs go on at once.
    fn at_once(&self) -> usize;
}

/// One host: a client of its own, with its own way to the store.
pub struct Host {
    pub(super) number: usize,
    pub(super) client: Leasehold,
    /// What may befall its way to the store, where that is possible.
    pub(super) chaos: Option<Arc<Chaos>>,
    pub(super) dead: watch::Sender<bool>,
}

/// All that a run needs.
pub struct Scene {
    pub(super) hosts: Vec<Host>,
    pub(super) clock: Clock,
    pub(super) ttl: Duration,
    pub(super) lingers: Option<Lingers>,
    /// How far the moved clock has gone.
    pub(super) moved: Cell<Duration>,
    /// Dropped last.
    _guard: Box<dyn Any>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("number", &self.number).finish_non_exhaustive()
    }
}

impl fmt::Debug for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scene").field("hosts", &self.hosts).field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

/// A store within this process whose time is moved and whose requests and replies get lost.
pub struct WithFaults<F> {
    name: &'static str,
    fresh: F,
}

impl<F: Fn(Clock) -> Arc<dyn Store> + Sync> WithFaults<F> {
    /// `fresh` makes an empty one on this clock.
    pub const fn new(name: &'static str, fresh: F) -> Self {
        Self { name, fresh }
    }
}

impl<F> fmt::Debug for WithFaults<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithFaults").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<F: Fn(Clock) -> Arc<dyn Store> + Sync> Site for WithFaults<F> {
    fn name(&self) -> &str {
        self.name
    }

    fn at_once(&self) -> usize {
        4
    }

    async fn open(&self, seed: u64) -> Check<Scene> {
        let clock = Clock::frozen();
        let store = (self.fresh)(clock.clone());
        let ttl = Duration::from_secs(1);
        let late = ttl.mul_f64(1.2);
        let hosts = (0..=HOSTS).map(|number| faulty_host(number, Arc::clone(&store), &clock, late, seed));
        // Each engine has done what it was told before the clock moves on, so it is late by a tick or two; a last
        // renewal may be late by itself.
        let lease = ttl + late + TICK * 4;
        let lingers = Some(Lingers { lease, claim: lease.max(leasehold_core::PLACE_LIFE + TICK * 4) });
        let hosts = hosts.collect();
        Ok(Scene { hosts, clock, ttl, lingers, moved: Cell::default(), _guard: Box::new(()) })
    }
}

fn odds(late: Duration) -> Odds {
    Odds { loses_reply: 8, loses_request: 4, refused: 2, late: (6, late) }
}

/// A store that is opened by its URL, in real time.
pub struct ByUrl<F> {
    name: &'static str,
    url: F,
    at_once: usize,
    ttl: Duration,
}

impl<F, G> ByUrl<F>
where
    F: Fn(u64) -> Check<(String, G)> + Sync,
    G: 'static,
{
    /// `url` gives the URL of an empty store, and what must live as long as it.
    pub const fn new(name: &'static str, url: F, at_once: usize) -> Self {
        Self { name, url, at_once, ttl: REAL_TTL }
    }

    /// Leases that last so long.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }
}

impl<F> fmt::Debug for ByUrl<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByUrl").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<F, G> Site for ByUrl<F>
where
    F: Fn(u64) -> Check<(String, G)> + Sync,
    G: 'static,
{
    fn name(&self) -> &str {
        self.name
    }

    fn at_once(&self) -> usize {
        self.at_once
    }

    async fn open(&self, seed: u64) -> Check<Scene> {
        let (url, guard) = (self.url)(seed)?;
        let mut hosts = Vec::new();
        for number in 0..=HOSTS {
            let client = Leasehold::builder().connect(&url).await?;
            hosts.push(Host { number, client, chaos: None, dead: watch::Sender::new(false) });
        }
        let clock = hosts[0].client.clock().clone();
        let ttl = self.ttl.max(*hosts[0].client.capabilities().ttl.start());
        Ok(Scene { hosts, clock, ttl, lingers: None, moved: Cell::default(), _guard: Box::new(guard) })
    }
}

/// A store outside of this process, in real time, whose requests and replies get lost on their way.
pub struct FarWithFaults<F> {
    name: &'static str,
    open: F,
    at_once: usize,
    ttl: Duration,
}

impl<F> FarWithFaults<F>
where
    F: Fn(u64, Clock) -> Check<Arc<dyn Store>> + Sync,
{
    /// `open` opens the store of a run once more: each host has its own.
    pub const fn new(name: &'static str, open: F, at_once: usize) -> Self {
        Self { name, open, at_once, ttl: REAL_TTL }
    }

    /// Leases that last so long.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }
}

impl<F> fmt::Debug for FarWithFaults<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FarWithFaults").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<F> Site for FarWithFaults<F>
where
    F: Fn(u64, Clock) -> Check<Arc<dyn Store>> + Sync,
{
    fn name(&self) -> &str {
        self.name
    }

    fn at_once(&self) -> usize {
        self.at_once
    }

    async fn open(&self, seed: u64) -> Check<Scene> {
        let (clock, ttl) = (Clock::system(), self.ttl);
        let mut hosts = Vec::new();
        for number in 0..=HOSTS {
            let store = (self.open)(seed, clock.clone())?;
            hosts.push(faulty_host(number, store, &clock, ttl.mul_f64(1.2), seed));
        }
        Ok(Scene { hosts, clock, ttl, lingers: None, moved: Cell::default(), _guard: Box::new(()) })
    }
}

/// A host to whose requests and replies something befalls. The last one only looks, when all is over.
fn faulty_host(number: usize, store: Arc<dyn Store>, clock: &Clock, late: Duration, seed: u64) -> Host {
    let stir = seed.wrapping_mul(31).wrapping_add(number as u64);
    let odds = if number < HOSTS { odds(late) } else { Odds::default() };
    let chaos = Arc::new(Chaos::new(store, clock.clone(), odds, stir));
    let builder = Leasehold::builder().clock(clock.clone()).timeout(TIMEOUT);
    let client = builder.store(Arc::clone(&chaos) as Arc<dyn Store>);
    Host { number, client, chaos: Some(chaos), dead: watch::Sender::new(false) }
}

fn nothing(_: &dyn Ledger) -> BoxFuture<'_, leasehold::Result<()>> {
    async { Ok(()) }.boxed()
}

impl Scene {
    /// Moves a clock that stands still, for ever: on once every engine has done what it was told.
    pub(super) async fn pass_time(&self, dice: &mut fastrand::Rng) {
        if self.clock.runs() {
            return std::future::pending().await;
        }
        loop {
            self.settle().await;
            // Clients that are closed answer at once.
            tokio::task::yield_now().await;
            let tick = TICK.mul_f64(dice.f64());
            self.moved.set(self.moved.get() + tick);
            self.clock.advance(tick);
        }
    }

    async fn settle(&self) {
        // The engine takes its orders one after the other: an answer to the last says that it has come so far.
        let ask = |host: &Host| {
            let client = host.client.clone();
            async move {
                // A store without a ledger, or a client that is closed, answers too.
                drop(client.with_ledger(nothing).await);
            }
        };
        join_all(self.hosts.iter().map(ask)).await;
    }

    /// Lets everybody through, and closes all clients.
    pub(super) async fn close(&self) -> Check {
        for host in &self.hosts {
            if let Some(chaos) = &host.chaos {
                chaos.cut_off(false);
                chaos.with_odds(Odds::default());
            }
        }
        let mut dice = fastrand::Rng::with_seed(1);
        let close = join_all(self.hosts.iter().map(|host| host.client.clone().close()));
        tokio::select! {
            closed = close => Ok(closed.into_iter().collect::<leasehold::Result<()>>()?),
            () = self.pass_time(&mut dice) => Ok(()),
            () = self.clock.sleep_until(self.clock.now().after(self.ttl * MOST)) => {
                Err(Failure::new("a client that has nothing left to do does not close"))
            }
        }
    }

    /// How many mishaps befell all hosts.
    pub(super) fn mishaps(&self) -> u64 {
        self.hosts.iter().filter_map(|host| host.chaos.as_ref()).map(|chaos| chaos.befell()).sum()
    }
}
