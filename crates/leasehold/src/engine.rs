//! The client's own thread: it owns all I/O, timers, renewals and releases, so that nothing depends on the
//! runtime, or the lack of one, in the user's program.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use leasehold_core::{
    BootTime, Busy, Clock, ConfigError, Error, Leave, LockName, Op, Owner, Result, ServerTime, Share, Store,
    StoreError, StoreErrorKind, Token, Turn,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::event::{self, Event, Observer};
use crate::hold::Hold;
use crate::janitor::Janitor;
use crate::knots::{self, Knots};
use crate::local;
use crate::nesting::Asker;
use crate::party::{Party, Stage, Waiter};
use crate::pursuit;
use crate::sim::Rests;
use crate::terms::Terms;
use crate::ticket::Ticket;
use crate::watchdog::{self, Watchdog};

/// How long a "no" may take to find out who has it.
pub(crate) const BUSY_DEADLINE: Duration = Duration::from_millis(250);
/// How long a claim may be under way, by the store's clock, before it is no longer executed.
pub(crate) const CLAIM_UNDER_WAY: Duration = Duration::from_secs(5);

/// What the engine is asked from outside.
pub(crate) enum Command {
    Acquire(Request),
    /// The future of an acquire was dropped.
    Abandon {
        name: LockName,
        seq: u64,
    },
    Release {
        hold: Arc<Hold>,
        leave: Leave,
        reply: Option<oneshot::Sender<Result<()>>>,
    },
    /// Watch it no longer, and give nothing back.
    Keep {
        hold: Arc<Hold>,
    },
    /// Renew now, and say when it was answered.
    Ensure {
        hold: Arc<Hold>,
        reply: oneshot::Sender<Result<()>>,
    },
    /// Anything else: runs on the engine's thread.
    Run(Box<dyn FnOnce(Rc<Engine>) -> LocalBoxFuture<'static, ()> + Send>),
    /// Finish what is under way, close the store, end.
    Close {
        reply: oneshot::Sender<Result<()>>,
    },
}

/// One acquire, as it was asked for.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) seq: u64,
    pub(crate) ticket: Arc<Ticket>,
    pub(crate) terms: Arc<Terms>,
    pub(crate) wait: Option<Duration>,
    pub(crate) wants_busy: bool,
    pub(crate) asker: Arc<Asker>,
}

/// How commands reach the engine.
pub(crate) type Handle = mpsc::UnboundedSender<Command>;

/// What an engine needs to start.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) clock: Clock,
    pub(crate) owner: Owner,
    pub(crate) timeout: Duration,
    pub(crate) observers: Vec<Arc<dyn Observer>>,
    /// Told when the thread has nothing more to do: a simulation waits for that.
    pub(crate) rests: Option<Rests>,
}

/// Gives the store, on the engine's thread: opening may block.
pub(crate) type Opener = Box<dyn FnOnce() -> Result<Arc<dyn Store>> + Send>;

/// Tells when the store is open.
pub(crate) type Opening = oneshot::Receiver<Result<Arc<dyn Store>>>;

/// Starts the thread; the receiver tells when the store is open.
pub(crate) fn start(settings: Settings, open: Opener) -> Result<(Handle, Opening)> {
    let (handle, commands) = mpsc::unbounded_channel();
    let (opened, opening) = oneshot::channel();
    let body = move || match open() {
        Ok(store) => {
            // Whoever asked for the store may have gone meanwhile; then no command follows either.
            drop(opened.send(Ok(store.clone())));
            serve(settings, store, commands);
        }
        Err(error) => drop(opened.send(Err(error))),
    };
    match std::thread::Builder::new().name("leasehold".to_owned()).spawn(body) {
        Ok(_) => Ok((handle, opening)),
        Err(error) => {
            Err(ConfigError::new(format!("no thread could be started for the client: {error}")).into())
        }
    }
}

fn serve(settings: Settings, store: Arc<dyn Store>, mut commands: mpsc::UnboundedReceiver<Command>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    if let Some(rests) = &settings.rests {
        runtime.on_thread_park(rests.bell());
    }
    let runtime = match runtime.enable_all().build() {
        Ok(runtime) => runtime,
        // No file descriptors left, say. Dropping the commands answers each with an error.
        Err(error) => return tracing::error!(%error, "the client's runtime could not be started"),
    };
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async move {
        let engine = Rc::new_cyclic(|me| Engine::new(settings, store, me.clone()));
        let watch = tokio::task::spawn_local(engine.clone().watch());
        let doubts = tokio::task::spawn_local(watchdog::doubts(engine.clone()));
        let knots = tokio::task::spawn_local(knots::watch(engine.clone()));
        let mut closing = None;
        while let Some(command) = commands.recv().await {
            if let Command::Close { reply } = command {
                closing = Some(reply);
                break;
            }
            engine.clone().obey(command);
        }
        // What comes after the close hears that the client is closed, when its sender is dropped.
        commands.close();
        while let Ok(command) = commands.try_recv() {
            engine.clone().obey(command);
        }
        engine.closing.cancel();
        engine.turn_all_away().await;
        engine.janitor.idle(&engine.clock, engine.settings.timeout).await;
        let closed = engine.store.close().await;
        watch.abort();
        doubts.abort();
        knots.abort();
        if let Some(reply) = closing {
            drop(reply.send(closed));
        }
    });
}

