//! Several names in one step: states their claims together, until all are granted or one is in the way.

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use leasehold_core::{
    BootTime, Busy, Claim, Closure, Error, Grant, Leave, LockName, Op, Result, State, Tenure, Together, fault,
};
use tokio::sync::oneshot;

use crate::engine::Engine;
use crate::event::Event;
use crate::hold::Hold;
use crate::janitor;
use crate::local;
use crate::patience::Patience;
use crate::pursuit::new_claim;
use crate::terms::{self, Terms};
use crate::watchdog::Tenancy;

/// Several names that somebody wants in one step.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) terms: Vec<Arc<Terms>>,
    /// When to stop asking a store that does not answer.
    pub(crate) until: Option<BootTime>,
    /// Whether a "no" should say who is in the way.
    pub(crate) wants_busy: bool,
}

/// What the step came to.
#[derive(Debug)]
pub(crate) enum Stood {
    /// All of them hold.
    All {
        holds: Vec<Arc<Hold>>,
        /// Says that they were taken: nobody has what was answered to a future that is gone.
        taken: oneshot::Sender<()>,
    },
    /// None of them does.
    Behind {
        /// The first that was in the way.
        index: usize,
        busy: Box<Busy>,
    },
    /// There was no answer in time.
    Late,
    /// The store cannot do it for these names.
    Cannot,
}

/// Acquires several names in one step, or says which is in the way; leaves nothing behind if not all are taken.
pub(crate) async fn acquire(engine: Rc<Engine>, order: Order, reply: oneshot::Sender<Result<Stood>>) {
    let work = acquire_counted(&engine, order, reply);
    engine.janitor.sees_to(work).await;
}

async fn acquire_counted(engine: &Rc<Engine>, order: Order, mut reply: oneshot::Sender<Result<Stood>>) {
    let asked = engine.clock.now();
    let mut step = Step {
        engine,
        order: &order,
        claims: Vec::new(),
        stated: false,
        patience: Patience::default(),
        trouble: None,
    };
    let late = async {
        match order.until {
            Some(until) => engine.clock.sleep_until(until).await,
            None => std::future::pending().await,
        }
    };
    let answer = {
        let run = pin!(step.run());
        tokio::select! {
            biased;
            () = reply.closed() => Ok(Ended::Late),
            () = engine.closing.cancelled() => Err(janitor::ended()),
            answer = run => answer,
            () = late => Ok(Ended::Late),
        }
    };
    let (sent, grants) = match answer {
        Ok(Ended::All(sent, grants)) => (sent, grants),
        Ok(Ended::Behind { index, ahead, closed }) => {
            step.withdraw();
            let name = &order.terms[index].name;
            let mut busy = if order.wants_busy {
                engine.busy(name, ahead).await
            } else {
                Busy::unknown(name.clone(), ahead)
            };
            busy.closed = busy.closed.or(closed);
            return drop(reply.send(Ok(Stood::Behind { index, busy: Box::new(busy) })));
        }
        Ok(Ended::Late) => {
            step.withdraw();
            // The store did not answer when last asked: "busy" would be a guess.
            return drop(reply.send(step.trouble.take().map_or(Ok(Stood::Late), Err)));
        }
        Ok(Ended::Cannot) => {
            step.withdraw();
            return drop(reply.send(Ok(Stood::Cannot)));
        }
        Err(error) => {
            step.withdraw();
            return drop(reply.send(Err(error)));
        }
    };
    let holds = step.hold(sent, &grants);
    let (taken, was_taken) = oneshot::channel();
    let answered = reply.send(Ok(Stood::All { holds: holds.clone(), taken })).is_ok();
    let all_taken = answered
        && tokio::select! {
            taken = was_taken => taken.is_ok(),
            () = engine.closing.cancelled() => false,
        };
    if !all_taken && !fault!("no_release_on_drop") {
        for hold in holds {
            local::release(engine, &hold, Leave::Open, None);
        }
        return;
    }
    let waited = engine.clock.now().since(asked);
    for hold in holds {
        let (name, token, remaining) = (hold.name.clone(), hold.token(), hold.remaining());
        engine.emit(&Event::Acquired { name, token, waited, remaining });
    }
}

/// How the step ended.
enum Ended {
    All(BootTime, Vec<Grant>),
    Behind { index: usize, ahead: Option<u32>, closed: Option<Closure> },
    Late,
    Cannot,
}

