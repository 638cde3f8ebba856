//! What the tests of the engine share: a listener, a wait for conditions, and a store that can be told to fail.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::{
    Capabilities, Clock, Event, Expiry, Leasehold, LockName, MemoryStore, Observer, Op, Result, Snapshot,
    Store, StoreError, StoreErrorKind, Unsupported,
};
use leasehold::{Mark, MarkKind, MarkOutcome, Record, RecordId};
use leasehold_core::{
    Claim, ClaimId, Cursor, Doctor, Doubt, Leave, Ledger, Release, Renew, Renewal, Standing, State, Together,
};

pub(crate) const TTL: Duration = Duration::from_millis(600);

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Waits until `done`, for at most 20 ttl.
pub(crate) async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let clock = Clock::system();
    let deadline = clock.now().after(TTL * 20);
    while !done().await {
        assert!(clock.now() < deadline, "not within 20 ttl: {what}");
        tokio::time::sleep(ms(2)).await;
    }
}

/// Nobody holds the name or stands in its line.
pub(crate) async fn is_deserted(client: &Leasehold, name: &str) -> bool {
    let snapshot = client.inspect(name).await.unwrap();
    snapshot.holders.is_empty() && snapshot.waiters.is_empty()
}

/// Polls a future once, and drops it when there has been time to answer it: it is gone before it hears, unless the
/// answer was there within that one poll. Says whether it was.
pub(crate) async fn unheard<T>(future: impl Future<Output = T>) -> bool {
    let mut future = std::pin::pin!(future);
    let first = std::future::poll_fn(|context| std::task::Poll::Ready(future.as_mut().poll(context)));
    let heard = first.await.is_ready();
    tokio::time::sleep(ms(20)).await;
    heard
}

#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<Vec<Event>>);

impl Observer for Log {
    fn on(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Log {
    pub(crate) fn events(&self) -> Vec<Event> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.0.lock().unwrap().iter().filter(|event| wanted(event)).count()
    }
}

/// How a store treats its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Fine,
    /// Not executed, and says so.
    Refuse,
    /// Executed, but the answer is lost.
    Lose,
    /// Claims only: executed, taken back again, and refused.
    Undo,
    /// Never answers.
    Hang,
    /// Claims only: on its way for so many milliseconds before it is executed, and not answered.
    Stray(u64),
}

/// A store in memory whose calls go as they are told to.
#[derive(Debug)]
pub(crate) struct Moody {
    pub(crate) inner: MemoryStore,
    moods: Mutex<Vec<(Op, Mood, u32)>>,
    asked: Mutex<Vec<Op>>,
    apart: Mutex<Apart>,
    strayed: Arc<AtomicUsize>,
    expiry: Expiry,
}

/// Whether a store claims several names in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Apart {
    Together,
    /// Only some names, and not those that it is asked for.
    NotThese,
    Never,
}

impl Moody {
    pub(crate) fn new() -> Self {
        Self::over(MemoryStore::new())
    }

    /// A store whose claims end with a session alone.
    pub(crate) fn of_sessions() -> Self {
        Self { expiry: Expiry::Session, ..Self::new() }
    }

    /// One client's way to a store that others share.
    pub(crate) fn over(inner: MemoryStore) -> Self {
        Self {
            inner,
            moods: Mutex::default(),
            asked: Mutex::default(),
            apart: Mutex::new(Apart::Together),
            strayed: Arc::default(),
            expiry: Expiry::PerClaim,
        }
    }

    /// A store that claims several names as it is told to.
    pub(crate) fn claiming(apart: Apart) -> Self {
        Self { apart: Mutex::new(apart), ..Self::new() }
    }

    /// From now on, for the next `times` calls.
    pub(crate) fn be(&self, op: Op, mood: Mood, times: u32) {
        let mut moods = self.moods.lock().unwrap();
        moods.retain(|(other, ..)| *other != op);
        moods.push((op, mood, times));
    }

    /// How many strays have arrived.
    pub(crate) fn strayed(&self) -> usize {
        self.strayed.load(Ordering::SeqCst)
    }

    fn next_mood(&self, op: Op) -> Option<Mood> {
        let moods = self.moods.lock().unwrap();
        moods.iter().find(|(other, _, times)| *other == op && *times > 0).map(|(_, mood, _)| *mood)
    }

    /// How often it was asked.
    pub(crate) fn asked(&self, op: Op) -> usize {
        self.asked.lock().unwrap().iter().filter(|other| **other == op).count()
    }

    fn mood(&self, op: Op) -> Mood {
        self.asked.lock().unwrap().push(op);
        let mut moods = self.moods.lock().unwrap();
        match moods.iter_mut().find(|(other, _, times)| *other == op && *times > 0) {
            Some((_, mood, times)) => {
                *times -= 1;
                *mood
            }
            None => Mood::Fine,
        }
    }