/// The state of a client, on its own thread.
#[derive(Debug)]
pub(crate) struct Engine {
    /// Itself, for what it starts.
    pub(crate) me: Weak<Engine>,
    pub(crate) store: Arc<dyn Store>,
    /// The store's name for errors.
    pub(crate) store_name: String,
    pub(crate) clock: Clock,
    pub(crate) settings: Settings,
    pub(crate) watchdog: Watchdog,
    pub(crate) janitor: Janitor,
    /// Cancelled when the client is being closed: whoever waits for a store gives up.
    pub(crate) closing: CancellationToken,
    pub(crate) knots: Knots,
    /// The parties that may be joined, by name.
    lines: RefCell<HashMap<LockName, Rc<Party>>>,
    /// Those who stand alone, by the number of their acquire.
    singles: RefCell<HashMap<u64, Rc<Party>>>,
    /// The highest token that came by: tokens rise above it even over a store that forgot.
    pub(crate) seen: Cell<Option<Token>>,
    /// The store's clock when it last answered.
    server: Cell<Option<(ServerTime, BootTime)>>,
    next_hold: Cell<u64>,
}

impl Engine {
    fn new(settings: Settings, store: Arc<dyn Store>, me: Weak<Self>) -> Self {
        Self {
            me,
            store_name: store.to_string(),
            store,
            clock: settings.clock.clone(),
            watchdog: Watchdog::new(settings.clock.clone()),
            janitor: Janitor::default(),
            closing: CancellationToken::new(),
            knots: Knots::default(),
            lines: RefCell::default(),
            singles: RefCell::default(),
            seen: Cell::default(),
            server: Cell::default(),
            next_hold: Cell::new(1),
            settings,
        }
    }

    async fn watch(self: Rc<Self>) {
        watchdog::watch(self).await;
    }

    fn obey(self: Rc<Self>, command: Command) {
        match command {
            Command::Acquire(request) => self.acquire(request),
            Command::Abandon { name, seq } => {
                let single = self.singles.borrow().get(&seq).cloned();
                let line = self.lines.borrow().get(&name).cloned();
                for party in single.into_iter().chain(line) {
                    party.look_again();
                }
            }
            Command::Release { hold, leave, reply } => local::release(&self, &hold, leave, reply),
            Command::Keep { hold } => local::keep(&self, &hold),
            Command::Ensure { hold, reply } => self.watchdog.ensure(&hold, reply),
            Command::Run(work) => drop(tokio::task::spawn_local(work(self))),
            Command::Close { reply } => drop(reply.send(Ok(()))),
        }
    }

    fn acquire(self: Rc<Self>, request: Request) {
        let Request { seq, ticket, terms, wait, wants_busy, asker } = request;
        let joins = terms.share == Share::EXCLUSIVE && terms.turn != Turn::Now;
        let name = terms.name.clone();
        let party = if joins {
            let fresh = || Rc::new(Party::new(name.clone(), true));
            self.lines.borrow_mut().entry(name.clone()).or_insert_with(fresh).clone()
        } else {
            let party = Rc::new(Party::new(name, false));
            self.singles.borrow_mut().insert(seq, party.clone());
            party
        };
        let deadline = wait.map(|wait| {
            let (engine, party) = (self.clone(), party.clone());
            let expires = self.clock.now().after(wait);
            tokio::task::spawn_local(async move {
                engine.clock.sleep_until(expires).await;
                engine.time_out(&party, seq, wait).await;
            })
            .abort_handle()
        });
        let asked = self.clock.now();
        party.join(Waiter { seq, ticket, terms, asked, wait, wants_busy, asker }, deadline);
        self.knots.somebody_waits();
        if party.stage.get() == Stage::Idle {
            self.go_on(&party);
        }
    }

    /// Pursues the name for whoever of the party still waits, or forgets the party.
    pub(crate) fn go_on(self: &Rc<Self>, party: &Rc<Party>) {
        if party.head().is_some() {
            party.stage.set(Stage::Pursuing);
            tokio::task::spawn_local(pursuit::pursue(self.clone(), party.clone()));
            return;
        }
        party.stage.set(Stage::Idle);
        if party.open {
            self.lines.borrow_mut().remove(&party.name);
        } else {
            self.singles.borrow_mut().retain(|_, other| !Rc::ptr_eq(other, party));
        }
    }

    /// Who waits, of all parties.
    pub(crate) fn waiting(&self) -> Vec<Waiter> {
        let (lines, singles) = (self.lines.borrow(), self.singles.borrow());
        lines.values().chain(singles.values()).flat_map(|party| party.waiting()).collect()
    }

