//! What is between a client and its store: a wrapper whose calls go as a test tells them to.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{
    Capabilities, Claim, ClaimId, Clock, Cursor, Doctor, Doubt, Leave, Ledger, LockName, Op, Release, Renew,
    Renewal, Result, Snapshot, Standing, Store, StoreError, StoreErrorKind, Together, Token,
};
use tokio::sync::watch;

/// What befalls a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mishap {
    /// Not done, and the store says so.
    Refused,
    /// Done, but the answer is lost: the outcome is unknown.
    ReplyLost,
    /// Done, but the answer takes so long.
    Late(Duration),
    /// Not done, and never answered.
    Silent,
}

/// A store behind a wire that a test can cut: every call goes through until it is told otherwise.
///
/// [`Sim`](super::Sim) has one for each host. By itself it goes around any store, for tests that run in real time.
///
/// ```
/// # leasehold::doc_test(async {
/// use std::sync::Arc;
/// use leasehold::sim::{Mishap, Wire};
/// use leasehold::{Leasehold, MemoryStore, Op};
///
/// let wire = Arc::new(Wire::around(Arc::new(MemoryStore::new())));
/// let client = Leasehold::builder().store(wire.clone());
/// wire.next(Op::Claim, Mishap::ReplyLost, 2);
/// let lease = client.lock("x").acquire().await?; // asked again under the same id: granted once
/// assert_eq!(wire.asked(Op::Claim), 3);
/// lease.release().await
/// # });
/// ```
pub struct Wire {
    inner: Arc<dyn Store>,
    clock: Clock,
    state: Mutex<State>,
    /// Tells those who wait at a cut that something has changed.
    moved: watch::Sender<()>,
    /// Rises with each call and each answer.
    activity: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct State {
    ordered: Vec<(Op, Mishap, u32)>,
    replies_to_lose: u32,
    cut: bool,
    frozen: bool,
    no_renewals: bool,
    /// Names whose renewals are not answered.
    unrenewed: BTreeSet<LockName>,
    delay: Duration,
    doubts: VecDeque<Doubt>,
    asked: HashMap<Op, usize>,
}

impl State {
    fn lets_through(&self, op: Op) -> bool {
        !(self.cut || self.frozen || (self.no_renewals && op == Op::Renew))
    }

    fn mishap(&mut self, op: Op) -> Option<Mishap> {
        if let Some((_, mishap, times)) =
            self.ordered.iter_mut().find(|(other, _, times)| *other == op && *times > 0)
        {
            *times = if *times == u32::MAX { u32::MAX } else { *times - 1 };
            return Some(*mishap);
        }
        // Nobody misses the answer to a wait: it is asked again anyway.
        if self.replies_to_lose > 0 && op != Op::Wait {
            self.replies_to_lose -= 1;
            return Some(Mishap::ReplyLost);
        }
        None
    }
}

impl Wire {
    /// A wire to this store, on the machine's clock.
    #[must_use]
    pub fn around(store: Arc<dyn Store>) -> Self {
        Self::new(store, Clock::system(), Arc::default())
    }

    pub(super) fn new(inner: Arc<dyn Store>, clock: Clock, activity: Arc<AtomicU64>) -> Self {
        Self { inner, clock, state: Mutex::default(), moved: watch::Sender::new(()), activity }
    }

    /// This befalls the next `times` calls of this kind, instead of what was ordered for them before.
    pub fn next(&self, op: Op, mishap: Mishap, times: u32) {
        self.change(|state| {
            state.ordered.retain(|(other, ..)| *other != op);
            state.ordered.push((op, mishap, times));
        });
    }

    /// This befalls every call of this kind until it is [mended](Self::mend).
    pub fn always(&self, op: Op, mishap: Mishap) {
        self.next(op, mishap, u32::MAX);
    }

    /// The next `times` calls, of whatever kind but a wait, are done and their answers lost.
    pub fn lose_replies(&self, times: u32) {
        self.change(|state| state.replies_to_lose = times);
    }

    /// Nothing gets through any more in either direction: requests wait, and so do answers that are on their way.
    pub fn cut(&self) {
        self.change(|state| state.cut = true);
    }

    /// Every answer takes so long from now on.
    pub fn delay(&self, each: Duration) {
        self.change(|state| state.delay = each);
    }

    /// Everything goes through again at once; what waited at a cut goes on.
    pub fn mend(&self) {
        self.change(|state| {
            let asked = std::mem::take(&mut state.asked);
            *state = State { asked, ..State::default() };
        });
    }

