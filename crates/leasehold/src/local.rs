//! What happens inside the process when a lease is given back or lost: the next task in line gets it without a
//! round trip where it may, else the store does.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Error, Leave, Lost, LostReason, Release, Result, Tenure, fault};
use tokio::sync::oneshot;

use crate::engine::Engine;
use crate::event::Event;
use crate::hold::Hold;
use crate::janitor::{self, GivenBack};
use crate::party::{Party, Stage};
use crate::terms;
use crate::watchdog::Tenancy;

/// How many tenures one claim may have before other processes get their turn.
const MOST_TENURES: u32 = 100;
/// For how long one claim may be handed on before other processes get their turn.
const HAND_ON_FOR: Duration = Duration::from_millis(500);
/// A task that does not take what it was handed in this time is passed over.
const TAKE_WITHIN: Duration = Duration::from_millis(100);

/// Gives a lease back: on to the next task in line, or to the store.
pub(crate) fn release(
    engine: &Rc<Engine>,
    hold: &Arc<Hold>,
    leave: Leave,
    reply: Option<oneshot::Sender<Result<()>>>,
) {
    let Some(tenancy) = engine.watchdog.remove(hold.id) else {
        answer(reply, Err(Lost::new(LostReason::Released).into()));
        return;
    };
    let lost = hold.reason();
    let held = engine.clock.now().since(hold.since);
    hold.end(LostReason::Released);
    let leave = if hold.is_idle() { leave } else { at_least(engine, &tenancy, leave) };
    if lost.is_none() && leave == Leave::Open && hand_on(engine, &tenancy) {
        engine.emit(&Event::Released { name: hold.name.clone(), token: hold.token(), held, handed_on: true });
        return answer(reply, Ok(()));
    }
    // The holder may have noticed the loss before the watchdog did, which will not hear of this lease again.
    let mut party = tenancy.party;
    if let Some(party) = party.take_if(|_| lost.is_some()) {
        engine.go_on(&party);
    }
    let (engine, hold) = (engine.clone(), hold.clone());
    let expires = engine.clock.now().after(tenancy.claim.ttl);
    let given_back = janitor::give_back(&engine, &tenancy.claim, leave, expires);
    tokio::task::spawn_local(async move {
        let outcome = given_back.await.unwrap_or_else(|_| Err(janitor::ended()));
        if lost.is_none() && outcome.is_ok() {
            engine.emit(&Event::Released {
                name: hold.name.clone(),
                token: hold.token(),
                held,
                handed_on: false,
            });
        }
        answer(reply, judge(lost, outcome));
        if let Some(party) = party {
            engine.go_on(&party);
        }
    });
}

/// What a release leaves behind of a lease that keeps its name shut for a time from the grant.
fn at_least(engine: &Engine, tenancy: &Tenancy, leave: Leave) -> Leave {
    let left = tenancy.since.after(tenancy.claim.aftermath.at_least).since(engine.clock.now());
    match leave {
        Leave::Open if !left.is_zero() => Leave::Closed { lasting: left, note: tenancy.tenure.note.clone() },
        Leave::Closed { lasting, note } => Leave::Closed { lasting: lasting.max(left), note },
        Leave::Open => Leave::Open,
    }
}

/// Ends the watch over a lease and gives nothing back: it runs to the end of its ttl, or whoever has its ticket
/// goes on with it.
pub(crate) fn keep(engine: &Rc<Engine>, hold: &Hold) {
    let Some(tenancy) = engine.watchdog.remove(hold.id) else { return };
    hold.end(LostReason::Released);
    if let Some(party) = tenancy.party {
        engine.go_on(&party);
    }
}

/// What the holder is told of his release.
fn judge(lost: Option<LostReason>, outcome: Result<GivenBack>) -> Result<()> {
    match (lost, outcome) {
        (Some(reason), _) => Err(Lost::new(reason).into()),
        (None, Err(error)) => Err(error),
        // It was valid a moment ago, so somebody else ended it, unless the first of several tries did.
        (None, Ok(GivenBack { release: Release::NotHeld, repeated: false })) => {
            Err(Lost::new(LostReason::StoreForgot).into())
        }
        (None, Ok(_)) => Ok(()),
    }
}

fn answer(reply: Option<oneshot::Sender<Result<()>>>, result: Result<(), Error>) {
    if let Some(reply) = reply {
        // Whoever asked may have stopped waiting.
        drop(reply.send(result));
    }
}

/// Hands a lease on to the next task of this process, each tenure with its own higher token, if other processes
/// have not waited long enough and enough of the lease is left.
fn hand_on(engine: &Rc<Engine>, tenancy: &Tenancy) -> bool {
    let Some(party) = &tenancy.party else { return false };
    let now = engine.clock.now();
    let count = tenancy.tenure.count;
    let half = terms::valid_until(now, tenancy.granted).since(now) / 2;
    let patient = count < MOST_TENURES && now.since(tenancy.since) < HAND_ON_FOR;
    let fresh = tenancy.failures == 0 && tenancy.until.since(now) > half;
    if !fresh || count >= tenancy.run || !(patient || fault!("hand_on_for_ever")) {
        return false;
    }
    let steps = if fault!("hand_on_same_token") { 0 } else { count };
    let Some(token) = tenancy.first.after(steps) else { return false };
    while let Some(waiter) = party.first_on(&tenancy.terms) {
        let tenure = Tenure { count: count + 1, token, note: waiter.terms.note.clone() };
        let next = Tenancy { tenure, terms: waiter.terms.clone(), ..tenancy.clone() };
        let hold = next.hold(engine);
        engine.watchdog.add(hold.clone(), next);
        if waiter.ticket.answer(Ok(hold.clone())).is_err() {
            engine.watchdog.remove(hold.id);
            party.leave(waiter.seq);
            continue;
        }
        let waited = now.since(waiter.asked);
        engine.saw(token);
        let remaining = hold.remaining();
        engine.emit(&Event::Acquired { name: hold.name.clone(), token, waited, remaining });
        tokio::task::spawn_local(pass_over(engine.clone(), party.clone(), waiter, hold));
        return true;
    }
    false
}

/// Takes a lease back from a task that does not take it, and gives it to the next.
async fn pass_over(engine: Rc<Engine>, party: Rc<Party>, waiter: crate::party::Waiter, hold: Arc<Hold>) {
    engine.clock.sleep_until(engine.clock.now().after(TAKE_WITHIN)).await;
    if hold.is_taken() {
        party.leave(waiter.seq);
    } else if let Some(hold) = waiter.ticket.retract() {
        party.to_the_end(waiter.seq);
        release(&engine, &hold, Leave::Open, None);
        if let Some(wait) = waiter.wait
            && engine.clock.now() >= waiter.asked.after(wait)
        {
            engine.time_out(&party, waiter.seq, wait).await;
        }
    } else {
        // Its future was dropped, which gave the lease back.
        party.leave(waiter.seq);
    }
}

/// A lease was lost: those who wait behind it in this process go back to the store's line.
pub(crate) fn lost(engine: &Rc<Engine>, tenancy: &Tenancy) {
    if let Some(party) = &tenancy.party
        && party.stage.get() == Stage::Held
    {
        engine.go_on(party);
    }
}
