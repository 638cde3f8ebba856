//! The connection: at most one answer to each request, a deadline round each, and a new connection where the old
//! one has gone silent.

mod greeting;
mod live;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use leasehold_core::{Clock, Doubt, StoreErrorKind};
use redis::aio::{MultiplexedConnection, PubSubSink};
use redis::{Cmd, Msg, PushInfo, RedisResult, Value};
use tokio::sync::Mutex;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::timeout;

use live::Asking;
pub(crate) use live::{Doubts, Live};

use crate::config::{Settings, Site};
use crate::fail::{Fail, Result};
use crate::members::Members;
use crate::nodes::Peers;
use crate::script::Script;
use crate::sentinel::{Found, Lookout};
use crate::transport::{Door, login};

/// How soon the sentinels are asked again who named a server that is no master.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// The way to one server. There is at most one connection at a time.
pub(crate) struct Link {
    route: Route,
    limit: Duration,
    restart_delay: Duration,
    label: String,
    peers: Peers,
    members: Option<Members>,
    clock: Clock,
    doubts: Arc<Doubts>,
    state: Arc<Mutex<State>>,
    attempts: AtomicU64,
    /// Who listen to the sentinels, from the first connection on.
    watching: std::sync::Mutex<JoinSet<()>>,
}

/// How the server is found.
enum Route {
    Fixed(Arc<Door>),
    Watched(Arc<Lookout>),
}

#[derive(Default)]
struct State {
    live: Option<Arc<Live>>,
    /// Why the last attempt to connect failed.
    failed: Option<Fail>,
    /// Which process of the server was spoken to last, and after how many moves of the master.
    seen: Option<(u64, String)>,
}

impl Link {
    pub(crate) fn new(settings: &Settings, clock: Clock) -> Result<Self> {
        let Settings { user, password, database, timeout: limit, .. } = settings;
        let login = login(user.as_deref(), password.as_ref(), *database);
        let route = match &settings.site {
            Site::Fixed(place) => Route::Fixed(Arc::new(Door::to(place, login, *limit)?)),
            // One for each of its nodes is made by whoever knows them.
            Site::Cluster(_) => return Err(Fail::garbled("a cluster is no one server")),
            Site::Watched(sentinels) => Route::Watched(Arc::new(Lookout::new(sentinels, login, *limit)?)),
        };
        Ok(Self {
            route,
            limit: *limit,
            restart_delay: settings.restart_delay,
            label: settings.label.clone(),
            peers: settings.peers.clone(),
            members: settings.members.clone(),
            clock,
            doubts: Arc::default(),
            state: Arc::default(),
            attempts: AtomicU64::new(0),
            watching: std::sync::Mutex::default(),
        })
    }

    /// Tells its doubts to those who share them: the nodes of a cluster are one store.
    pub(crate) fn doubting(mut self, doubts: &Arc<Doubts>) -> Self {
        self.doubts = doubts.clone();
        self
    }

    /// How long one answer may take.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Sends one request.
    pub(crate) async fn call(&self, command: &Cmd) -> Result<Value> {
        let live = self.live().await?;
        self.call_on(&live, command).await
    }

    /// Runs a script, and brings it along where the server does not know it.
    pub(crate) async fn run_on(
        &self,
        live: &Live,
        script: &Script,
        keys: &[String],
        args: &[Vec<u8>],
    ) -> Result<Value> {
        match self.call_on(live, &script.by_hash(keys, args)).await {
            Err(fail) if fail.is("NOSCRIPT") => self.call_on(live, &script.by_source(keys, args)).await,
            answer => answer,
        }
    }

    pub(crate) async fn call_on(&self, live: &Live, command: &Cmd) -> Result<Value> {
        let mut connection = live.connection.clone();
        self.answered(live, connection.send_packed_command(command)).await
    }

    /// Sends one request to a node of a cluster to which its slot is on its way. Scripts come with their source: a
    /// node that does not know one forgets that it was asked.
    pub(crate) async fn call_asking(&self, live: &Live, command: &Cmd) -> Result<Value> {
        let mut connection = live.connection.clone();
        let mut both = redis::pipe();
        both.add_command(redis::cmd("ASKING")).add_command(command.clone());
        let told = async {
            let told = connection.send_packed_commands(&both, 1, 1).await?;
            Ok(told.into_iter().next().unwrap_or(Value::Nil))
        };
        self.answered(live, told).await
    }

