//! A store whose replies get lost: a wrapper that executes a request and says that nobody knows, on purpose.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{
    Capabilities, Claim, ClaimId, Clock, Cursor, Doctor, Doubt, Leave, Ledger, LockName, Mark, MarkKind,
    MarkOutcome, Op, Record, RecordId, Release, Renew, Renewal, Result, Snapshot, Standing, Store,
    StoreError, StoreErrorKind, Together, Unsupported,
};

/// What befalls one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    /// It is executed; the answer is lost, so the outcome is unknown.
    LosesReply,
    /// It is not executed; nobody knows that.
    LosesRequest,
    /// It is not executed, and says so.
    Refused,
    /// It is executed late.
    Late(Duration),
}

/// How often, of a hundred calls, each mishap befalls one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Odds {
    /// Replies lost.
    pub loses_reply: u8,
    /// Requests lost.
    pub loses_request: u8,
    /// Requests refused.
    pub refused: u8,
    /// Requests late, and by how much at most.
    pub late: (u8, Duration),
}

/// A store to which mishaps befall: by chance from a seed, or those that a test orders for its next calls.
pub struct Chaos {
    inner: Arc<dyn Store>,
    clock: Clock,
    plan: Mutex<Plan>,
}

struct Plan {
    odds: Odds,
    dice: fastrand::Rng,
    ordered: HashMap<Op, Vec<Mishap>>,
    befell: u64,
    cut_off: bool,
}

impl Chaos {
    /// The store as it is, until mishaps are [ordered](Self::order).
    #[must_use]
    pub fn calm(inner: Arc<dyn Store>, clock: Clock) -> Self {
        Self::new(inner, clock, Odds::default(), 0)
    }

    /// Mishaps by chance: the same ones for the same seed and the same calls.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, clock: Clock, odds: Odds, seed: u64) -> Self {
        let dice = fastrand::Rng::with_seed(seed);
        let plan = Plan { odds, dice, ordered: HashMap::new(), befell: 0, cut_off: false };
        Self { inner, clock, plan: Mutex::new(plan) }
    }

    /// Cuts the client off, or lets it through again: meanwhile nothing is executed, and nobody knows that.
    pub fn cut_off(&self, cut_off: bool) {
        self.plan().cut_off = cut_off;
    }

    /// From now on with these odds.
    pub fn with_odds(&self, odds: Odds) {
        self.plan().odds = odds;
    }

    /// Orders a mishap for the next call of this kind that has none yet.
    pub fn order(&self, op: Op, mishap: Mishap) {
        self.plan().ordered.entry(op).or_default().push(mishap);
    }

    /// How many mishaps befell so far.
    #[must_use]
    pub fn befell(&self) -> u64 {
        self.plan().befell
    }

    fn plan(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self, op: Op) -> Option<Mishap> {
        let mut plan = self.plan();
        let plan = &mut *plan;
        let ordered = plan.ordered.get_mut(&op).filter(|ordered| !ordered.is_empty());
        let mishap = match ordered {
            _ if plan.cut_off => Some(Mishap::LosesRequest),
            Some(ordered) => Some(ordered.remove(0)),
            None => plan.odds.roll(&mut plan.dice),
        };
        plan.befell += u64::from(mishap.is_some());
        mishap
    }

    /// The ledger of the store; it is asked for only where there is one.
    fn kept(&self) -> Result<&dyn Ledger> {
        self.inner.ledger().ok_or_else(|| Unsupported::new("marks and records").into())
    }

    fn lost_request(&self, op: Op) -> leasehold_core::Error {
        self.error(op, "the request was lost").unknown().into()
    }

    fn error(&self, op: Op, what: &str) -> StoreError {
        StoreError::new(StoreErrorKind::Unavailable, op, &self.inner).saying(what)
    }

    /// One call under whatever befalls it.
    async fn call<T>(&self, op: Op, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        match self.next(op) {
            None => call.await,
            Some(Mishap::Late(by)) => {
                self.clock.sleep_until(self.clock.now().after(by)).await;
                if self.plan().cut_off {
                    return Err(self.lost_request(op));
                }
                call.await
            }
            Some(Mishap::LosesReply) => {
                drop(call.await);
                Err(self.error(op, "the reply was lost").unknown().into())
            }
            Some(Mishap::LosesRequest) => Err(self.lost_request(op)),
            Some(Mishap::Refused) => Err(self.error(op, "refused for once").into()),
        }
    }
}

