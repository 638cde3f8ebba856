//! The store in memory: the model that other stores are held to, and a real store within one process.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Bound;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use crate::{
    BootTime, Capabilities, Claim, ClaimId, Clock, Counters, Cursor, Expiry, Fencing, Joint, Leave, Ledger,
    Line, LockName, Mark, MarkKind, MarkOutcome, Member, Minting, Moment, Queueing, Reach, Record, RecordId,
    Release, Renew, Renewal, Result, Ruling, ServerTime, Shares, Snapshot, Standing, State, Store, Together,
    Tombstones, Wake, Watch,
    line::{first_named_twice, named_twice},
};

/// After so many steps all lines are swept, so that names nobody asks for again do not pile up.
const SWEEP_EVERY: u64 = 1024;
/// How many records of a name are kept.
const MOST_RECORDS: usize = 1000;

/// Claims in the memory of this process.
///
/// Clones share one store. Everything is gone with the process; tokens rise all the same, by the clock.
#[derive(Clone)]
pub struct MemoryStore(Arc<Shared>);

struct Shared {
    clock: Clock,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    lines: BTreeMap<LockName, Slot>,
    counters: Counters,
    steps: u64,
    /// The highest version that a forgotten line had. A line that comes back goes on from here, so that no old
    /// cursor takes it for unchanged.
    forgotten: u64,
    marks: HashMap<(MarkKind, LockName, String), (Mark, BootTime, BootTime)>,
    records: BTreeMap<RecordId, (Record, BootTime)>,
}

struct Slot {
    line: Line,
    moved: Arc<Notify>,
}

impl Slot {
    fn new(version: u64) -> Self {
        Self { line: Line { version, ..Line::default() }, moved: Arc::default() }
    }

    /// Nothing is in it, and nobody waits on it.
    fn is_idle(&self) -> bool {
        self.line.is_empty() && Arc::strong_count(&self.moved) == 1
    }
}

impl MemoryStore {
    /// An empty store on the machine's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Clock::system())
    }

    /// An empty store on this clock.
    #[must_use]
    pub fn with_clock(clock: Clock) -> Self {
        Self(Arc::new(Shared { clock, inner: Mutex::default() }))
    }

    /// Forgets what was granted, queued, marked and recorded in the last `since`, as a store does that comes back
    /// from an older copy of its data: for tests. [`Duration::MAX`] forgets everything, closures too, which are kept
    /// otherwise. Tokens rise all the same, by the clock.
    pub fn forget(&self, since: Duration) {
        let everything = since == Duration::MAX;
        let from = self.0.clock.now().before(since);
        let mut inner = self.lock();
        let inner = &mut *inner;
        inner.counters = Counters::default();
        inner.marks.retain(|_, (_, made, _)| !everything && *made < from);
        inner.records.retain(|_, (_, made)| !everything && *made < from);
        inner.lines.retain(|_, slot| {
            let line = &mut slot.line;
            let granted = |member: &Member| member.held.as_ref().map_or(member.since, |held| held.since);
            line.members.retain(|member| !everything && granted(member) < from);
            if everything {
                (line.shut, line.tombstones) = (None, Tombstones::default());
            }
            line.version += 1;
            slot.moved.notify_waiters();
            let idle = slot.is_idle();
            if idle {
                inner.forgotten = inner.forgotten.max(slot.line.version);
            }
            !idle
        });
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic elsewhere cannot leave a line half judged: each step is one call into `Line`.
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moment(&self) -> Moment {
        let clock = &self.0.clock;
        Moment { boot: clock.now(), wall: ServerTime::from_micros(clock.wall_micros()) }
    }

    /// One step on the line of a name: swept before, its waiters woken after if anything changed.
    fn step<T>(&self, name: &LockName, step: impl FnOnce(Moment, &mut Line, &mut Counters) -> T) -> T {
        let at = self.moment();
        let mut inner = self.lock();
        let inner = &mut *inner;
        inner.count_step(at);
        let slot = inner.lines.entry(name.clone()).or_insert_with(|| Slot::new(inner.forgotten));
        let before = slot.line.version;
        slot.line.sweep(at.boot, |_| false);
        let answer = step(at, &mut slot.line, &mut inner.counters);
        let moved = slot.line.version != before;
        inner.settle(name, moved);
        answer
    }
}

impl Inner {
    /// Sweeps all lines once in a while.
    fn count_step(&mut self, at: Moment) {
        self.steps += 1;
        if self.steps.is_multiple_of(SWEEP_EVERY) {
            self.counters.sweep(at.wall.as_micros());
            self.sweep(at.boot);
        }
    }

