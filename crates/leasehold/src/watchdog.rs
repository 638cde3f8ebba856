//! One task that keeps all leases of a client: renews them in batches, and tells their holders when they are
//! endangered and when they are lost.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    BootTime, Claim, Clock, Error, LostReason, Op, Renew, Renewal, Result, Share, Tenure, Token, fault,
};
use tokio::sync::{Notify, oneshot};

use crate::engine::Engine;
use crate::event::Event;
use crate::handover::LeaseTicket;
use crate::hold::Hold;
use crate::local;
use crate::party::Party;
use crate::shape::Shape;
use crate::terms::{self, Terms};
use crate::timer::Timer;

mod doubts;

pub(crate) use doubts::doubts;

/// Leases that are due within this are renewed together: one wake-up, one round trip.
const TOGETHER: Duration = Duration::from_millis(10);
/// At most so many in one request, so that a store is not blocked for long.
const MOST_AT_ONCE: usize = 100;

/// What keeps a lease going: the claim behind it, and how far its tenures have come.
#[derive(Debug, Clone)]
pub(crate) struct Tenancy {
    pub(crate) claim: Arc<Claim>,
    pub(crate) terms: Arc<Terms>,
    /// The first token of the run.
    pub(crate) first: Token,
    /// How many tokens the run has.
    pub(crate) run: u32,
    pub(crate) tenure: Tenure,
    /// When the store granted it.
    pub(crate) since: BootTime,
    /// The ttl that the store gave last.
    pub(crate) granted: Duration,
    /// When the request was sent that was answered last.
    pub(crate) sent: BootTime,
    pub(crate) until: BootTime,
    /// How many renewals have failed since the last good one.
    pub(crate) failures: u32,
    /// Who stands in line behind it in this process.
    pub(crate) party: Option<Rc<Party>>,
    /// Whether another owner may take it over at any moment.
    pub(crate) given: bool,
}

impl Tenancy {
    /// The hold of its present tenure.
    pub(crate) fn hold(&self, engine: &Engine) -> Arc<Hold> {
        let Self { claim, tenure, until, .. } = self;
        Arc::new(Hold::new(
            engine.next_hold(),
            claim.name.clone(),
            Shape::new(claim.share, tenure.token),
            claim.ttl,
            claim.owner.id(),
            engine.clock.now(),
            engine.clock.clone(),
            *until,
        ))
    }
}

/// A lease under watch.
#[derive(Debug)]
struct Entry {
    hold: Arc<Hold>,
    tenancy: Tenancy,
    /// When it is to be renewed.
    renew_at: BootTime,
    /// When to look at it next; `None` once it is lost.
    look_at: Option<BootTime>,
    in_flight: bool,
    /// Something spoke against the store while a renewal was under way, whose answer may be from before that.
    doubted: bool,
    /// Who wants to hear of the next renewal.
    ensuring: Vec<oneshot::Sender<Result<()>>>,
}

/// All leases of a client.
#[derive(Debug)]
pub(crate) struct Watchdog {
    clock: Clock,
    inner: RefCell<Inner>,
    moved: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    entries: BTreeMap<u64, Entry>,
    looks: BTreeSet<(BootTime, u64)>,
}

impl Inner {
    fn schedule(&mut self, id: u64, at: Option<BootTime>) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if let Some(old) = entry.look_at {
            self.looks.remove(&(old, id));
        }
        entry.look_at = at;
        if let Some(at) = at {
            self.looks.insert((at, id));
        }
    }
}