impl Odds {
    fn roll(self, dice: &mut fastrand::Rng) -> Option<Mishap> {
        let Self { loses_reply, loses_request, refused, late: (late, by) } = self;
        let mishaps = [
            (loses_reply, Mishap::LosesReply),
            (loses_request, Mishap::LosesRequest),
            (refused, Mishap::Refused),
            (late, Mishap::Late(by.mul_f64(dice.f64()))),
        ];
        let mut roll = dice.u8(..100);
        mishaps.into_iter().find_map(|(odds, mishap)| {
            let befalls = roll < odds;
            roll = roll.saturating_sub(odds);
            befalls.then_some(mishap)
        })
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Store for Chaos {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        self.call(Op::Claim, self.inner.claim(claim)).await
    }

    async fn claim_all(&self, claims: &[Claim]) -> Result<Together> {
        self.call(Op::Claim, self.inner.claim_all(claims)).await
    }

    async fn changed(&self, name: &LockName, since: &Cursor) -> Result<()> {
        self.call(Op::Wait, self.inner.changed(name, since)).await
    }

    async fn renew(&self, batch: &[Renew]) -> Vec<Result<Renewal>> {
        let answers = self.call(Op::Renew, async { Ok(self.inner.renew(batch).await) }).await;
        answers.unwrap_or_else(|error| batch.iter().map(|_| Err(error.clone())).collect())
    }

    async fn release(&self, name: &LockName, id: ClaimId, leave: Leave) -> Result<Release> {
        self.call(Op::Release, self.inner.release(name, id, leave)).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot> {
        self.call(Op::Inspect, self.inner.inspect(name)).await
    }

    async fn list(&self, prefix: &str, after: Option<&LockName>) -> Result<Vec<LockName>> {
        self.call(Op::List, self.inner.list(prefix, after)).await
    }

    async fn anchor(&self) -> Result<Option<OwnedFd>> {
        self.inner.anchor().await
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        self.inner.ledger().map(|_| self as &dyn Ledger)
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

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Ledger for Chaos {
    async fn mark(&self, mark: &Mark) -> Result<MarkOutcome> {
        self.call(Op::Ledger, async { self.kept()?.mark(mark).await }).await
    }

    async fn marks(&self, kind: MarkKind, name: &LockName) -> Result<Vec<Mark>> {
        self.call(Op::Ledger, async { self.kept()?.marks(kind, name).await }).await
    }

    async fn unmark(&self, kind: MarkKind, name: &LockName, key: &str) -> Result<bool> {
        self.call(Op::Ledger, async { self.kept()?.unmark(kind, name, key).await }).await
    }

    async fn record(&self, record: &Record) -> Result<RecordId> {
        self.call(Op::Ledger, async { self.kept()?.record(record).await }).await
    }

    async fn records(
        &self,
        name: Option<&LockName>,
        after: RecordId,
        most: usize,
    ) -> Result<Vec<(RecordId, Record)>> {
        self.call(Op::Ledger, async { self.kept()?.records(name, after, most).await }).await
    }
}

impl fmt::Display for Chaos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with mishaps", self.inner)
    }
}

impl fmt::Debug for Chaos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chaos")
            .field("inner", &self.inner)
            .field("odds", &self.plan().odds)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_is_cut_off_has_nothing_executed_not_even_what_was_under_way() {
        let (clock, store) = (Clock::frozen(), leasehold_core::MemoryStore::new());
        let chaos = Arc::new(Chaos::calm(Arc::new(store), clock.clone()));
        let list = || {
            let chaos = Arc::clone(&chaos);
            async move { chaos.list("", None).await }
        };
        list().await.unwrap();
        chaos.order(Op::List, Mishap::Late(Duration::from_secs(1)));
        let mut under_way = Box::pin(list());
        assert!(futures_util::FutureExt::now_or_never(&mut under_way).is_none());
        chaos.cut_off(true);
        assert!(list().await.unwrap_err().outcome_unknown());
        clock.advance(Duration::from_secs(1));
        assert!(under_way.await.unwrap_err().outcome_unknown());
        chaos.cut_off(false);
        list().await.unwrap();
    }

    #[test]
    fn mishaps_befall_as_often_as_was_said() {
        let odds = Odds { loses_reply: 10, loses_request: 5, refused: 0, late: (20, Duration::from_secs(1)) };
        let mut dice = fastrand::Rng::with_seed(1);
        let rolled: Vec<_> = (0..10_000).filter_map(|_| odds.roll(&mut dice)).collect();
        let lost = rolled.iter().filter(|mishap| **mishap == Mishap::LosesReply).count();
        assert!((800..1200).contains(&lost), "{lost} of 1000");
        assert!((3200..3800).contains(&rolled.len()), "{} of 3500", rolled.len());
        assert!(!rolled.contains(&Mishap::Refused));
    }
}