    /// After a step: wakes who waits if the line moved, and forgets a line that is empty.
    fn settle(&mut self, name: &LockName, moved: bool) {
        let Some(slot) = self.lines.get(name) else { return };
        if moved {
            slot.moved.notify_waiters();
        }
        if slot.is_idle() {
            self.forgotten = self.forgotten.max(slot.line.version);
            self.lines.remove(name);
        }
    }

    fn sweep(&mut self, now: BootTime) {
        self.lines.retain(|_, slot| {
            let before = slot.line.version;
            slot.line.sweep(now, |_| false);
            if slot.line.version != before {
                slot.moved.notify_waiters();
            }
            let idle = slot.is_idle();
            if idle {
                self.forgotten = self.forgotten.max(slot.line.version);
            }
            !idle
        });
        self.marks.retain(|_, (_, _, until)| *until > now);
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            fencing: Fencing::Strong,
            minting: Minting::Counter,
            shares: Shares::Any,
            queueing: Queueing::OnRequest,
            expiry: Expiry::PerClaim,
            wake: Wake::Push,
            closing: true,
            together: true,
            reshaping: true,
            succession: true,
            aftermath: true,
            reach: Reach::Process,
            ttl: Duration::from_millis(100)..=Duration::from_secs(24 * 60 * 60),
        }
    }

    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        self.step(&claim.name, |at, line, counters| {
            let state = line.claim(at, claim, counters.of(claim), None);
            let state: State = state.map_err(|overruled| overruled.into_error("memory:", claim))?;
            let cursor = line.watch(claim.id, &state).cursor();
            Ok(Standing { state, cursor, server_time: Some(at.wall) })
        })
    }

    async fn claim_all(&self, claims: &[Claim]) -> Result<Together> {
        if let Some(index) = first_named_twice(claims.iter().map(|claim| &claim.name)) {
            return Err(named_twice(&claims[index].name).into());
        }
        let at = self.moment();
        let mut inner = self.lock();
        let inner = &mut *inner;
        inner.count_step(at);
        let mut pairs: Vec<(Line, &Claim)> = Vec::with_capacity(claims.len());
        for claim in claims {
            let slot = inner.lines.entry(claim.name.clone()).or_insert_with(|| Slot::new(inner.forgotten));
            // What it was before is told by what is left there.
            let left = Line { version: slot.line.version, ..Line::default() };
            let mut line = std::mem::replace(&mut slot.line, left);
            line.sweep(at.boot, |_| false);
            pairs.push((line, claim));
        }
        let joint = Line::claim_all(at, &mut pairs, inner.counters.own(), None);
        let watch = |index: usize, state: State| {
            let (line, claim) = &pairs[index];
            Standing { cursor: line.watch(claim.id, &state).cursor(), state, server_time: Some(at.wall) }
        };
        let answer = match joint {
            Ok(Joint::All(states)) => Ok(Together::All(
                states.into_iter().enumerate().map(|(index, state)| watch(index, state)).collect(),
            )),
            Ok(Joint::None { index, state }) => Ok(Together::None { index, standing: watch(index, state) }),
            Err((index, overruled)) => Err(overruled.into_error("memory:", &claims[index])),
        };
        for (line, claim) in pairs {
            let Some(slot) = inner.lines.get_mut(&claim.name) else { continue };
            let moved = slot.line.version != line.version;
            slot.line = line;
            inner.settle(&claim.name, moved);
        }
        answer
    }

    async fn changed(&self, name: &LockName, since: &Cursor) -> Result<()> {
        let Some(watch) = Watch::parse(since) else { return Ok(()) };
        let moved = {
            let mut inner = self.lock();
            let inner = &mut *inner;
            // A slot for a name without claims stands only while somebody waits on it.
            let absent = || Slot::new(inner.forgotten);
            inner.lines.entry(name.clone()).or_insert_with(absent).moved.clone()
        };
        loop {
            let notified = moved.notified();
            tokio::pin!(notified);
            // Before the look, so that a change between the look and the wait is not missed.
            notified.as_mut().enable();
            let ruling = match self.lock().lines.get(name) {
                Some(slot) => slot.line.rule(self.0.clock.now(), watch),
                None => Ruling::Ready,
            };
            match ruling {
                Ruling::Ready => return Ok(()),
                Ruling::NotYet => notified.await,
                Ruling::NotBefore(until) => tokio::select! {
                    () = notified => {}
                    () = self.0.clock.sleep_until(until) => {}
                },
            }
        }
    }

    async fn renew(&self, batch: &[Renew]) -> Vec<Result<Renewal>> {
        let renew = |renew: &Renew| {
            let Renew { claim, tenure } = renew;
            self.step(&claim.name, |at, line, _| Ok(line.renew(at, claim.id, tenure)))
        };
        batch.iter().map(renew).collect()
    }

    async fn release(&self, name: &LockName, id: ClaimId, leave: Leave) -> Result<Release> {
        Ok(self.step(name, |at, line, _| line.release(at.boot, id, leave)))
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot> {
        let at = self.moment();
        let inner = self.lock();
        let empty = Line { version: inner.forgotten, ..Line::default() };
        Ok(inner.lines.get(name).map_or(&empty, |slot| &slot.line).snapshot(at, name))
    }

    async fn list(&self, prefix: &str, after: Option<&LockName>) -> Result<Vec<LockName>> {
        let at = self.moment();
        let inner = self.lock();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let names = inner.lines.range::<LockName, _>((from, Bound::Unbounded));
        let shown = names.filter(|(name, slot)| {
            let snapshot = slot.line.snapshot(at, name);
            let empty =
                snapshot.holders.is_empty() && snapshot.waiters.is_empty() && snapshot.closed.is_none();
            name.as_str().starts_with(prefix) && !empty
        });
        Ok(shown.map(|(name, _)| name.clone()).take(1000).collect())
    }

    async fn anchor(&self) -> Result<Option<OwnedFd>> {
        Ok(None)
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        Some(self)
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl Ledger for MemoryStore {
    async fn mark(&self, mark: &Mark) -> Result<MarkOutcome> {
        let now = self.0.clock.now();
        let mut inner = self.lock();
        let key = (mark.kind, mark.name.clone(), mark.key.clone());
        if let Some((standing, made, until)) = inner.marks.get(&key)
            && *until > now
        {
            return Ok(MarkOutcome::Already(Box::new(seen(standing, *made, *until, now))));
        }
        inner.marks.insert(key, (mark.clone(), now, now.after(mark.lasting)));
        Ok(MarkOutcome::Made)
    }

    async fn marks(&self, kind: MarkKind, name: &LockName) -> Result<Vec<Mark>> {
        let now = self.0.clock.now();
        let inner = self.lock();
        let standing = inner
            .marks
            .values()
            .filter(|(mark, _, until)| mark.kind == kind && mark.name == *name && *until > now);
        let mut marks: Vec<_> = standing.map(|(mark, made, until)| seen(mark, *made, *until, now)).collect();
        marks.sort_by(|a, b| (a.age, &a.key).cmp(&(b.age, &b.key)));
        Ok(marks)
    }

    async fn unmark(&self, kind: MarkKind, name: &LockName, key: &str) -> Result<bool> {
        let now = self.0.clock.now();
        let removed = self.lock().marks.remove(&(kind, name.clone(), key.to_owned()));
        Ok(removed.is_some_and(|(_, _, until)| until > now))
    }

    async fn record(&self, record: &Record) -> Result<RecordId> {
        let now = self.0.clock.now();
        let mut inner = self.lock();
        let last = inner.records.last_key_value().map_or(0, |(id, _)| id.0);
        let id = RecordId(last + 1);
        inner.records.insert(id, (record.clone(), now));
        let same =
            inner.records.iter().filter(|(_, (other, _))| other.name == record.name).map(|(id, _)| *id);
        let same: Vec<RecordId> = same.collect();
        for old in same.iter().take(same.len().saturating_sub(MOST_RECORDS)) {
            inner.records.remove(old);
        }
        Ok(id)
    }

    async fn records(
        &self,
        name: Option<&LockName>,
        after: RecordId,
        most: usize,
    ) -> Result<Vec<(RecordId, Record)>> {
        let now = self.0.clock.now();
        let inner = self.lock();
        let later = inner.records.range((Bound::Excluded(after), Bound::Unbounded)).rev();
        let wanted = later.filter(|(_, (record, _))| name.is_none_or(|name| *name == record.name));
        let mut found: Vec<_> = wanted
            .take(most)
            .map(|(id, (record, made))| (*id, Record { age: now.since(*made), ..record.clone() }))
            .collect();
        found.reverse();
        Ok(found)
    }
}

/// A mark as it is read back.
fn seen(mark: &Mark, made: BootTime, until: BootTime, now: BootTime) -> Mark {
    Mark { lasting: until.since(now), age: now.since(made), ..mark.clone() }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory:")
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("clock", &self.0.clock).finish_non_exhaustive()
    }
}