impl Watchdog {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, inner: RefCell::default(), moved: Notify::new() }
    }

    /// Begins to watch a lease.
    pub(crate) fn add(&self, hold: Arc<Hold>, tenancy: Tenancy) {
        let id = hold.id;
        let renew_at = tenancy.sent.after(terms::renew_after(tenancy.granted)).max(self.clock.now());
        let look_at = too_long(&hold, &tenancy).map_or(renew_at, |end| renew_at.min(end));
        let (look, ensuring) = (None, Vec::new());
        let entry =
            Entry { hold, tenancy, renew_at, look_at: look, in_flight: false, doubted: false, ensuring };
        let mut inner = self.inner.borrow_mut();
        let soonest = inner.looks.first().map(|(at, _)| *at);
        inner.entries.insert(id, entry);
        inner.schedule(id, Some(look_at));
        if soonest.is_none_or(|soonest| look_at < soonest) {
            self.moved.notify_one();
        }
    }

    /// Looks at these leases now, since something about them has changed.
    pub(crate) fn look_at(&self, ids: &[u64]) {
        let now = self.clock.now();
        let mut inner = self.inner.borrow_mut();
        for id in ids {
            if inner.entries.get(id).is_some_and(|entry| entry.look_at.is_some()) {
                inner.schedule(*id, Some(now));
            }
        }
        self.moved.notify_one();
    }

    /// The claim behind a lease, as it is to be stated now.
    pub(crate) fn claim(&self, id: u64) -> Option<Arc<Claim>> {
        self.inner.borrow().entries.get(&id).map(|entry| entry.tenancy.claim.clone())
    }

    /// The claim behind a lease, numbered as its latest statement: of several that change what it takes the one with the
    /// highest number counts, whichever arrives first.
    pub(crate) fn restate(&self, id: u64) -> Option<Claim> {
        let mut inner = self.inner.borrow_mut();
        let tenancy = &mut inner.entries.get_mut(&id)?.tenancy;
        let mut claim = Claim::clone(&tenancy.claim);
        if !fault!("shrinks_late") {
            claim.reshape += 1;
        }
        tenancy.claim = Arc::new(claim.clone());
        Some(claim)
    }

    /// Goes on with a lease that takes this much from now on, under a new token if it takes more. Gives the party that
    /// stood behind it in this process: what it waits for is no longer what is held here.
    pub(crate) fn reshape(&self, id: u64, share: Share, token: Option<Token>) -> Option<Rc<Party>> {
        let mut inner = self.inner.borrow_mut();
        let entry = inner.entries.get_mut(&id)?;
        let tenancy = &mut entry.tenancy;
        tenancy.claim = Arc::new(Claim { share, ..Claim::clone(&tenancy.claim) });
        if let Some(token) = token {
            (tenancy.tenure.token, tenancy.first, tenancy.run) = (token, token, 1);
        }
        entry.hold.shape.set(share, token);
        tenancy.party.take()
    }

    /// What it takes to carry a lease elsewhere.
    pub(crate) fn ticket(&self, id: u64) -> Option<LeaseTicket> {
        let inner = self.inner.borrow();
        let tenancy = &inner.entries.get(&id)?.tenancy;
        Some(LeaseTicket::new(&tenancy.claim, &tenancy.tenure, false))
    }

    /// Every hold that stands, and how much it holds.
    pub(crate) fn holds(&self) -> Vec<(Arc<Hold>, Share)> {
        let inner = self.inner.borrow();
        let standing = inner.entries.values().filter(|entry| entry.hold.reason().is_none());
        standing.map(|entry| (entry.hold.clone(), entry.tenancy.claim.share)).collect()
    }

    /// Watches no longer: whatever a renewal under way answers, it says nothing to anybody.
    pub(crate) fn remove(&self, id: u64) -> Option<Tenancy> {
        let mut inner = self.inner.borrow_mut();
        inner.schedule(id, None);
        let entry = inner.entries.remove(&id)?;
        let until = entry.hold.until();
        Some(Tenancy { until, ..entry.tenancy })
    }

    /// Renews now.
    pub(crate) fn ensure(&self, hold: &Hold, reply: oneshot::Sender<Result<()>>) {
        let now = self.clock.now();
        let mut inner = self.inner.borrow_mut();
        let Some(entry) = inner.entries.get_mut(&hold.id) else {
            drop(reply.send(hold.check().map(drop).map_err(Error::from)));
            return;
        };
        entry.ensuring.push(reply);
        entry.renew_at = now;
        inner.schedule(hold.id, Some(now));
        self.moved.notify_one();
    }

    fn next_look(&self) -> Option<BootTime> {
        self.inner.borrow().looks.first().map(|(at, _)| *at)
    }

    fn due(&self, now: BootTime) -> Vec<u64> {
        let soon = now.after(TOGETHER);
        self.inner.borrow().looks.iter().take_while(|(at, _)| *at <= soon).map(|(_, id)| *id).collect()
    }
}

/// When it has been held for as long as its holder allows himself.
fn too_long(hold: &Hold, tenancy: &Tenancy) -> Option<BootTime> {
    Some(hold.begun()?.after(tenancy.terms.max_hold?))
}

/// What is to be done with a lease right now.
enum Due {
    Renew(Renew),
    Lost,
    Nothing,
}

