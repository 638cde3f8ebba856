//! What a case works with: two clients of a fresh store, claims to state, and time that passes.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{
    BootTime, Capabilities, Claim, ClaimId, Clock, LockName, Note, Owner, PLACE_LIFE, Share, Store, Turn,
};

use crate::client::Client;
use crate::need::Offer;
use crate::watched::{OpenCalls, Watched};
use crate::{Check, Failure, Fixture, Subject};

/// Into how many steps the time is cut in which something should happen.
const STEPS: u32 = 50;

type Fresh = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Check<Fixture>>>> + Send + Sync>;

/// How a subject is asked for a fresh store, whatever its type, and what that store can really do.
#[derive(Clone)]
pub(crate) struct Factory {
    fresh: Fresh,
    pub(crate) really: Arc<dyn Fn(Capabilities) -> Capabilities + Send + Sync>,
    /// Into how many parts the random operations are cut, of which one runs.
    pub(crate) share: u64,
}

impl Factory {
    /// Forgets the type of a subject, and believes what its store says of itself.
    pub(crate) fn new(subject: impl Subject) -> Self {
        let subject = Arc::new(subject);
        let fresh = move || -> Pin<Box<dyn Future<Output = Check<Fixture>>>> {
            let subject = Arc::clone(&subject);
            Box::pin(async move { subject.fresh().await })
        };
        Self { fresh: Arc::new(fresh), really: Arc::new(|told| told), share: 1 }
    }
}

/// What a case works with.
pub(crate) struct Bench {
    /// A client of the store.
    pub(crate) one: Client,
    /// Another client of the same store; the same one where a subject has only one.
    pub(crate) two: Client,
    /// What the store offers.
    pub(crate) offer: Offer,
    clock: Clock,
    factory: Factory,
    calls: OpenCalls,
    ids: AtomicU64,
    salt: u64,
    _guard: Box<dyn Any + Send + Sync>,
}

impl Bench {
    /// Sets up a fresh store.
    pub(crate) async fn set_up(factory: &Factory, calls: &OpenCalls) -> Check<Self> {
        let fixture =
            (factory.fresh)().await.map_err(|failure| failure.during("setting up a fresh store"))?;
        let Fixture { store, second, clock, one_clock, of_several, guard } = fixture;
        let offer = Offer {
            capabilities: (factory.really)(store.capabilities()),
            ledger: store.ledger().is_some(),
            second: second.is_some(),
            clock: clock.clone(),
            one_clock,
            of_several,
        };
        let watch = |inner| Client(Arc::new(Watched { inner, calls: calls.clone() }) as Arc<dyn Store>);
        let two = watch(second.unwrap_or_else(|| Arc::clone(&store)));
        let one = watch(store);
        let (factory, calls, clock) = (factory.clone(), calls.clone(), clock.unwrap_or_default());
        // Ids must not meet those of another process that tests the same server.
        let salt = fastrand::u64(..);
        Ok(Self { one, two, offer, clock, factory, calls, ids: AtomicU64::new(1), salt, _guard: guard })
    }

    /// Another fresh store of the same kind.
    pub(crate) async fn another(&self) -> Check<Self> {
        Self::set_up(&self.factory, &self.calls).await
    }

    /// How many of `usual` rounds to go, unless told.
    pub(crate) fn rounds(&self, usual: u64) -> u64 {
        crate::seed::rounds(usual.div_ceil(self.factory.share))
    }

    /// The clock that the suite goes by: the store's if it can be moved, else the machine's.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Whether time passes at the suite's will.
    pub(crate) fn movable(&self) -> bool {
        self.offer.clock.is_some()
    }

    /// A ttl that no case without a movable clock outlives.
    pub(crate) fn long(&self) -> Duration {
        self.within(Duration::from_secs(30))
    }

    /// The ttl for cases that wait until a lease runs out. Not too short for a machine that is busy with
    /// something else: real time passes between two steps of a case as well.
    pub(crate) fn short(&self) -> Duration {
        // Of several servers each has but a part of it to answer in.
        let seconds = if self.offer.of_several { 4 } else { 2 };
        if self.movable() { self.long() } else { self.within(Duration::from_secs(seconds)) }
    }

    fn within(&self, ttl: Duration) -> Duration {
        let may = &self.offer.capabilities.ttl;
        ttl.clamp(*may.start(), *may.end())
    }