    async fn go<T>(&self, op: Op, call: impl Future<Output = Result<T>>) -> Result<T> {
        let error = || StoreError::new(StoreErrorKind::Unavailable, op, self).saying("it was told to fail");
        match self.mood(op) {
            Mood::Fine => call.await,
            Mood::Refuse | Mood::Undo => Err(error().into()),
            Mood::Lose => {
                call.await?;
                Err(error().unknown().into())
            }
            Mood::Hang | Mood::Stray(_) => std::future::pending().await,
        }
    }
}

impl fmt::Display for Moody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("moody:")
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for Moody {
    fn capabilities(&self) -> Capabilities {
        let together = *self.apart.lock().unwrap() != Apart::Never;
        Capabilities { together, expiry: self.expiry, ..self.inner.capabilities() }
    }

    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        if let Some(Mood::Stray(millis)) = self.next_mood(Op::Claim) {
            let (inner, claim, strayed) = (self.inner.clone(), claim.clone(), self.strayed.clone());
            tokio::spawn(async move {
                tokio::time::sleep(ms(millis)).await;
                drop(inner.claim(&claim).await);
                strayed.fetch_add(1, Ordering::SeqCst);
            });
        }
        if self.next_mood(Op::Claim) == Some(Mood::Undo) {
            let standing = self.inner.claim(claim).await?;
            if standing.state == State::Spent {
                return Ok(standing);
            }
            self.inner.release(&claim.name, claim.id, Leave::Open).await?;
        }
        self.go(Op::Claim, self.inner.claim(claim)).await
    }

    async fn claim_all(&self, claims: &[Claim]) -> Result<Together> {
        if *self.apart.lock().unwrap() != Apart::Together {
            return Err(Unsupported::new("these names in one step").into());
        }
        self.go(Op::Claim, self.inner.claim_all(claims)).await
    }

    async fn changed(&self, name: &LockName, since: &Cursor) -> Result<()> {
        self.go(Op::Wait, self.inner.changed(name, since)).await
    }

    async fn renew(&self, batch: &[Renew]) -> Vec<Result<Renewal>> {
        match self.go(Op::Renew, async { Ok(self.inner.renew(batch).await) }).await {
            Ok(answers) => answers,
            Err(error) => batch.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn release(&self, name: &LockName, id: ClaimId, leave: Leave) -> Result<Release> {
        self.go(Op::Release, self.inner.release(name, id, leave)).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot> {
        self.go(Op::Inspect, self.inner.inspect(name)).await
    }

    async fn list(&self, prefix: &str, after: Option<&LockName>) -> Result<Vec<LockName>> {
        self.go(Op::List, self.inner.list(prefix, after)).await
    }

    async fn anchor(&self) -> Result<Option<OwnedFd>> {
        self.inner.anchor().await
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        Some(self)
    }

    async fn doubt(&self) -> Doubt {
        self.inner.doubt().await
    }

    fn doctor(&self) -> Option<&dyn Doctor> {
        self.inner.doctor()
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

#[async_trait]
impl Ledger for Moody {
    async fn mark(&self, mark: &Mark) -> Result<MarkOutcome> {
        self.go(Op::Ledger, self.inner.mark(mark)).await
    }

    async fn marks(&self, kind: MarkKind, name: &LockName) -> Result<Vec<Mark>> {
        self.go(Op::Ledger, self.inner.marks(kind, name)).await
    }

    async fn unmark(&self, kind: MarkKind, name: &LockName, key: &str) -> Result<bool> {
        self.go(Op::Ledger, self.inner.unmark(kind, name, key)).await
    }

    async fn record(&self, record: &Record) -> Result<RecordId> {
        self.go(Op::Ledger, self.inner.record(record)).await
    }

    async fn records(
        &self,
        name: Option<&LockName>,
        after: RecordId,
        most: usize,
    ) -> Result<Vec<(RecordId, Record)>> {
        self.go(Op::Ledger, self.inner.records(name, after, most)).await
    }
}

/// Polls a future so often, a millisecond apart, and drops it where it stands.
pub(crate) async fn polled(polls: usize, future: impl Future) {
    let mut future = std::pin::pin!(future);
    for _ in 0..polls {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        if future.as_mut().poll(&mut context).is_ready() {
            return;
        }
        tokio::time::sleep(ms(1)).await;
    }
}

/// Waits until nobody holds a name, nor waits for it.
pub(crate) async fn deserted(client: &leasehold::Leasehold, name: &str) {
    until("nothing is left", async || {
        let snapshot = client.inspect(name).await.unwrap();
        snapshot.holders.is_empty() && snapshot.waiters.is_empty()
    })
    .await;
}