    /// Ends every pursuit, and returns once each has handed what it stated to the janitor: a place that nobody
    /// waits in would hold others up for as long as it lives.
    async fn turn_all_away(&self) {
        let mut parties: Vec<_> = self.lines.borrow().values().cloned().collect();
        parties.extend(self.singles.borrow().values().cloned());
        for party in parties {
            self.fail(&party, &crate::janitor::ended());
            party.look_again();
            while party.stage.get() == Stage::Pursuing {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Tells a waiter that his time is up. He leaves the line at once; who has it is found out after that.
    pub(crate) async fn time_out(&self, party: &Party, seq: u64, waited: Duration) {
        // Whoever was handed a lease and has not taken it yet is timed out if it is taken back from him.
        let Some(waiter) = party.find(seq).filter(|waiter| waiter.ticket.is_waiting()) else { return };
        let ahead = party.ahead_of(seq);
        // The answer is awaited below, so the deadline task must not stop itself by leaving.
        party.leave_at_deadline(seq);
        let trouble = party.trouble.borrow().clone();
        let unheard = party.stage.get() == Stage::Pursuing && !party.heard.get();
        let answer = match trouble {
            // The store did not answer when last asked: "busy" would be a guess.
            Some(error) => error,
            None => match self.look(&party.name, ahead).await {
                // Nor has it ever, and not now either.
                Err(_) if unheard => self.no_answer(Op::Claim, Some(&party.name), waited),
                busy => {
                    let busy = busy.unwrap_or_else(|_| Busy::unknown(party.name.clone(), ahead));
                    Error::TimedOut { waited, busy: Box::new(busy) }
                }
            },
        };
        // His future may have been dropped meanwhile.
        if waiter.ticket.answer(Err(answer.clone())).is_ok() {
            self.not_acquired(&waiter, answer);
        }
    }

    /// Answers all of a party with this error.
    pub(crate) fn fail(&self, party: &Party, error: &Error) {
        for waiter in party.fail(error) {
            self.not_acquired(&waiter, error.clone());
        }
    }

    fn not_acquired(&self, waiter: &Waiter, error: Error) {
        let (name, waited) = (waiter.terms.name.clone(), self.clock.now().since(waiter.asked));
        self.emit(&Event::NotAcquired { name, waited, error });
    }

    /// Who has a name, as far as can be found out quickly.
    pub(crate) async fn busy(&self, name: &LockName, ahead: Option<u32>) -> Busy {
        self.look(name, ahead).await.unwrap_or_else(|_| Busy::unknown(name.clone(), ahead))
    }

    async fn look(&self, name: &LockName, ahead: Option<u32>) -> Result<Busy> {
        let snapshot = self.call(Op::Inspect, Some(name), BUSY_DEADLINE, self.store.inspect(name)).await?;
        Ok(Busy::from_snapshot(&snapshot, ahead, &self.settings.owner))
    }

    /// Asks the store, for at most `deadline`. What is not answered by then has an unknown outcome.
    pub(crate) async fn call<T>(
        &self,
        op: Op,
        name: Option<&LockName>,
        deadline: Duration,
        ask: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let sent = self.clock.now();
        let answer = self.clock.within(deadline, ask).await;
        let answer = answer.unwrap_or_else(|| Err(self.no_answer(op, name, deadline)));
        self.asked(op, name, sent, answer.as_ref().err());
        answer
    }

    pub(crate) fn no_answer(&self, op: Op, name: Option<&LockName>, deadline: Duration) -> Error {
        let error = StoreError::new(StoreErrorKind::Unavailable, op, &self.store_name)
            .saying(format!("no answer in {deadline:.1?}"))
            .unknown();
        name.map_or(error.clone(), |name| error.about(name)).into()
    }

    pub(crate) fn asked(&self, op: Op, name: Option<&LockName>, sent: BootTime, error: Option<&Error>) {
        if self.settings.observers.is_empty() && !tracing::enabled!(tracing::Level::TRACE) {
            return;
        }
        let took = self.clock.now().since(sent);
        self.emit(&Event::Asked { op, name: name.cloned(), took, error: error.cloned() });
    }

    pub(crate) fn emit(&self, event: &Event) {
        event::trace(event);
        for observer in &self.settings.observers {
            observer.on(event);
        }
    }

    pub(crate) fn next_hold(&self) -> u64 {
        self.next_hold.replace(self.next_hold.get() + 1)
    }

    /// Remembers a token that came by.
    pub(crate) fn saw(&self, token: Token) {
        self.seen.set(self.seen.get().max(Some(token)));
    }

    /// Remembers the store's clock; `None` forgets it, after an answer that may mean that it stepped.
    pub(crate) fn tick(&self, server: Option<ServerTime>) {
        self.server.set(server.map(|server| (server, self.clock.now())));
    }

    /// Until when, by the store's clock, a claim that is sent now may be executed.
    pub(crate) fn not_after(&self) -> Option<ServerTime> {
        let (server, then) = self.server.get()?;
        Some(server.after(self.clock.now().since(then)).after(CLAIM_UNDER_WAY))
    }
}