    /// How long anything may take, in real time, before it counts as hung.
    pub(crate) fn patience(&self) -> Duration {
        if self.movable() { Duration::from_secs(10) } else { 5 * self.short().max(PLACE_LIFE) }
    }

    /// An exclusive claim in strict order, where there is an order, under an id of its own.
    pub(crate) fn claim(&self, name: &LockName) -> Claim {
        let number = self.ids.fetch_add(1, Ordering::Relaxed);
        let id = (u128::from(self.salt) << 64) | u128::from(number);
        Claim {
            name: name.clone(),
            id: ClaimId::from_bytes(id.to_be_bytes()),
            owner: Owner {
                host: "bench".to_owned(),
                user: "suite".to_owned(),
                pid: std::process::id(),
                program: "conformance".to_owned(),
                tag: format!("c{number}"),
            },
            share: Share::EXCLUSIVE,
            reshape: 0,
            turn: Turn::Any,
            ttl: self.long(),
            note: Note::NONE,
            anchored: false,
            aftermath: leasehold_core::Aftermath::NONE,
            succeeds: None,
            tokens: 1,
            seen: None,
            proposed: None,
            not_after: None,
        }
    }

    /// The same, in strict order of arrival.
    pub(crate) fn fifo(&self, name: &LockName) -> Claim {
        Claim { turn: Turn::Fifo, ..self.claim(name) }
    }

    /// The same, now or never.
    pub(crate) fn attempt(&self, name: &LockName) -> Claim {
        Claim { turn: Turn::Now, ..self.claim(name) }
    }

    /// Lets time pass.
    pub(crate) async fn pass(&self, by: Duration) {
        if self.movable() {
            self.clock.advance(by);
        } else {
            tokio::time::sleep(by).await;
        }
    }

    /// Lets time pass, while these claims ask again often enough to keep their places.
    pub(crate) async fn pass_asking(&self, by: Duration, client: &Client, waiting: &[&Claim]) -> Check {
        let end = self.clock.now().after(by);
        loop {
            for claim in waiting {
                client.claim(claim).await?;
            }
            let left = end.since(self.clock.now());
            if left.is_zero() {
                return Ok(());
            }
            self.pass(left.min(PLACE_LIFE / 4)).await;
        }
    }

    /// Until when what should take `expected` may take, on the suite's clock. A clock that is moved stands still
    /// while a store works, so that it has no excuse; in real time a store may be late, but not for ever.
    pub(crate) fn limit(&self, expected: Duration) -> BootTime {
        let (now, step) = (self.clock.now(), expected / STEPS);
        if self.movable() { now.after(expected + 2 * step) } else { now.after(3 * expected) }
    }

    /// Lets one small step of time pass.
    pub(crate) async fn step(&self, expected: Duration) {
        self.pass(expected / STEPS).await;
    }

    /// Tries until it gets there, while time passes in small steps up to the [limit](Self::limit).
    pub(crate) async fn in_time<T, F>(
        &self,
        what: &str,
        expected: Duration,
        mut attempt: impl FnMut() -> F,
    ) -> Check<T>
    where
        F: Future<Output = Check<Option<T>>>,
    {
        let limit = self.limit(expected);
        loop {
            if let Some(found) = attempt().await? {
                return Ok(found);
            }
            if self.clock.now() >= limit {
                return Err(Failure::new(format!("{what} did not happen in time, which is {expected:?}")));
            }
            self.step(expected).await;
        }
    }

    /// Waits in real time for what must happen without any time passing.
    pub(crate) async fn soon<T>(&self, what: &str, happens: impl Future<Output = T>) -> Check<T> {
        let hung = |_| Failure::new(format!("{what} did not happen, though it should at once"));
        tokio::time::timeout(self.patience(), happens).await.map_err(hung)
    }

    /// How long it has been since `earlier` on the suite's clock.
    pub(crate) fn since(&self, earlier: BootTime) -> Duration {
        self.clock.now().since(earlier)
    }
}

/// A name as cases use it.
pub(crate) fn name(text: &str) -> Check<LockName> {
    Ok(LockName::parse(text)?)
}

impl fmt::Debug for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bench").field("store", &self.one).field("clock", &self.clock).finish_non_exhaustive()
    }
}