    async fn answered(&self, live: &Live, answer: impl Future<Output = RedisResult<Value>>) -> Result<Value> {
        let mut asking =
            Asking { live, clock: &self.clock, since: self.clock.now(), least: Some(self.limit / 16) };
        let answer = tokio::select! {
            biased;
            // What an old master says, now that there is a new one, is no proof of anything.
            () = live.at.outdated() => None,
            answer = timeout(self.limit, answer) => Some(answer),
        };
        asking.least = None;
        drop(asking);
        let answer = match answer {
            None => {
                let message =
                    "the sentinels know another master by now, and what this one says counts no more";
                Err(Fail::new(StoreErrorKind::Unavailable, message).help("try again").unknown())
            }
            Some(Err(_)) => {
                live.miss();
                let message = format!("the server did not answer within {:?}", self.limit);
                let help = "see what holds it up, such as a slow script or a fork: `redis-cli --latency`";
                Err(Fail::new(StoreErrorKind::Unavailable, message).help(help).unknown())
            }
            Some(Ok(answer)) => {
                let answer = answer.and_then(Value::extract_error).map_err(Fail::from);
                match &answer {
                    // A replica is left, since the master may be elsewhere by now.
                    Err(fail) if fail.is("READONLY") || fail.is("MASTERDOWN") => {
                        live.give_up();
                        self.doubts.replaced.notify_one();
                    }
                    Err(fail) if fail.outcome_unknown() => live.give_up(),
                    _ => live.misses.store(0, Ordering::SeqCst),
                }
                answer
            }
        };
        answer.map_err(|fail| live.at.told(fail))
    }

    /// The connection, made anew where there is none.
    pub(crate) async fn live(&self) -> Result<Arc<Live>> {
        let before = self.attempts.load(Ordering::SeqCst);
        let mut state = self.state.lock().await;
        if let Some(live) = state.live.as_ref().filter(|live| live.is_usable()) {
            return Ok(live.clone());
        }
        // Who waited while somebody else failed is told so, rather than fail once more one after the other.
        if let Some(failed) = state.failed.clone().filter(|_| self.attempts.load(Ordering::SeqCst) != before)
        {
            return Err(failed);
        }
        state.live = None;
        let connected = match timeout(2 * self.limit, self.connect()).await {
            Ok(connected) => connected,
            Err(_) => Err(self.silent()),
        };
        self.attempts.fetch_add(1, Ordering::SeqCst);
        match connected {
            Ok((live, run_id)) => {
                let (moves, live) = (live.at.moves(), Arc::new(live));
                if let Some(run_id) = run_id {
                    // That it is elsewhere was told when it was heard.
                    let other = |(before, seen): &(u64, String)| *before == moves && *seen != run_id;
                    if state.seen.as_ref().is_some_and(other) {
                        self.doubts.replaced.notify_one();
                    }
                    state.seen = Some((moves, run_id));
                }
                (state.live, state.failed) = (Some(live.clone()), None);
                Ok(live)
            }
            Err(fail) => {
                state.failed = Some(fail.clone());
                Err(fail)
            }
        }
    }

    fn silent(&self) -> Fail {
        match &self.route {
            Route::Fixed(door) => door.silent(),
            Route::Watched(lookout) => lookout.silent(),
        }
    }