    /// Lets the client doubt that the store still has what it granted.
    pub fn doubts(&self, doubt: Doubt) {
        self.change(|state| state.doubts.push_back(doubt));
    }

    /// How often it was asked for this.
    #[must_use]
    pub fn asked(&self, op: Op) -> usize {
        self.state().asked.get(&op).copied().unwrap_or(0)
    }

    /// The store behind it.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    pub(super) fn pause_renewals(&self) {
        self.change(|state| state.no_renewals = true);
    }

    pub(super) fn freeze(&self) {
        self.change(|state| state.frozen = true);
    }

    /// Whether renewals of this name go unanswered.
    pub(super) fn unrenewed(&self, name: &LockName, unrenewed: bool) {
        self.change(|state| {
            if unrenewed {
                state.unrenewed.insert(name.clone());
            } else {
                state.unrenewed.remove(name);
            }
        });
    }

    /// Ends the lease with this token behind its holder's back.
    pub(super) async fn end(&self, name: &LockName, token: Token) -> Result<()> {
        let snapshot = self.inner.inspect(name).await?;
        if let Some(holder) = snapshot.holders.iter().find(|holder| holder.token == Some(token)) {
            self.inner.release(name, holder.id, Leave::Open).await?;
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.moved.send_replace(());
    }

    /// Returns once calls of this kind get through.
    async fn open(&self, op: Op) {
        let mut moved = self.moved.subscribe();
        while !self.state().lets_through(op) {
            // The sender lives as long as `self`.
            drop(moved.changed().await);
        }
    }

    async fn go<T>(&self, op: Op, call: impl Future<Output = Result<T>>) -> Result<T> {
        let error = || StoreError::new(StoreErrorKind::Unavailable, op, self).saying("a test wants it so");
        let mishap = {
            let mut state = self.state();
            *state.asked.entry(op).or_default() += 1;
            state.mishap(op)
        };
        self.activity.fetch_add(1, Ordering::SeqCst);
        self.open(op).await;
        match mishap {
            Some(Mishap::Refused) => return Err(error().into()),
            Some(Mishap::Silent) => std::future::pending().await,
            Some(Mishap::ReplyLost | Mishap::Late(_)) | None => {}
        }
        let answer = call.await;
        let late = if let Some(Mishap::Late(by)) = mishap { by } else { Duration::ZERO };
        let late = late + self.state().delay;
        if !late.is_zero() {
            self.clock.sleep_until(self.clock.now().after(late)).await;
        }
        // The answer has to come through as well.
        self.open(op).await;
        self.activity.fetch_add(1, Ordering::SeqCst);
        if mishap == Some(Mishap::ReplyLost) {
            answer?;
            return Err(error().unknown().into());
        }
        answer
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("store", &self.inner).finish_non_exhaustive()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for Wire {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        self.go(Op::Claim, self.inner.claim(claim)).await
    }

    async fn claim_all(&self, claims: &[Claim]) -> Result<Together> {
        self.go(Op::Claim, self.inner.claim_all(claims)).await
    }

    async fn changed(&self, name: &LockName, since: &Cursor) -> Result<()> {
        self.go(Op::Wait, self.inner.changed(name, since)).await
    }

    async fn renew(&self, batch: &[Renew]) -> Vec<Result<Renewal>> {
        let unrenewed = self.state().unrenewed.clone();
        let passes = |renew: &&Renew| !unrenewed.contains(&renew.claim.name);
        let asked: Vec<Renew> = batch.iter().filter(passes).cloned().collect();
        let answers = self.go(Op::Renew, async { Ok(self.inner.renew(&asked).await) }).await;
        let error =
            StoreError::new(StoreErrorKind::Unavailable, Op::Renew, self).saying("a test wants it so");
        let mut answers = answers.map(Vec::into_iter);
        let mut answer = |renew: &Renew| match &mut answers {
            Err(error) => Err(error.clone()),
            Ok(answers) if passes(&renew) => answers.next().unwrap_or_else(|| Err(error.clone().into())),
            Ok(_) => Err(error.clone().unknown().into()),
        };
        batch.iter().map(&mut answer).collect()
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
        self.inner.ledger()
    }

    async fn doubt(&self) -> Doubt {
        let mut moved = self.moved.subscribe();
        let told = async {
            loop {
                if let Some(doubt) = self.state().doubts.pop_front() {
                    return doubt;
                }
                // The sender lives as long as `self`.
                drop(moved.changed().await);
            }
        };
        tokio::select! {
            doubt = told => doubt,
            doubt = self.inner.doubt() => doubt,
        }
    }

    fn doctor(&self) -> Option<&dyn Doctor> {
        self.inner.doctor()
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}
