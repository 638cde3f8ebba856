//! The one acquire loop: states a claim, waits for its turn, and states it again until it is granted.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Busy, Claim, ClaimId, Cursor, Error, Grant, Leave, Lost, LostReason, Op, PLACE_LIFE, Queueing, Result,
    Standing, State, Tenure, Turn, fault,
};

use crate::engine::Engine;
use crate::event::Event;
use crate::janitor;
use crate::party::{Party, Stage, Waiter};
use crate::patience::Patience;
use crate::terms::{self, Terms};
use crate::watchdog::Tenancy;

/// How many tokens to reserve when several tasks of this process want the name.
const RUN: u32 = 101;
/// How often a waiter's place is refreshed: three times in its life, so that one lost request costs no place.
pub(crate) const REFRESH: Duration = PLACE_LIFE.checked_div(3).unwrap();

/// How one claim ended.
enum Ended {
    /// Somebody has the lease.
    Given,
    /// Nobody wants it on these terms any more: look who is first now.
    Again,
    /// Its id is spent, so the next one is new. A store that failed before has not served us by saying so.
    Spent(Patience),
    /// A try that was not granted.
    Busy(Box<Busy>),
    /// The store failed for too long, or for good.
    Failed(Error),
}

/// Acquires the name for whoever of the party is first, until somebody has it or nobody wants it.
pub(crate) async fn pursue(engine: Rc<Engine>, party: Rc<Party>) {
    let mut patience = Patience::default();
    while let Some(head) = party.head() {
        match pursue_for(&engine, &party, &head, std::mem::take(&mut patience)).await {
            Ended::Given => return,
            Ended::Again => {}
            Ended::Spent(kept) => patience = kept,
            Ended::Busy(busy) => engine.fail(&party, &Error::Busy(busy)),
            Ended::Failed(error) => engine.fail(&party, &error),
        }
    }
    engine.go_on(&party);
}

async fn pursue_for(engine: &Rc<Engine>, party: &Rc<Party>, head: &Waiter, patience: Patience) -> Ended {
    // Alone there is nobody to hand on to.
    let tokens = if party.len() > 1 { RUN } else { 1 };
    let claim = match new_claim(engine, &head.terms, tokens) {
        Ok(claim) => claim,
        Err(error) => return Ended::Failed(error),
    };
    if let Err(error) = engine.store.capabilities().check(&claim) {
        return Ended::Failed(error);
    }
    let mut chase = Chase { engine, party, head, claim, stated: false, patience, told: false };
    let ended = tokio::select! {
        ended = chase.run() => ended,
        () = party.turned_away_from(&head.terms) => Ended::Again,
    };
    if !matches!(ended, Ended::Given) {
        chase.withdraw();
    }
    ended
}

/// A claim that nobody has stated yet.
pub(crate) fn new_claim(engine: &Engine, terms: &Terms, tokens: u32) -> Result<Claim> {
    Ok(Claim {
        name: terms.name.clone(),
        id: ClaimId::random()?,
        owner: engine.settings.owner.clone(),
        share: terms.share,
        reshape: 0,
        turn: terms.turn,
        ttl: terms.ttl,
        note: terms.note.clone(),
        anchored: terms.anchored,
        aftermath: terms.aftermath,
        succeeds: terms.succeeds,
        tokens,
        seen: engine.seen.get(),
        proposed: None,
        not_after: None,
    })
}

/// The chase of one claim.
struct Chase<'a> {
    engine: &'a Rc<Engine>,
    party: &'a Rc<Party>,
    head: &'a Waiter,
    claim: Claim,
    /// Whether the store may have heard of it, and not said that it is gone.
    stated: bool,
    patience: Patience,
    told: bool,
}