/// Takes over a lease that was claimed elsewhere: renews it at once, and watches it from then on.
pub(crate) async fn adopt(engine: &Rc<Engine>, ticket: LeaseTicket) -> Result<Arc<Hold>> {
    let LeaseTicket { claim, tenure, given: _ } = ticket;
    let renew = Renew { claim: Arc::new(claim), tenure: tenure.clone() };
    let sent = engine.clock.now();
    let (name, deadline) = (renew.claim.name.clone(), engine.settings.timeout);
    let batch = [renew.clone()];
    let ask = async {
        let answer = engine.store.renew(&batch).await.pop();
        answer.unwrap_or_else(|| Err(engine.no_answer(Op::Renew, Some(&name), deadline)))
    };
    let Renewal::Kept { ttl, server_time } = engine.call(Op::Renew, Some(&name), deadline, ask).await? else {
        return Err(leasehold_core::Lost::new(LostReason::StoreForgot).into());
    };
    engine.tick(server_time);
    engine.saw(tenure.token);
    let until = terms::valid_until(sent, ttl);
    let terms = Terms {
        name,
        share: renew.claim.share,
        turn: renew.claim.turn,
        ttl: renew.claim.ttl,
        grace: terms::default_grace(ttl),
        max_hold: None,
        anchored: renew.claim.anchored,
        aftermath: renew.claim.aftermath,
        note: tenure.note.clone(),
        succeeds: None,
    };
    let tenancy = Tenancy {
        claim: renew.claim,
        terms: Arc::new(terms),
        first: tenure.token,
        run: 1,
        tenure,
        since: sent,
        granted: ttl,
        sent,
        until,
        failures: 0,
        party: None,
        given: false,
    };
    let hold = tenancy.hold(engine);
    hold.take();
    engine.watchdog.add(hold.clone(), tenancy);
    Ok(hold)
}

/// Ends a lease for its holder, and goes on renewing it under another hold until another owner takes it over.
pub(crate) fn give(engine: &Rc<Engine>, hold: &Hold) -> Result<(Arc<Hold>, LeaseTicket)> {
    hold.check()?;
    let released = || Error::from(leasehold_core::Lost::new(LostReason::Released));
    let tenancy = engine.watchdog.remove(hold.id).ok_or_else(released)?;
    // From here on somebody else may hold it: no task of this process gets it without asking the store.
    let tenancy = Tenancy { run: tenancy.tenure.count, given: true, ..tenancy };
    let ticket = LeaseTicket::new(&tenancy.claim, &tenancy.tenure, true);
    if !fault!("giver_believes_on") {
        hold.end(LostReason::Superseded);
    }
    let kept = tenancy.hold(engine);
    kept.take();
    engine.watchdog.add(kept.clone(), tenancy);
    Ok((kept, ticket))
}

/// Watches until the engine ends.
pub(crate) async fn watch(engine: Rc<Engine>) {
    let timer = Timer::new(engine.clock.clone());
    loop {
        let next = engine.watchdog.next_look();
        tokio::select! {
            () = timer.until(next) => {}
            () = engine.watchdog.moved.notified() => {}
        }
        let now = engine.clock.now();
        let mut batch = Vec::new();
        for id in engine.watchdog.due(now) {
            match look(&engine, id, now) {
                Due::Renew(renew) => batch.push((id, renew)),
                Due::Lost => lose(&engine, id, LostReason::Expired),
                Due::Nothing => {}
            }
        }
        for chunk in batch.chunks(MOST_AT_ONCE) {
            tokio::task::spawn_local(renew(engine.clone(), chunk.to_vec()));
        }
    }
}

/// Looks at one lease, and says when to look at it again.
fn look(engine: &Engine, id: u64, now: BootTime) -> Due {
    let mut inner = engine.watchdog.inner.borrow_mut();
    let Some(entry) = inner.entries.get_mut(&id) else { return Due::Nothing };
    let until = entry.hold.until();
    if now >= until {
        return Due::Lost;
    }
    let terms = &entry.tenancy.terms;
    let too_long = too_long(&entry.hold, &entry.tenancy);
    if too_long.is_some_and(|end| now >= end) {
        drop(inner);
        lose(engine, id, LostReason::HeldTooLong);
        return Due::Nothing;
    }
    let danger = until.before(terms.grace.min(entry.tenancy.granted / 2));
    let failing = entry.tenancy.failures > 0;
    if failing && now >= danger && entry.hold.endanger() {
        let hold = &entry.hold;
        engine.emit(&Event::Endangered {
            name: hold.name.clone(),
            token: hold.token(),
            remaining: until.since(now),
        });
    }
    let mut due = Due::Nothing;
    if !entry.in_flight && entry.renew_at <= now.after(TOGETHER) && !fault!("renew_on_user_thread") {
        if entry.hold.is_wanted(entry.tenancy.granted / 2) {
            (entry.in_flight, entry.doubted) = (true, false);
            let Tenancy { claim, tenure, .. } = &entry.tenancy;
            due = Due::Renew(Renew { claim: claim.clone(), tenure: tenure.clone() });
        } else {
            // Nobody has taken it yet, or looks after it. A future that is never polled again must not keep others out for ever.
            entry.renew_at = now.after((entry.tenancy.granted / 20).max(TOGETHER * 2));
        }
    }
    let renew_at = if entry.in_flight { until } else { entry.renew_at };
    let danger = if failing && now < danger { danger } else { until };
    let next = [renew_at, danger, until, too_long.unwrap_or(until)].into_iter().min();
    inner.schedule(id, next);
    due
}

