//! The connection: at most one answer to each request, a deadline round each, and a new connection where the old
//! one has gone silent.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{BootTime, Clock, Doubt, StoreErrorKind, fault};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    RedisConnectionInfo, RedisResult, TlsCertificates, Value,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{Mutex, Notify};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::config::{Place, Settings};
use crate::fail::{Fail, Result};
use crate::members::Members;
use crate::nodes::Peers;
use crate::script::{Answer, MEMBERS, Script, text};

/// After so many requests without an answer a connection counts as dead: no client library notices one on which
/// nothing arrives any more.
const MOST_MISSES: u32 = 2;

/// The way to one server. There is at most one connection at a time.
pub(crate) struct Link {
    client: Client,
    place: Place,
    limit: Duration,
    /// What to look at when nobody answers.
    advice: &'static str,
    restart_delay: Duration,
    label: String,
    peers: Peers,
    members: Option<Members>,
    clock: Clock,
    doubts: Arc<Doubts>,
    state: Mutex<State>,
    attempts: AtomicU64,
}

#[derive(Default)]
struct State {
    live: Option<Arc<Live>>,
    /// Why the last attempt to connect failed.
    failed: Option<Fail>,
    /// Which process of the server was spoken to last.
    run_id: Option<String>,
}

/// What speaks against the server still having what it granted.
#[derive(Debug, Default)]
struct Doubts {
    cut: Notify,
    replaced: Notify,
}

/// One connection.
pub(crate) struct Live {
    connection: MultiplexedConnection,
    misses: AtomicU32,
    /// Given up by us. The task that drives it knows, too: then its end is no news.
    dead: Arc<AtomicBool>,
    /// That task, where it is ours.
    driver: Option<AbortHandle>,
    /// Until then the server may have forgotten what was granted before its start, and is still held.
    shut_until: Option<BootTime>,
}

/// What a server says of itself.
#[derive(Debug, Default)]
struct Told {
    /// Which process it is.
    run_id: Option<String>,
    /// For how long it has run.
    uptime: Option<Duration>,
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(driver) = &self.driver {
            driver.abort();
        }
    }
}

/// A request under way. Who has a deadline of his own drops it before ours: that it was not answered counts all the
/// same, or a connection that has gone silent would be kept for ever.
struct Asking<'a> {
    live: &'a Live,
    clock: &'a Clock,
    since: BootTime,
    /// Shorter waits say nothing. `None` once it is over.
    least: Option<Duration>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.least.is_some_and(|least| self.clock.now().since(self.since) >= least) {
            self.live.miss();
        }
    }
}

impl Live {
    fn miss(&self) {
        if self.misses.fetch_add(1, Ordering::SeqCst) + 1 >= MOST_MISSES {
            self.give_up();
        }
    }

    /// Whoever asks next gets a new one.
    pub(crate) fn give_up(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }
}

impl Link {
    pub(crate) fn new(settings: &Settings, clock: Clock) -> Result<Self> {
        Ok(Self {
            client: client(settings)?,
            place: settings.place.clone(),
            limit: settings.timeout,
            advice: settings.place.advice(),
            restart_delay: settings.restart_delay,
            label: settings.label.clone(),
            peers: settings.peers.clone(),
            members: settings.members.clone(),
            clock,
            doubts: Arc::default(),
            state: Mutex::default(),
            attempts: AtomicU64::new(0),
        })
    }

    /// Sends one request.
    pub(crate) async fn call(&self, command: &Cmd) -> Result<Value> {
        let live = self.live().await?;
        self.call_on(&live, command).await
    }

    /// Runs a script, and brings it along where the server does not know it.
    pub(crate) async fn run(&self, script: &Script, keys: &[String], args: &[Vec<u8>]) -> Result<Value> {
        let live = self.live().await?;
        self.run_on(&live, script, keys, args).await
    }

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
        let mut asking =
            Asking { live, clock: &self.clock, since: self.clock.now(), least: Some(self.limit / 16) };
        let answer = timeout(self.limit, connection.send_packed_command(command)).await;
        asking.least = None;
        drop(asking);
        match answer {
            Err(_) => {
                live.miss();
                let message = format!("the server did not answer within {:?}", self.limit);
                let help = "see what holds it up, such as a slow script or a fork: `redis-cli --latency`";
                Err(Fail::new(StoreErrorKind::Unavailable, message).help(help).unknown())
            }
            Ok(answer) => {
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
        }
    }