struct Step<'a> {
    engine: &'a Rc<Engine>,
    order: &'a Order,
    claims: Vec<Claim>,
    /// Whether the store may have granted some of them.
    stated: bool,
    patience: Patience,
    /// The last failure of the store that no good answer has followed.
    trouble: Option<Error>,
}

impl Step<'_> {
    async fn run(&mut self) -> Result<Ended> {
        let engine = self.engine;
        self.renew_ids()?;
        for claim in &self.claims {
            engine.store.capabilities().check(claim)?;
        }
        loop {
            let sent = engine.clock.now();
            let not_after = engine.not_after();
            for claim in &mut self.claims {
                claim.not_after = not_after;
            }
            // What an earlier try did stays unknown, whatever this one says.
            let unknown = std::mem::replace(&mut self.stated, true);
            let ask = engine.store.claim_all(&self.claims);
            let name: Option<&LockName> = self.claims.first().map(|claim| &claim.name);
            match engine.call(Op::Claim, name, engine.settings.timeout, ask).await {
                Ok(together) => {
                    self.patience.restore();
                    self.trouble = None;
                    self.stated = unknown || matches!(together, Together::All(_));
                    if let Some(ended) = self.judge(sent, together) {
                        return Ok(ended);
                    }
                    // Some were granted once and have ended since, or the answer came too late.
                    self.withdraw();
                    self.renew_ids()?;
                }
                Err(Error::Unsupported(_)) => return Ok(Ended::Cannot),
                Err(error) => {
                    self.stated = unknown || error.outcome_unknown();
                    self.trouble = Some(error.clone());
                    if self.patience.ends(engine, &error) {
                        return Err(error);
                    }
                    if fault!("retry_with_new_id") {
                        self.renew_ids()?;
                    }
                }
            }
            self.patience.pause(engine).await;
        }
    }

    /// What follows from the answer; `None` if it is to be asked for again, under new ids.
    fn judge(&self, sent: BootTime, together: Together) -> Option<Ended> {
        let engine = self.engine;
        match together {
            Together::All(standings) => {
                let mut grants = Vec::with_capacity(standings.len());
                for standing in standings {
                    engine.tick(standing.server_time);
                    let State::Granted(grant) = standing.state else { return None };
                    engine.saw(grant.token);
                    grants.push(grant);
                }
                let now = engine.clock.now();
                let holds = |grant: &Grant| now < terms::valid_until(sent, grant.ttl);
                let all = grants.len() == self.claims.len() && grants.iter().all(holds);
                all.then_some(Ended::All(sent, grants))
            }
            Together::None { index, standing } => {
                engine.tick(standing.server_time);
                let index = index.min(self.claims.len().saturating_sub(1));
                match standing.state {
                    State::Waiting { ahead, .. } => Some(Ended::Behind { index, ahead, closed: None }),
                    State::Closed(closed) => Some(Ended::Behind { index, ahead: None, closed: Some(closed) }),
                    _ => None,
                }
            }
        }
    }

    fn renew_ids(&mut self) -> Result<()> {
        let claims = self.order.terms.iter().map(|terms| new_claim(self.engine, terms, 1));
        self.claims = claims.collect::<Result<_>>()?;
        self.stated = false;
        Ok(())
    }

    /// Begins to watch what was granted.
    fn hold(&self, sent: BootTime, grants: &[Grant]) -> Vec<Arc<Hold>> {
        let all = self.claims.iter().zip(&self.order.terms).zip(grants);
        let holds = all.map(|((claim, terms), grant)| {
            let tenancy = Tenancy {
                claim: Arc::new(claim.clone()),
                terms: terms.clone(),
                first: grant.token,
                run: grant.tokens,
                tenure: Tenure { count: 1, token: grant.token, note: terms.note.clone() },
                since: sent,
                granted: grant.ttl,
                sent,
                until: terms::valid_until(sent, grant.ttl),
                failures: 0,
                given: false,
                party: None,
            };
            let hold = tenancy.hold(self.engine);
            self.engine.watchdog.add(hold.clone(), tenancy);
            hold
        });
        holds.collect()
    }

    /// Gives back what the store may have granted.
    fn withdraw(&mut self) {
        if !std::mem::replace(&mut self.stated, false) || fault!("no_release_on_drop") {
            return;
        }
        for claim in &self.claims {
            let expires = self.engine.clock.now().after(claim.ttl);
            drop(janitor::give_back(self.engine, claim, Leave::Open, expires));
        }
    }
}