/// Ends a lease for this reason and tells everybody.
pub(crate) fn lose(engine: &Engine, id: u64, reason: LostReason) {
    let (hold, tenancy, ensuring) = {
        let mut inner = engine.watchdog.inner.borrow_mut();
        inner.schedule(id, None);
        let Some(entry) = inner.entries.get_mut(&id) else { return };
        let tenancy = entry.tenancy.clone();
        // Those behind it are gone on with below; whoever gives it back later finds nobody to go on with.
        entry.tenancy.party = None;
        (entry.hold.clone(), tenancy, std::mem::take(&mut entry.ensuring))
    };
    let stands = hold.end(reason);
    // After the end: whoever hears "lost" here must not find that it holds.
    for reply in ensuring {
        drop(reply.send(Err(leasehold_core::Lost::new(reason).into())));
    }
    engine.emit(&Event::Lost { name: hold.name.clone(), token: hold.token(), reason: stands.reason });
    if let Some(engine) = engine.me.upgrade() {
        local::lost(&engine, &tenancy);
    }
}

async fn renew(engine: Rc<Engine>, batch: Vec<(u64, Renew)>) {
    let sent = engine.clock.now();
    let shortest = batch.iter().map(|(_, renew)| renew.claim.ttl).min().unwrap_or_default();
    let deadline = terms::renewal_deadline(shortest, engine.settings.timeout);
    let asked: Vec<Renew> = batch.iter().map(|(_, renew)| renew.clone()).collect();
    let answers = engine.clock.within(deadline, engine.store.renew(&asked)).await;
    // The end of validity is counted from before the request was sent, whenever the reply comes.
    let sent = if fault!("validity_from_reply") { engine.clock.now() } else { sent };
    let answers = answers.unwrap_or_default();
    let mut answers = answers.into_iter();
    for (id, renew) in batch {
        let name = &renew.claim.name;
        let answer = answers.next().unwrap_or_else(|| Err(engine.no_answer(Op::Renew, Some(name), deadline)));
        engine.asked(Op::Renew, Some(name), sent, answer.as_ref().err());
        match answer {
            Ok(Renewal::Kept { ttl, server_time }) => {
                engine.tick(server_time);
                kept(&engine, id, sent, ttl);
            }
            Ok(Renewal::Lost) => gone(&engine, id),
            Err(error) => failed(&engine, id, error),
        }
    }
    engine.watchdog.moved.notify_one();
}

/// The store knows it no longer.
fn gone(engine: &Engine, id: u64) {
    let given = engine.watchdog.inner.borrow().entries.get(&id).is_some_and(|entry| entry.tenancy.given);
    lose(engine, id, if given { LostReason::Superseded } else { LostReason::StoreForgot });
}

fn kept(engine: &Engine, id: u64, sent: BootTime, ttl: Duration) {
    let mut inner = engine.watchdog.inner.borrow_mut();
    let Some(entry) = inner.entries.get_mut(&id) else { return };
    entry.in_flight = false;
    let until = terms::valid_until(sent, ttl);
    let left = entry.hold.remaining();
    if !entry.hold.extend(until) {
        // Its time ran out before the answer came: the holder may have acted on that.
        drop(inner);
        return lose(engine, id, LostReason::Expired);
    }
    let tenancy = &mut entry.tenancy;
    (tenancy.failures, tenancy.granted, tenancy.sent, tenancy.until) = (0, ttl, sent, until);
    entry.renew_at = if entry.doubted { engine.clock.now() } else { sent.after(terms::renew_after(ttl)) };
    for reply in entry.ensuring.drain(..) {
        drop(reply.send(Ok(())));
    }
    let hold = entry.hold.clone();
    let next = entry.renew_at;
    inner.schedule(id, Some(next));
    drop(inner);
    let remaining = hold.remaining();
    engine.emit(&Event::Renewed { name: hold.name.clone(), token: hold.token(), left, remaining });
}

fn failed(engine: &Engine, id: u64, error: Error) {
    let now = engine.clock.now();
    let mut inner = engine.watchdog.inner.borrow_mut();
    let Some(entry) = inner.entries.get_mut(&id) else { return };
    entry.in_flight = false;
    let tenancy = &mut entry.tenancy;
    entry.renew_at = now.after(terms::retry_after(tenancy.claim.ttl, tenancy.failures));
    tenancy.failures = tenancy.failures.saturating_add(1);
    for reply in entry.ensuring.drain(..) {
        drop(reply.send(Err(error.clone())));
    }
    let (hold, silent) = (entry.hold.clone(), now.since(tenancy.sent));
    // At once: it may be in danger already.
    inner.schedule(id, Some(now));
    drop(inner);
    let remaining = hold.remaining();
    let (name, token) = (hold.name.clone(), hold.token());
    engine.emit(&Event::RenewalFailed { name, token, error, silent, remaining });
}