    async fn connect(&self) -> Result<(Live, Option<String>)> {
        let lookout = match &self.route {
            Route::Fixed(door) => return self.connect_to(Found::fixed(door.clone())).await,
            Route::Watched(lookout) => lookout,
        };
        self.watch(lookout);
        let until = self.clock.now().after(self.limit / 2);
        loop {
            let found = lookout.find().await?;
            let connected = tokio::select! {
                biased;
                () = found.outdated() => continue,
                connected = self.connect_to(found.clone()) => connected,
            };
            match connected {
                // They may be about to make it one, or have not noticed yet that it is none.
                Err(fail) if fail.is("READONLY") && self.clock.now() < until => {}
                Err(fail) if fail.is("READONLY") => {
                    return Err(
                        fail.help("a failover may be under way: `redis-cli -p 26379 SENTINEL MASTERS`")
                    );
                }
                connected => return connected,
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// Has the sentinels listened to, unless that is so.
    fn watch(&self, lookout: &Arc<Lookout>) {
        let mut tasks = self.watching.lock().unwrap_or_else(PoisonError::into_inner);
        // None of them ends by itself, but with its runtime.
        if !tasks.is_empty() && tasks.try_join_next().is_none() {
            return;
        }
        *tasks = JoinSet::new();
        lookout.watch(&mut tasks);
        let (mut moves, doubts, state) = (lookout.moves(), self.doubts.clone(), self.state.clone());
        tasks.spawn(async move {
            while moves.next().await.is_some() {
                doubts.replaced.notify_one();
                state.lock().await.live.take_if(|live| !live.is_usable());
            }
        });
    }

    async fn connect_to(&self, at: Found) -> Result<(Live, Option<String>)> {
        let dead = Arc::new(AtomicBool::new(false));
        let (doubts, given_up) = (self.doubts.clone(), dead.clone());
        let ended = move || {
            if !given_up.swap(true, Ordering::SeqCst) {
                doubts.cut.notify_one();
            }
        };
        let door = at.door.clone();
        let opened = door.open(ended).await;
        let (connection, driver) = opened.map_err(|error| at.told(door.failed(error.into())))?;
        let mut live = Live::new(connection, at, dead, driver);
        let run_id = self.greet(&mut live).await?;
        Ok((live, run_id))
    }

    /// Returns once what the server granted may be gone.
    pub(crate) async fn doubt(&self) -> Doubt {
        self.doubts.next().await
    }

    /// Sends one request to a server whatever its role: over the connection if there is one, else over a new one that
    /// is given up afterwards.
    pub(crate) async fn ask_aside(&self, command: &Cmd) -> Result<Value> {
        let live = self.state.try_lock().ok().and_then(|state| state.live.clone());
        if let Some(live) = live.filter(|live| live.is_usable()) {
            return self.call_on(&live, command).await;
        }
        self.door().await?.ask(command).await
    }

    /// Sends one request over a connection that nothing else goes over.
    pub(crate) async fn ask_apart(&self, command: &Cmd) -> Result<Value> {
        self.door().await?.ask(command).await
    }

    /// A connection of its own for all that is told: see [`Door::hear`].
    pub(crate) async fn hear(&self) -> Result<(MultiplexedConnection, UnboundedReceiver<PushInfo>)> {
        self.door().await?.hear().await
    }

    async fn door(&self) -> Result<Arc<Door>> {
        Ok(self.found().await?.door)
    }

    /// The server that is spoken to.
    async fn found(&self) -> Result<Found> {
        match &self.route {
            Route::Fixed(door) => Ok(Found::fixed(door.clone())),
            // The one that is asked for leases.
            Route::Watched(_) => Ok(self.live().await?.at.clone()),
        }
    }

    /// A connection of its own that hears one channel; it ends when the master is another one.
    pub(crate) async fn subscribe(&self, channel: &str) -> Result<(PubSubSink, BoxStream<'static, Msg>)> {
        let at = self.found().await?;
        let (sink, stream) = at.door.subscribe(channel).await?;
        Ok((sink, stream.take_until(Box::pin(async move { at.outdated().await })).boxed()))
    }

    /// Waits until so many replicas have what this connection wrote, and says whether they do.
    pub(crate) async fn replicated(&self, live: &Live, replicas: u32) -> Result<bool> {
        let patience = u64::try_from(self.limit.as_millis() / 2).unwrap_or(1).max(1);
        let mut wait = redis::cmd("WAIT");
        wait.arg(replicas).arg(patience);
        let have = crate::script::number(&self.call_on(live, &wait).await?)?;
        Ok(have >= i64::from(replicas))
    }

    /// Who is asked where the server is, if that is not always the same.
    pub(crate) fn lookout(&self) -> Option<&Lookout> {
        match &self.route {
            Route::Fixed(_) => None,
            Route::Watched(lookout) => Some(lookout),
        }
    }

    /// Gives the connection up.
    pub(crate) async fn close(&self) {
        *self.watching.lock().unwrap_or_else(PoisonError::into_inner) = JoinSet::new();
        self.state.lock().await.live = None;
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("limit", &self.limit).finish_non_exhaustive()
    }
}