    /// The connection, made anew where there is none.
    pub(crate) async fn live(&self) -> Result<Arc<Live>> {
        let before = self.attempts.load(Ordering::SeqCst);
        let mut state = self.state.lock().await;
        if let Some(live) = state.live.as_ref().filter(|live| !live.dead.load(Ordering::SeqCst)) {
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
                let live = Arc::new(live);
                if state.run_id.is_some() && run_id.is_some() && state.run_id != run_id {
                    self.doubts.replaced.notify_one();
                }
                state.run_id = run_id.or_else(|| state.run_id.take());
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
        let message = format!("no connection within {:?}", self.limit);
        Fail::new(StoreErrorKind::Unavailable, message).help(self.advice)
    }

    async fn connect(&self) -> Result<(Live, Option<String>)> {
        let dead = Arc::new(AtomicBool::new(false));
        let (connection, driver) = self.open(&dead).await.map_err(|error| {
            let fail = Fail::from(error).not_sent();
            if fail.has_help() { fail } else { fail.help(self.advice) }
        })?;
        let (misses, shut_until) = (AtomicU32::new(0), None);
        let mut live = Live { connection, misses, dead, driver, shut_until };
        // A server that does not want this client may say so, or hang up, at the first request only.
        let first = |fail: Fail| {
            let fail = fail.not_sent();
            if fail.has_help() { fail } else { fail.help(self.advice) }
        };
        self.refuse_replicas(&live).await.map_err(first)?;
        let Told { run_id, uptime } = self.ask_itself(&live).await.map_err(first)?;
        if let Some(run_id) = &run_id {
            self.peers.meet(&self.label, run_id).map_err(Fail::not_sent)?;
        }
        self.agree(&live).await.map_err(Fail::not_sent)?;
        if !self.restart_delay.is_zero() {
            let Some(uptime) = uptime else {
                return Err(Fail::new(
                    StoreErrorKind::Denied,
                    "restart_delay= needs to know when the server was started",
                )
                .help("give this user the right +info"));
            };
            // It tells whole seconds, of which the last may just have begun.
            let left = (self.restart_delay + Duration::from_secs(1)).saturating_sub(uptime);
            live.shut_until = (!left.is_zero()).then(|| self.clock.now().after(left));
        }
        Ok((live, run_id))
    }

    /// Compares the list of nodes with those that other clients came with, where this is one of them. A server on which
    /// that cannot be noted (by its rights, or for want of memory) keeps locks all the same.
    async fn agree(&self, live: &Live) -> Result<()> {
        let Some(members) = &self.members else { return Ok(()) };
        let (keys, words) = members.words();
        match self.run_on(live, &MEMBERS, &keys, &words).await {
            Ok(told) => members.hear(&self.label, told),
            Err(fail) if fail.outcome_unknown() => Err(fail),
            Err(_) => Ok(()),
        }
    }

    /// Whether the server, which was started a short while ago, may grant anything yet.
    pub(crate) fn may_grant(&self, live: &Live) -> Result<()> {
        if fault!("redis_grants_at_once") {
            return Ok(());
        }
        let left = live.shut_until.map_or(Duration::ZERO, |end| end.since(self.clock.now()));
        if left.is_zero() {
            return Ok(());
        }
        let message = format!(
            "the server was started a moment ago, and may have forgotten what is held: nothing is granted for another \
             {left:.1?} (restart_delay={:?})",
            self.restart_delay,
        );
        Err(Fail::new(StoreErrorKind::Unavailable, message)
            .help(
                "wait: what was granted before has run out by then; restart_delay=0s is for a server that keeps each \
                 write at once (appendfsync always)",
            ))
    }

    /// Opens a connection, and has its end noticed at once: whoever holds something must not learn of it by the next
    /// renewal. Of one over TLS, which the library opens, that is so all the same.
    async fn open(
        &self,
        dead: &Arc<AtomicBool>,
    ) -> RedisResult<(MultiplexedConnection, Option<AbortHandle>)> {
        // Deadlines are ours, so that the library's own, which cost a timer for each request, are off.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        match &self.place {
            Place::Tcp { host, port, tls: None } => {
                let opened = timeout(self.limit, TcpStream::connect((host.as_str(), *port))).await;
                let stream = opened.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
                stream.set_nodelay(true)?;
                self.drive(stream, config, dead).await
            }
            Place::Unix(path) => self.drive(UnixStream::connect(path).await?, config, dead).await,
            Place::Tcp { tls: Some(_), .. } => {
                let config = config.set_connection_timeout(Some(self.limit));
                let opened = self.client.get_multiplexed_async_connection_with_config(&config).await;
                opened.map(|connection| (connection, None))
            }
        }
    }

