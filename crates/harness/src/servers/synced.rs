//! A store whose servers go by the clock of a test: they are told what time it is before it is asked anything.

use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{
    Capabilities, Claim, ClaimId, Clock, Cursor, Doubt, Leave, Ledger, LockName, Mark, MarkKind, MarkOutcome,
    Record, RecordId, Release, Renew, Renewal, Result, Snapshot, Standing, Store, Together, Unsupported,
};

use super::clock::ToldClock;

/// The store, the clocks of its servers, and the clock that this one is set by.
#[derive(Clone)]
pub struct Synced {
    store: Arc<dyn Store>,
    told: Arc<Vec<ToldClock>>,
    clock: Clock,
    apart: bool,
    under_way: UnderWay,
    _kept: Arc<dyn Any + Send + Sync>,
}

/// How many questions are under way to the servers of a test.
#[derive(Debug, Clone, Default)]
pub struct UnderWay(Arc<AtomicUsize>);

/// One of them.
struct Question(Arc<AtomicUsize>);

/// So often others get their turn before it counts as quiet: what follows from an answer is asked by tasks.
const TURNS: usize = 16;
const PAUSE: Duration = Duration::from_micros(200);

impl UnderWay {
    fn question(&self) -> Question {
        self.0.fetch_add(1, Ordering::SeqCst);
        Question(self.0.clone())
    }

    /// Returns once none is, and none follows from the last.
    pub async fn none(&self) {
        let mut turns = 0;
        while turns < TURNS {
            tokio::task::yield_now().await;
            turns += 1;
            if self.0.load(Ordering::SeqCst) > 0 {
                turns = 0;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Synced {
    /// `store` is asked by this clock, to which those of its servers are set; `kept` lives as long as this does.
    pub fn new(
        store: Arc<dyn Store>,
        told: Vec<ToldClock>,
        clock: &Clock,
        kept: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self {
            store,
            told: Arc::new(told),
            clock: clock.clone(),
            apart: false,
            under_way: UnderWay::default(),
            _kept: kept,
        }
    }

    /// Counts what is under way there among these.
    #[must_use]
    pub fn counted(self, under_way: &UnderWay) -> Self {
        Self { under_way: under_way.clone(), ..self }
    }

    /// The suite chooses names as it likes, and this store can do several in one step only for some.
    #[must_use]
    pub fn apart(self) -> Self {
        Self { apart: true, ..self }
    }

    fn sync(&self) {
        // A counter of microseconds: what the model keeps of nanoseconds the server cannot.
        let micros = self.clock.wall_micros();
        #[expect(clippy::unwrap_used, reason = "a test that cannot set its clock cannot go on")]
        self.told.iter().for_each(|told| told.set(micros).unwrap());
    }

    fn ask(&self) -> Question {
        self.sync();
        self.under_way.question()
    }

    fn own_ledger(&self) -> Result<&dyn Ledger> {
        self.store.ledger().ok_or_else(|| Unsupported::new("marks and records").into())
    }
}

impl std::fmt::Display for Synced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.store.fmt(f)
    }
}

impl std::fmt::Debug for Synced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Synced").field("store", &self.store).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for Synced {
    fn capabilities(&self) -> Capabilities {
        let all = self.store.capabilities();
        Capabilities { together: all.together && !self.apart, ..all }
    }

    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        let _asked = self.ask();
        self.store.claim(claim).await
    }

    async fn claim_all(&self, claims: &[Claim]) -> Result<Together> {
        let _asked = self.ask();
        self.store.claim_all(claims).await
    }

    async fn changed(&self, name: &LockName, since: &Cursor) -> Result<()> {
        let mut moves = self.clock.moves();
        let changed = self.store.changed(name, since);
        tokio::pin!(changed);
        loop {
            self.sync();
            tokio::select! {
                biased;
                _ = moves.changed() => {}
                done = &mut changed => return done,
            }
        }
    }

