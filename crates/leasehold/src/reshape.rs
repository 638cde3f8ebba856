//! How a held lease comes to take more or less, and how a wish for more that nobody has any longer is taken back.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join;
use leasehold_core::{
    BootTime, Busy, Claim, ConfigError, Error, Leave, Lost, LostReason, Op, Result, Share, Standing, State,
    Token, Unsupported, fault,
};
use tokio::sync::{OwnedMutexGuard, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::engine::{BUSY_DEADLINE, Engine};
use crate::event::Event;
use crate::hold::Hold;
use crate::janitor;
use crate::patience::Patience;
use crate::pursuit::REFRESH;
use crate::terms;
use crate::watchdog;

/// How long somebody waits for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Not at all.
    Try,
    /// As long as it takes, or at most so long.
    For(Option<Duration>),
}

/// What somebody who wants more got.
#[derive(Debug)]
pub(crate) struct Grown {
    pub(crate) token: Token,
    /// Says that it was taken: one who was answered and gone before he heard it has wished for nothing.
    pub(crate) taken: oneshot::Sender<()>,
}

/// Makes a reader the writer, as soon as the other readers have left.
pub(crate) async fn grow(
    engine: Rc<Engine>,
    hold: Arc<Hold>,
    wait: Wait,
    reply: oneshot::Sender<Result<Grown>>,
) {
    let work = grow_counted(&engine, &hold, wait, reply);
    engine.janitor.sees_to(work).await;
}

async fn grow_counted(
    engine: &Rc<Engine>,
    hold: &Arc<Hold>,
    wait: Wait,
    mut reply: oneshot::Sender<Result<Grown>>,
) {
    let change = Change::of(engine, hold);
    let limit = if let Wait::For(limit) = wait { limit } else { None };
    let deadline = limit.map(|limit| (limit, engine.clock.now().after(limit)));
    let mut more = pin!(change.more(wait));
    // Stopped, never dropped: a request that was sent and is no longer listened to may arrive after its own undoing.
    tokio::select! {
        biased;
        lost = ended(hold) => drop(reply.send(Err(lost.into()))),
        () = engine.closing.cancelled() => drop(reply.send(Err(janitor::ended()))),
        () = reply.closed() => {}
        () = passed(engine, deadline) => {
            change.stop.cancel();
            let tell = async { drop(reply.send(Err(change.timed_out(limit.unwrap_or_default()).await))) };
            join(tell, async { change.undo(more.await.ok()).await }).await;
            return;
        }
        answer = &mut more => return match answer {
            Ok(token) => change.hand_over(token, reply).await,
            Err(error) if wait == Wait::Try => change.refuse(error, reply).await,
            Err(error) => {
                drop(reply.send(Err(error)));
                change.settle(None).await;
            }
        },
    }
    change.stop.cancel();
    change.undo(more.await.ok()).await;
}

/// Makes a writer a reader. It counts as one from here on; the reply says when the store has acknowledged it.
pub(crate) async fn shrink(engine: Rc<Engine>, hold: Arc<Hold>, reply: oneshot::Sender<Result<()>>) {
    let work = async {
        let change = Change::of(&engine, &hold);
        change.begin().await;
        match hold.shape.less() {
            // It must not count as a reader here, and be the writer there.
            Some(less) if less != hold.shape.share() && !engine.store.capabilities().reshaping => {
                let cannot = Unsupported::new("downgrades: give it back, and acquire it for reading");
                drop(reply.send(Err(cannot.into())));
            }
            Some(less) => {
                if less != hold.shape.share() {
                    hold.shape.unsettled.store(true, Ordering::SeqCst);
                    change.becomes(less, None);
                }
                change.settle(Some(reply)).await;
            }
            None => {
                let message =
                    format!("{}: {} is neither a reader nor a writer", hold.name, hold.shape.share());
                let error = ConfigError::new(message).help("give it back, and ask for less");
                drop(reply.send(Err(error.into())));
            }
        }
    };
    engine.janitor.sees_to(work).await;
}

async fn ended(hold: &Hold) -> Lost {
    let mut news = hold.news();
    let reason = news.wait_for(|news| news.reason.is_some()).await.ok().and_then(|news| news.reason);
    Lost::new(reason.unwrap_or(LostReason::Expired))
}

