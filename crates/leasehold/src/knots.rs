//! Finds waits that tie themselves into a knot, and reports them: a task that waits for its own lease, scopes and
//! runs of this process that wait for each other.
//!
//! It looks and tells, and never ends a wait: see [`Event::WaitsForItself`] and [`Event::Deadlock`].

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{LockName, Share, fault};
use tokio::sync::Notify;

use crate::engine::Engine;
use crate::event::{Event, Stuck};
use crate::hold::Hold;
use crate::nesting::Asker;
use crate::party::Waiter;

/// A wait of less than this is no news. PostgreSQL takes as long before it looks for a deadlock.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// What was told, and when to look.
#[derive(Debug, Default)]
pub(crate) struct Knots {
    waits: Notify,
    told: RefCell<Told>,
}

#[derive(Debug, Default)]
struct Told {
    /// Names on which somebody waits for himself. Told once for each, until nobody waits for it any more: a task that
    /// takes a lock in a loop, and moves each lease to another, looks the same.
    own: HashSet<LockName>,
    /// Circles, by the holds in them: several tasks of a scope may wait in the same one.
    circles: HashSet<BTreeSet<u64>>,
}

impl Knots {
    pub(crate) fn somebody_waits(&self) {
        self.waits.notify_one();
    }
}

/// Looks every second while somebody waits.
pub(crate) async fn watch(engine: Rc<Engine>) {
    loop {
        engine.knots.waits.notified().await;
        loop {
            engine.clock.sleep_until(engine.clock.now().after(LOOK_AFTER)).await;
            let waiting = engine.waiting();
            if waiting.is_empty() {
                engine.knots.told.take();
                break;
            }
            look(&engine, &waiting);
        }
    }
}

fn look(engine: &Engine, waiting: &[Waiter]) {
    let now = engine.clock.now();
    let long: Vec<&Waiter> = waiting.iter().filter(|waiter| now.since(waiter.asked) >= LOOK_AFTER).collect();
    let mut holds: HashMap<LockName, Vec<(Arc<Hold>, Share)>> = HashMap::new();
    if !long.is_empty() {
        for (hold, share) in engine.watchdog.holds() {
            holds.entry(hold.name.clone()).or_default().push((hold, share));
        }
    }
    let mut told = engine.knots.told.borrow_mut();
    told.own.retain(|name| waiting.iter().any(|waiter| waiter.terms.name == *name));
    let standing: HashSet<u64> = holds.values().flatten().map(|(hold, _)| hold.id).collect();
    told.circles.retain(|circle| circle.iter().all(|id| standing.contains(id)));
    let mut events = Vec::new();
    for waiter in &long {
        if let Some(hold) = own_lease(waiter, &holds).filter(|_| told.own.insert(waiter.terms.name.clone())) {
            let held = now.since(hold.since);
            events.push(Event::WaitsForItself { name: hold.name.clone(), token: hold.token(), held });
        }
    }
    for start in &long {
        if let Some(circle) = circle_through(start, &long, &holds)
            && told.circles.insert(circle.iter().map(|(_, hold)| hold.id).collect())
        {
            events.push(Event::Deadlock { circle: circle.iter().map(stuck).collect() });
        }
    }
    drop(told);
    events.iter().for_each(|event| engine.emit(event));
}

/// The holds of this process that are in somebody's way.
fn in_the_way<'a>(
    waiter: &Waiter,
    holds: &'a HashMap<LockName, Vec<(Arc<Hold>, Share)>>,
) -> impl Iterator<Item = &'a Arc<Hold>> {
    // Of those that only fill a semaphore together, each could make room.
    let share = waiter.terms.share;
    let all = holds.get(&waiter.terms.name).into_iter().flatten();
    all.filter(move |(_, held)| held.excludes(share)).map(|(hold, _)| hold)
}

/// The lease that somebody waits for without end, and most likely took himself.
fn own_lease<'a>(
    waiter: &Waiter,
    holds: &'a HashMap<LockName, Vec<(Arc<Hold>, Share)>>,
) -> Option<&'a Arc<Hold>> {
    let Asker { task, perhaps_within, within, .. } = &*waiter.asker;
    let taken_here = |hold: &&Arc<Hold>| {
        let same_task = hold.asker().is_some_and(|asker| asker.task == *task);
        same_task || perhaps_within.contains(&hold.id) || within.contains(&hold.id)
    };
    in_the_way(waiter, holds).find(taken_here).filter(|_| waiter.wait.is_none())
}

/// Whether a hold certainly lasts until this waiter has an answer, or its scope goes on otherwise.
fn stands_on(waiter: &Waiter, hold: &Hold) -> bool {
    let Asker { scope, within, .. } = &*waiter.asker;
    let same = |asker: &Arc<Asker>| match (&asker.scope, scope) {
        (Some(theirs), Some(ours)) => theirs.id == ours.id,
        _ => false,
    };
    within.contains(&hold.id) || hold.asker().is_some_and(same)
}

/// The shortest circle of waits through this one: each with the hold for which the one before waits.
fn circle_through<'a>(
    start: &'a Waiter,
    long: &[&'a Waiter],
    holds: &'a HashMap<LockName, Vec<(Arc<Hold>, Share)>>,
) -> Option<Vec<(&'a Waiter, &'a Arc<Hold>)>> {
    if fault!("no_deadlock_seen") {
        return None;
    }
    let mut before: HashMap<u64, (&'a Waiter, &'a Arc<Hold>)> = HashMap::new();
    let mut next = VecDeque::from([start]);
    while let Some(waiter) = next.pop_front() {
        for hold in in_the_way(waiter, holds) {
            for other in long.iter().filter(|other| stands_on(other, hold)) {
                if before.contains_key(&other.seq) {
                    continue;
                }
                before.insert(other.seq, (waiter, hold));
                next.push_back(other);
            }
        }
    }
    // Backwards from the start to the start.
    let (mut circle, mut at) = (Vec::new(), start);
    loop {
        let (previous, hold) = *before.get(&at.seq)?;
        circle.push((at, hold));
        if previous.seq == start.seq {
            break;
        }
        at = previous;
    }
    circle.reverse();
    // One who stands on what he waits for himself is told of as such.
    (circle.len() > 1).then_some(circle)
}

fn stuck((waiter, holds): &(&Waiter, &Arc<Hold>)) -> Stuck {
    let who = match &waiter.asker.scope {
        Some(scope) if !waiter.asker.within.contains(&holds.id) => format!("scope {}", scope.label),
        _ => format!("run of {}", holds.name),
    };
    Stuck { who, holds: holds.name.clone(), waits_for: waiter.terms.name.clone() }
}