    async fn renew(&self, batch: &[Renew]) -> Vec<Result<Renewal>> {
        let _asked = self.ask();
        self.store.renew(batch).await
    }

    async fn release(&self, name: &LockName, id: ClaimId, leave: Leave) -> Result<Release> {
        let _asked = self.ask();
        self.store.release(name, id, leave).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot> {
        let _asked = self.ask();
        self.store.inspect(name).await
    }

    async fn list(&self, prefix: &str, after: Option<&LockName>) -> Result<Vec<LockName>> {
        let _asked = self.ask();
        self.store.list(prefix, after).await
    }

    async fn anchor(&self) -> Result<Option<OwnedFd>> {
        self.store.anchor().await
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        self.store.ledger().map(|_| self as &dyn Ledger)
    }

    async fn doubt(&self) -> Doubt {
        self.store.doubt().await
    }

    async fn close(&self) -> Result<()> {
        self.store.close().await
    }
}

#[async_trait]
impl Ledger for Synced {
    async fn mark(&self, mark: &Mark) -> Result<MarkOutcome> {
        let _asked = self.ask();
        self.own_ledger()?.mark(mark).await
    }

    async fn marks(&self, kind: MarkKind, name: &LockName) -> Result<Vec<Mark>> {
        let _asked = self.ask();
        self.own_ledger()?.marks(kind, name).await
    }

    async fn unmark(&self, kind: MarkKind, name: &LockName, key: &str) -> Result<bool> {
        let _asked = self.ask();
        self.own_ledger()?.unmark(kind, name, key).await
    }

    async fn record(&self, record: &Record) -> Result<RecordId> {
        let _asked = self.ask();
        self.own_ledger()?.record(record).await
    }

    async fn records(
        &self,
        name: Option<&LockName>,
        after: RecordId,
        most: usize,
    ) -> Result<Vec<(RecordId, Record)>> {
        let _asked = self.ask();
        self.own_ledger()?.records(name, after, most).await
    }
}

/// A store made of several such ones, to which everything happens one after the other: each answer is given once all
/// that follows from it has been done on every server. What it costs nobody to wait for is waited for, so that random
/// operations can be compared with a model that knows no time between two servers.
#[derive(Debug)]
pub struct Settled {
    store: Arc<dyn Store>,
    under_way: UnderWay,
}

impl Settled {
    /// `under_way` counts the questions to each of the servers.
    pub fn new(store: impl Store, under_way: &UnderWay) -> Self {
        Self { store: Arc::new(store), under_way: under_way.clone() }
    }
}

impl std::fmt::Display for Settled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait]
impl Store for Settled {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        let answer = self.store.claim(claim).await;
        self.under_way.none().await;
        answer
    }

    async fn claim_all(&self, claims: &[Claim]) -> Result<Together> {
        let answer = self.store.claim_all(claims).await;
        self.under_way.none().await;
        answer
    }

    async fn changed(&self, name: &LockName, since: &Cursor) -> Result<()> {
        self.store.changed(name, since).await
    }

    async fn renew(&self, batch: &[Renew]) -> Vec<Result<Renewal>> {
        let answer = self.store.renew(batch).await;
        self.under_way.none().await;
        answer
    }

    async fn release(&self, name: &LockName, id: ClaimId, leave: Leave) -> Result<Release> {
        let answer = self.store.release(name, id, leave).await;
        self.under_way.none().await;
        answer
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot> {
        let answer = self.store.inspect(name).await;
        self.under_way.none().await;
        answer
    }

    async fn list(&self, prefix: &str, after: Option<&LockName>) -> Result<Vec<LockName>> {
        let answer = self.store.list(prefix, after).await;
        self.under_way.none().await;
        answer
    }

    async fn anchor(&self) -> Result<Option<OwnedFd>> {
        self.store.anchor().await
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        self.store.ledger()
    }

    async fn doubt(&self) -> Doubt {
        self.store.doubt().await
    }

    async fn close(&self) -> Result<()> {
        self.store.close().await
    }
}