async fn passed(engine: &Engine, deadline: Option<(Duration, BootTime)>) {
    match deadline {
        Some((_, deadline)) => engine.clock.sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// One change of what a lease takes.
struct Change<'a> {
    engine: &'a Rc<Engine>,
    hold: &'a Arc<Hold>,
    /// Nobody else changes it meanwhile.
    turn: RefCell<Option<OwnedMutexGuard<()>>>,
    /// Nobody wants more any longer.
    stop: CancellationToken,
    /// The last failure of the store that no good answer has followed.
    trouble: RefCell<Option<Error>>,
}

/// What was wanted is wanted no longer.
fn stopped() -> Error {
    Lost::new(LostReason::Released).into()
}

impl<'a> Change<'a> {
    fn of(engine: &'a Rc<Engine>, hold: &'a Arc<Hold>) -> Self {
        let (turn, stop, trouble) = (RefCell::default(), CancellationToken::new(), RefCell::default());
        Self { engine, hold, turn, stop, trouble }
    }

    /// Waits for its turn.
    async fn begin(&self) {
        if self.turn.borrow().is_some() {
            return;
        }
        let shape = &self.hold.shape;
        let _waits = Waits::new(&shape.waiting);
        let turn = shape.turn.clone().lock_owned().await;
        self.turn.replace(Some(turn));
    }

    /// The claim behind the lease, for a restatement that changes what holds and creates nothing.
    fn claim(&self) -> Option<Claim> {
        let claim = self.engine.watchdog.restate(self.hold.id)?;
        // It succeeds itself: a store that has forgotten the lease then says so. Asked for as a claim like any other
        // it would be granted anew, or stand in the line, and what was lost would seem to have been held throughout.
        let succeeds = Some(claim.id);
        Some(Claim { succeeds, tokens: 1, seen: self.engine.seen.get(), ..claim })
    }

    async fn ask(&self, claim: &mut Claim) -> Result<Standing> {
        let engine = self.engine;
        claim.not_after = engine.not_after();
        let ask = engine.store.claim(claim);
        let answer = engine.call(Op::Claim, Some(&self.hold.name), engine.settings.timeout, ask).await;
        if let Ok(standing) = &answer {
            engine.tick(standing.server_time);
        }
        answer
    }

    /// Asks for all of it until it is granted.
    async fn more(&self, wait: Wait) -> Result<Token> {
        let (engine, shape) = (self.engine, &self.hold.shape);
        tokio::select! {
            () = self.begin() => {}
            () = self.stop.cancelled() => return Err(stopped()),
        }
        let Some(mut claim) = self.claim() else { return Err(Lost::new(LostReason::Released).into()) };
        match claim.share {
            Share::EXCLUSIVE => return Ok(self.hold.token()),
            Share::UPGRADEABLE => {}
            share => {
                let name = &self.hold.name;
                let message = format!("{name}: a lease that is {share} cannot become the writer");
                let help =
                    "take it with `rwlock(name).upgradeable()`: two plain readers would wait for each other";
                return Err(ConfigError::new(message).help(help).into());
            }
        }
        if !engine.store.capabilities().reshaping {
            return Err(Unsupported::new("upgrades: give it back, and acquire it for writing").into());
        }
        claim.share = Share::EXCLUSIVE;
        let mut patience = Patience::default();
        while !self.stop.is_cancelled() {
            shape.unsettled.store(true, Ordering::SeqCst);
            match self.ask(&mut claim).await {
                Ok(Standing { state, cursor, server_time: _ }) => {
                    patience.restore();
                    self.trouble.replace(None);
                    match state {
                        State::Granted(grant) => return Ok(grant.token),
                        State::Spent => return Err(self.forgotten().into()),
                        State::Waiting { ahead, .. } if wait == Wait::Try => {
                            let busy = Busy::unknown(self.hold.name.clone(), ahead);
                            return Err(Error::Busy(Box::new(busy)));
                        }
                        State::Waiting { .. } => {
                            let until = engine.clock.now().after(terms::jitter(REFRESH));
                            tokio::select! {
                                _ = patience.listen(engine, &self.hold.name, &cursor, until) => {}
                                () = self.stop.cancelled() => {}
                            }
                        }
                        _ => patience.pause(engine).await,
                    }
                }
                Err(error) => {
                    self.trouble.replace(Some(error.clone()));
                    if patience.ends(engine, &error) {
                        return Err(error);
                    }
                    tokio::select! {
                        () = patience.pause(engine) => {}
                        () = self.stop.cancelled() => {}
                    }
                }
            }
        }
        Err(stopped())
    }

    /// The store no longer knows the lease.
    fn forgotten(&self) -> Lost {
        watchdog::lose(self.engine, self.hold.id, LostReason::StoreForgot);
        Lost::new(self.hold.reason().unwrap_or(LostReason::StoreForgot))
    }

    /// Takes this much from now on.
    fn becomes(&self, share: Share, token: Option<Token>) {
        let party = self.engine.watchdog.reshape(self.hold.id, share, token);
        if let Some(token) = token {
            self.engine.saw(token);
        }
        let (name, token) = (self.hold.name.clone(), self.hold.token());
        self.engine.emit(&Event::Reshaped { name, token, share });
        // Those who stood behind it go to the store's line: there they hold newcomers back.
        if let Some(party) = party {
            self.engine.go_on(&party);
        }
    }

    /// Gives the grown lease to whoever asked, or makes it what it was if he has gone.
    async fn hand_over(&self, token: Token, reply: oneshot::Sender<Result<Grown>>) {
        let shape = &self.hold.shape;
        let before = shape.share();
        if before != Share::EXCLUSIVE {
            self.becomes(Share::EXCLUSIVE, Some(token));
            shape.unsettled.store(false, Ordering::SeqCst);
        }
        if let Err(lost) = self.hold.check() {
            // Its time ran out before the answer came.
            drop(reply.send(Err(lost.into())));
            return;
        }
        let (taken, was_taken) = oneshot::channel();
        let answered = reply.send(Ok(Grown { token: self.hold.token(), taken })).is_ok();
        let gone = !answered
            || tokio::select! {
                taken = was_taken => taken.is_err(),
                () = self.engine.closing.cancelled() => true,
            };
        if gone && before != Share::EXCLUSIVE {
            self.becomes(before, None);
            shape.unsettled.store(true, Ordering::SeqCst);
            self.settle(None).await;
        }
    }

    /// A try that did not succeed has left nothing behind when it says so, unless the store is silent.
    async fn refuse(&self, error: Error, reply: oneshot::Sender<Result<Grown>>) {
        let patience = self.engine.clock.now().after(self.engine.settings.timeout);
        let mut settled = pin!(self.settle(None));
        let done = tokio::select! {
            () = &mut settled => true,
            () = self.engine.clock.sleep_until(patience) => false,
        };
        drop(reply.send(Err(error)));
        if !done {
            settled.await;
        }
    }

    /// Makes it what it was, though it may have been granted more after all.
    async fn undo(&self, granted: Option<Token>) {
        if let Some(token) = granted.filter(|_| self.hold.shape.share() != Share::EXCLUSIVE) {
            // The store has given it a new token, which stays.
            self.becomes(self.hold.shape.share(), Some(token));
        }
        self.settle(None).await;
    }

    /// States what is held until the store has acknowledged it, or the lease has ended: a wish for more that nobody
    /// has would hold newcomers back for as long as the lease lives.
    async fn settle(&self, mut reply: Option<oneshot::Sender<Result<()>>>) {
        let (engine, shape) = (self.engine, &self.hold.shape);
        let mut patience = Patience::default();
        let mut answer = |result| {
            if let Some(reply) = reply.take() {
                // Whoever asked may have stopped waiting.
                drop(reply.send(result));
            }
        };
        self.begin_if_unsettled().await;
        while shape.unsettled.load(Ordering::SeqCst) && !fault!("dropped_upgrade_waits_on") {
            let claim = self.claim().filter(|_| self.hold.check().is_ok());
            let Some(mut claim) = claim else {
                let lost = self.hold.check().err().unwrap_or(Lost::new(LostReason::Released));
                return answer(Err(lost.into()));
            };
            let again = match self.ask(&mut claim).await.map(|standing| standing.state) {
                Ok(State::Granted(_)) => {
                    // What was sent before and never answered has a lower number: should it arrive yet, nothing is done.
                    shape.unsettled.store(false, Ordering::SeqCst);
                    return answer(Ok(()));
                }
                Ok(state) => {
                    if state != State::Spent {
                        let expires = engine.clock.now().after(claim.ttl);
                        drop(janitor::give_back(engine, &claim, Leave::Open, expires));
                    }
                    return answer(Err(self.forgotten().into()));
                }
                Err(error) => {
                    let hopeless = !(error.is_retryable() || error.outcome_unknown());
                    if patience.ends(engine, &error) {
                        answer(Err(error));
                    }
                    if hopeless {
                        return;
                    }
                    engine.clock.now().after(patience.next())
                }
            };
            // Whoever wants another share now states that, and settles it.
            let mut waiting = shape.waiting.subscribe();
            tokio::select! {
                () = engine.clock.sleep_until(again) => {}
                _ = waiting.wait_for(|waiting| *waiting > 0) => return,
                _ = ended(self.hold) => {}
            }
        }
        answer(Ok(()));
    }

    async fn begin_if_unsettled(&self) {
        if self.hold.shape.unsettled.load(Ordering::SeqCst) {
            self.begin().await;
        }
    }

    /// What to say at the end of the wait: who is in the way, besides the lease itself.
    async fn timed_out(&self, waited: Duration) -> Error {
        let trouble = self.trouble.borrow().clone();
        if let Some(trouble) = trouble {
            return trouble;
        }
        let (engine, name) = (self.engine, &self.hold.name);
        let id = engine.watchdog.claim(self.hold.id).map(|claim| claim.id);
        let looked = engine.call(Op::Inspect, Some(name), BUSY_DEADLINE, engine.store.inspect(name)).await;
        let busy = match looked {
            Ok(mut snapshot) => {
                snapshot.holders.retain(|holder| Some(holder.id) != id);
                Busy::from_snapshot(&snapshot, None, &engine.settings.owner)
            }
            Err(_) => Busy::unknown(name.clone(), None),
        };
        Error::TimedOut { waited, busy: Box::new(busy) }
    }
}

/// Counts somebody who waits for his turn, for as long as he does.
struct Waits<'a>(&'a watch::Sender<u32>);

impl<'a> Waits<'a> {
    fn new(waiting: &'a watch::Sender<u32>) -> Self {
        waiting.send_modify(|waiting| *waiting += 1);
        Self(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}