    async fn drive<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
        config: AsyncConnectionConfig,
        dead: &Arc<AtomicBool>,
    ) -> RedisResult<(MultiplexedConnection, Option<AbortHandle>)> {
        let login = self.client.get_connection_info().redis_settings();
        let logging_in = MultiplexedConnection::new_with_config(login, stream, config);
        let (connection, driving) = logging_in.await?;
        let (doubts, dead) = (self.doubts.clone(), dead.clone());
        let driver = tokio::spawn(async move {
            driving.await;
            if !dead.swap(true, Ordering::SeqCst) {
                doubts.cut.notify_one();
            }
        });
        Ok((connection, Some(driver.abort_handle())))
    }

    /// Returns once what the server granted may be gone.
    pub(crate) async fn doubt(&self) -> Doubt {
        tokio::select! {
            biased;
            () = self.doubts.replaced.notified() => Doubt::Replaced,
            () = self.doubts.cut.notified() => Doubt::Cut,
        }
    }

    async fn refuse_replicas(&self, live: &Live) -> Result<()> {
        let mut answer = match self.call_on(live, &redis::cmd("ROLE")).await {
            Ok(value) => Answer::new(value)?,
            // Not every user may ask; then the first write tells.
            Err(fail) if fail.is("NOPERM") => return Ok(()),
            Err(fail) => return Err(fail),
        };
        let what = match answer.text()?.as_str() {
            "master" => return Ok(()),
            "slave" => format!("a replica of {}:{}", answer.text()?, answer.natural()?),
            role => format!("no master: its role is {role}"),
        };
        self.doubts.replaced.notify_one();
        Err(Fail::new(StoreErrorKind::Unavailable, format!("this server is {what}"))
            .help("name the master in the URL, or let Sentinel find it: redis+sentinel:"))
    }

    async fn ask_itself(&self, live: &Live) -> Result<Told> {
        match self.call_on(live, redis::cmd("INFO").arg("server")).await {
            Ok(value) => {
                let told = text(value)?;
                let line = |start| told.lines().find_map(|line| line.strip_prefix(start)).map(str::trim);
                let uptime = line("uptime_in_seconds:").and_then(|seconds| seconds.parse().ok());
                Ok(Told {
                    run_id: line("run_id:").map(str::to_owned),
                    uptime: uptime.map(Duration::from_secs),
                })
            }
            Err(fail) if fail.is("NOPERM") => Ok(Told::default()),
            Err(fail) => Err(fail),
        }
    }

    /// A connection of its own that hears one channel.
    pub(crate) async fn subscribe(
        &self,
        channel: &str,
    ) -> Result<(redis::aio::PubSubSink, redis::aio::PubSubStream)> {
        let subscribing = async {
            let mut pubsub = self.client.get_async_pubsub().await?;
            pubsub.subscribe(channel).await?;
            Ok::<_, redis::RedisError>(pubsub.split())
        };
        match timeout(self.limit, subscribing).await {
            Ok(subscribed) => Ok(subscribed?),
            Err(_) => Err(self.silent()),
        }
    }

    /// Waits until so many replicas have what this connection wrote, and says whether they do.
    pub(crate) async fn replicated(&self, live: &Live, replicas: u32) -> Result<bool> {
        let patience = u64::try_from(self.limit.as_millis() / 2).unwrap_or(1).max(1);
        let mut wait = redis::cmd("WAIT");
        wait.arg(replicas).arg(patience);
        let have = crate::script::number(&self.call_on(live, &wait).await?)?;
        Ok(have >= i64::from(replicas))
    }

    /// Gives the connection up.
    pub(crate) async fn close(&self) {
        self.state.lock().await.live = None;
    }
}

fn client(settings: &Settings) -> Result<Client> {
    let mut login = RedisConnectionInfo::default().set_db(settings.database).set_skip_set_lib_name();
    if let Some(user) = &settings.user {
        login = login.set_username(user);
    }
    if let Some(password) = &settings.password {
        login = login.set_password(password.expose());
    }
    let (addr, ca) = match &settings.place {
        Place::Unix(path) => (ConnectionAddr::Unix(path.clone()), None),
        Place::Tcp { host, port, tls: None } => (ConnectionAddr::Tcp(host.clone(), *port), None),
        Place::Tcp { host, port, tls: Some(ca) } => {
            // Without one the library panics, where it should say so. An application may have chosen its own.
            if rustls::crypto::CryptoProvider::get_default().is_none() {
                drop(rustls::crypto::ring::default_provider().install_default());
            }
            let addr =
                ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None };
            (addr, Some(ca.clone()))
        }
    };
    let info: ConnectionInfo = addr.into_connection_info()?.set_redis_settings(login);
    let client = match ca {
        None => Client::open(info),
        Some(root_cert) => Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert }),
    };
    client.map_err(|error| {
        let fail = Fail::from(error).not_sent();
        if fail.has_help() { fail } else { fail.help(settings.place.advice()) }
    })
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("limit", &self.limit).finish_non_exhaustive()
    }
}