impl Chase<'_> {
    async fn run(&mut self) -> Ended {
        self.party.heard.set(false);
        loop {
            let sent = self.engine.clock.now();
            self.claim.not_after = self.engine.not_after();
            let before = std::mem::replace(&mut self.stated, true);
            let ask = self.engine.store.claim(&self.claim);
            let deadline = self.engine.settings.timeout;
            match self.engine.call(Op::Claim, Some(&self.claim.name), deadline, ask).await {
                // Where there is no line no place is lost with the id: it is asked for under another one, and whoever waits
                // is no closer to the end of his patience, nor farther from it.
                Ok(Standing { state: State::Spent, .. }) if self.stands_in_no_line() => {
                    self.stated = false;
                    match ClaimId::random() {
                        Ok(id) => self.claim.id = id,
                        Err(error) => return Ended::Failed(error),
                    }
                }
                Ok(Standing { state, cursor, server_time }) => {
                    self.engine.tick(server_time);
                    if state != State::Spent {
                        self.patience.restore();
                        self.party.trouble.replace(None);
                    }
                    self.party.heard.set(true);
                    let sent = if fault!("validity_from_reply") { self.engine.clock.now() } else { sent };
                    if let Some(ended) = self.stands(sent, state, &cursor).await {
                        return ended;
                    }
                }
                Err(error) => {
                    // What surely was not executed has left nothing to be given back.
                    if !error.outcome_unknown() {
                        self.stated = before;
                    }
                    if let Some(ended) = self.failed(error).await {
                        return ended;
                    }
                }
            }
        }
    }

    fn stands_in_no_line(&self) -> bool {
        self.claim.succeeds.is_none() && self.engine.store.capabilities().queueing == Queueing::Never
    }

    /// What follows from where the claim stands; `None` once it is time to state it again.
    async fn stands(
        &mut self,
        sent: leasehold_core::BootTime,
        state: State,
        cursor: &Cursor,
    ) -> Option<Ended> {
        match state {
            State::Granted(grant) => Some(self.granted(sent, grant)),
            State::Spent => {
                self.stated = false;
                // What was to be taken over is held no longer, and never will be again.
                let gone = || Ended::Failed(Lost::new(LostReason::StoreForgot).into());
                let spent = Ended::Spent(std::mem::take(&mut self.patience));
                Some(self.claim.succeeds.map_or(spent, |_| gone()))
            }
            State::Waiting { ahead, .. } if self.claim.turn == Turn::Now => {
                self.stated = fault!("try_leaves_place");
                Some(Ended::Busy(Box::new(self.busy(ahead).await)))
            }
            State::Closed(closure) if self.claim.turn == Turn::Now => {
                self.stated = false;
                let mut busy = self.busy(None).await;
                busy.closed = busy.closed.or(Some(closure));
                Some(Ended::Busy(Box::new(busy)))
            }
            State::Waiting { ahead, .. } => {
                self.tell(ahead);
                self.wait(cursor).await;
                None
            }
            State::Closed(_) => {
                self.tell(None);
                self.wait(cursor).await;
                None
            }
            // Nothing is proposed yet; a store that refuses all the same, or says what we do not know, is asked
            // again no faster than one that fails.
            _ => {
                self.patience.pause(self.engine).await;
                None
            }
        }
    }

    fn tell(&mut self, ahead: Option<u32>) {
        self.party.ahead.set(ahead);
        if !std::mem::replace(&mut self.told, true) {
            self.engine.emit(&Event::Waiting { name: self.claim.name.clone(), ahead });
        }
    }

    async fn busy(&self, ahead: Option<u32>) -> Busy {
        if self.head.wants_busy {
            self.engine.busy(&self.claim.name, ahead).await
        } else {
            Busy::unknown(self.claim.name.clone(), ahead)
        }
    }

    /// Waits until it may be our turn, or the place has to be refreshed. A place is refreshed only for a future
    /// that is polled: one that lies about unpolled would take no lease when its turn came.
    async fn wait(&mut self, cursor: &Cursor) {
        let clock = &self.engine.clock;
        let refresh = clock.now().after(terms::jitter(REFRESH));
        if self.patience.listen(self.engine, &self.claim.name, cursor, refresh).await {
            // Whoever the chase began for may have gone, and others go on waiting under his claim.
            while self.party.first_on(&self.head.terms).is_some_and(|first| !first.ticket.shows_life()) {
                clock.sleep_until(clock.now().after(REFRESH)).await;
            }
        }
    }

    /// A claim that failed is stated again with the same id, since it may have been granted: until the store has
    /// been silent for too long, or said no for good.
    async fn failed(&mut self, error: Error) -> Option<Ended> {
        self.party.trouble.replace(Some(error.clone()));
        if self.patience.ends(self.engine, &error) {
            return Some(Ended::Failed(error));
        }
        if fault!("retry_with_new_id") {
            self.claim.id = ClaimId::random().unwrap_or(self.claim.id);
        }
        self.patience.pause(self.engine).await;
        None
    }

    fn granted(&mut self, sent: leasehold_core::BootTime, grant: Grant) -> Ended {
        let Grant { token, tokens, ttl } = grant;
        let engine = self.engine;
        engine.saw(token.after(tokens.saturating_sub(1)).unwrap_or(token));
        let until = terms::valid_until(sent, ttl);
        if engine.clock.now() >= until {
            // Granted, but the answer came too late: it is given back, and asked for again under a new id.
            return Ended::Again;
        }
        let mut tenancy = Tenancy {
            claim: Arc::new(self.claim.clone()),
            terms: self.head.terms.clone(),
            first: token,
            run: tokens,
            tenure: Tenure { count: 1, token, note: self.head.terms.note.clone() },
            since: sent,
            granted: ttl,
            sent,
            until,
            failures: 0,
            party: self.party.open.then(|| self.party.clone()),
            given: false,
        };
        while let Some(waiter) = self.party.first_on(&self.head.terms) {
            tenancy.terms = waiter.terms.clone();
            tenancy.tenure.note = waiter.terms.note.clone();
            let hold = tenancy.hold(engine);
            self.party.leave(waiter.seq);
            engine.watchdog.add(hold.clone(), tenancy.clone());
            self.party.stage.set(Stage::Held);
            if waiter.ticket.answer(Ok(hold.clone())).is_ok() {
                let (name, remaining) = (hold.name.clone(), hold.remaining());
                let waited = engine.clock.now().since(waiter.asked);
                engine.emit(&Event::Acquired { name, token, waited, remaining });
                return Ended::Given;
            }
            engine.watchdog.remove(hold.id);
        }
        self.party.stage.set(Stage::Pursuing);
        Ended::Again
    }

    /// Gives back what the store may hold of this claim.
    fn withdraw(&self) {
        if self.stated && !fault!("no_release_on_drop") {
            let expires = self.engine.clock.now().after(self.claim.ttl.max(PLACE_LIFE));
            drop(janitor::give_back(self.engine, &self.claim, Leave::Open, expires));
        }
    }
}
