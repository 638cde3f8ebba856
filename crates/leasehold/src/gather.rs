//! How several names are acquired as one: in one step where the store can and nobody is in the way, else one after
//! the other in the order of their names, so that no two who gather ever wait for each other.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, join_all, select, select_all};
use leasehold_core::{BootTime, Error, LockName, Result, fault};
use tokio::sync::oneshot;

use crate::acquire::Acquire;
use crate::client::Client;
use crate::engine::{Command, Engine};
use crate::janitor;
use crate::lease::Lease;
use crate::pulse::Pulse;
use crate::terms::Terms;
use crate::together::{self, Order, Stood};

/// How somebody who wants several names asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    /// Waits as long as it takes, or at most so long for all of them together.
    Waits(Option<Duration>),
    /// Waits for none.
    Tries {
        /// Whether a "no" should say who is in the way.
        wants_busy: bool,
    },
}

/// Acquires all of these names, which must be sorted and different, or none.
pub(crate) async fn gather(client: &Arc<Client>, terms: Vec<Arc<Terms>>, asks: Asks) -> Result<Vec<Lease>> {
    let clock = client.clock();
    let pulse = Pulse::new(clock.clone());
    let until = match asks {
        Asks::Waits(Some(wait)) => Some(clock.now().after(wait)),
        Asks::Waits(None) | Asks::Tries { .. } => None,
    };
    let gathering = Gathering { client, terms: &terms, asks, until, pulse: &pulse };
    let mut all = pin!(gathering.all());
    let beating = poll_fn(|context| {
        pulse.beat(context);
        all.as_mut().poll(context)
    });
    let error = match beating.await {
        Ok(leases) => return Ok(leases),
        Err(error) => error,
    };
    // Of the whole, not of the one name at which it ended.
    Err(match (error, asks) {
        (Error::TimedOut { waited: _, busy }, Asks::Waits(Some(waited))) => Error::TimedOut { waited, busy },
        (error, _) => error,
    })
}

struct Gathering<'a> {
    client: &'a Arc<Client>,
    terms: &'a [Arc<Terms>],
    asks: Asks,
    until: Option<BootTime>,
    pulse: &'a Arc<Pulse>,
}

/// Why it could not go on.
enum Stopped {
    /// One that was held already was lost. Nobody has worked under it yet, so all are asked for anew.
    LostOne,
    Failed(Error),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Gathering<'_> {
    async fn all(&self) -> Result<Vec<Lease>> {
        loop {
            let mut held = Held { leases: Vec::new() };
            match self.gather(&mut held.leases).await {
                Ok(()) if held.leases.iter().all(|lease| lease.check().is_ok()) => {
                    let leases = std::mem::take(&mut held.leases);
                    self.begin(&leases)?;
                    return Ok(leases);
                }
                Ok(()) | Err(Stopped::LostOne) => {}
                Err(Stopped::Failed(error)) => {
                    if matches!(self.asks, Asks::Tries { .. }) {
                        // A try that was not granted has left nothing behind when it says so. What cannot be given
                        // back now is given back in the background.
                        let leases = std::mem::take(&mut held.leases);
                        join_all(leases.into_iter().map(Lease::release)).await;
                    }
                    return Err(error);
                }
            }
        }
    }

    /// All are held: they are renewed from here on whoever polls what, and how long they may be held is counted.
    fn begin(&self, leases: &[Lease]) -> Result<()> {
        let holds = leases.iter().map(|lease| lease.parts().0);
        let ids: Vec<u64> = holds
            .map(|hold| {
                hold.begin();
                hold.id
            })
            .collect();
        if self.terms.iter().all(|terms| terms.max_hold.is_none()) {
            return Ok(());
        }
        let look = move |engine: Rc<Engine>| async move { engine.watchdog.look_at(&ids) }.boxed_local();
        self.client.send(Command::Run(Box::new(look)))
    }

    async fn gather(&self, held: &mut Vec<Lease>) -> Result<(), Stopped> {
        let mut together = self.client.capabilities().together;
        while held.len() < self.terms.len() {
            let rest = &self.terms[held.len()..];
            // Up to the one that is in the way they are waited for one by one, and then the rest may be had in one
            // step again.
            let mut last = rest.len() - 1;
            if together && last > 0 {
                match self.in_one_step(rest).await? {
                    Step::All(leases) => {
                        held.extend(leases);
                        return Ok(());
                    }
                    Step::Behind(index) => last = index,
                    Step::Cannot => together = false,
                }
            }
            for terms in &rest[..=last] {
                let lease = self.one(terms, held).await?;
                lease.parts().0.follow(self.pulse);
                held.push(lease);
            }
        }
        Ok(())
    }

    async fn in_one_step(&self, rest: &[Arc<Terms>]) -> Result<Step, Stopped> {
        let wants_busy = self.asks == Asks::Tries { wants_busy: true };
        let order = Order { terms: rest.to_vec(), until: self.until, wants_busy };
        let (reply, answer) = oneshot::channel();
        let work = move |engine: Rc<Engine>| together::acquire(engine, order, reply).boxed_local();
        self.client.send(Command::Run(Box::new(work)))?;
        let stood = answer.await.map_err(|_| janitor::ended())??;
        match stood {
            Stood::All { holds, taken } => {
                for hold in &holds {
                    hold.follow(self.pulse);
                    hold.take();
                }
                let leases = holds.into_iter().map(|hold| Lease::new(hold, self.client.clone())).collect();
                // Nothing is awaited between the answer and this: whoever drops the future before has none of them.
                let _heard = taken.send(());
                Ok(Step::All(leases))
            }
            Stood::Behind { busy, .. } if matches!(self.asks, Asks::Tries { .. }) => {
                Err(Error::Busy(busy).into())
            }
            Stood::Behind { index, .. } => Ok(Step::Behind(index)),
            // The wait is over: the first of them says so, and who has it.
            Stood::Late => Ok(Step::Behind(0)),
            Stood::Cannot => Ok(Step::Cannot),
        }
    }

    /// Acquires one of them, while all that are held already stay so.
    async fn one(&self, terms: &Arc<Terms>, held: &[Lease]) -> Result<Lease, Stopped> {
        let wait = self.until.map(|until| until.since(self.client.clock().now()));
        let wants_busy = self.asks != Asks::Tries { wants_busy: false };
        let acquire = pin!(Acquire::new(self.client.clone(), Terms::clone(terms), wait, wants_busy));
        if held.is_empty() {
            return Ok(acquire.await?);
        }
        let lost = select_all(held.iter().map(|lease| lease.lost().boxed()));
        match select(acquire, lost).await {
            Either::Left((lease, _)) => Ok(lease?),
            Either::Right(_) => Err(Stopped::LostOne),
        }
    }
}

/// What is held so far. Dropping it, at whatever await, gives all of it back.
struct Held {
    leases: Vec<Lease>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if fault!("half_gathered_stays") {
            self.leases.drain(..).for_each(Lease::keep);
        }
    }
}

/// What came of one step.
enum Step {
    All(Vec<Lease>),
    Behind(usize),
    Cannot,
}

/// In the order in which everybody waits for them, each once.
pub(crate) fn in_order(mut terms: Vec<Terms>) -> Vec<Arc<Terms>> {
    fn name(terms: &Terms) -> &LockName {
        &terms.name
    }
    if !fault!("gathered_as_written") {
        terms.sort_by(|one, other| name(one).cmp(name(other)));
    }
    terms.dedup_by(|one, other| name(one) == name(other));
    terms.into_iter().map(Arc::new).collect()
}
