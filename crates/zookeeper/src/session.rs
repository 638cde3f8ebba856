//! Sessions: how long they live, what they carry, and how their end is noticed.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{BootTime, ClaimId, Clock, Doubt};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use zookeeper_client::{Acls, Client, Connector, Error, SessionState, Stat};

use crate::config::Settings;
use crate::fail::{Fail, Result};
use crate::node::Paths;
use crate::touches::Touches;

/// So often a session is touched in its life.
const TOUCHES: u32 = 12;
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
/// A session that carries nothing is kept for so long, for whoever comes next.
const IDLE: Duration = Duration::from_secs(60);
/// The life of a session that carries no claim.
const LOOKING: Duration = Duration::from_secs(10);
/// A leader asks its followers every half tick, and may be so much late.
const LATE: Duration = Duration::from_millis(50);
/// A server that refuses is left alone for so long, however many want a session.
const BACKOFF: Duration = Duration::from_millis(50);

/// One session, over whatever connection.
pub(crate) struct Session {
    client: Client,
    /// What the server gave.
    pub(crate) life: Duration,
    timeout: Duration,
    clock: Clock,
    touches: Mutex<Touches>,
    ended: AtomicBool,
    /// Told when it has ended.
    end: watch::Sender<bool>,
    acls: Acls<'static>,
}

impl Session {
    /// Speaks to the server; an answer that does not come in time is unknown.
    pub(crate) async fn ask<T>(&self, asked: impl Future<Output = Result<T, Error>>) -> Result<T> {
        self.try_ask(asked).await?.map_err(Fail::from)
    }

    /// The same for who knows what to make of a refusal.
    pub(crate) async fn try_ask<T, E>(
        &self,
        asked: impl Future<Output = Result<T, E>>,
    ) -> Result<Result<T, E>> {
        self.clock.within(self.timeout, asked).await.ok_or_else(Fail::silent)
    }

    /// A node's data and stat. `None` when there is no such node.
    pub(crate) async fn read(&self, path: &str) -> Result<Option<(Vec<u8>, Stat)>> {
        match self.try_ask(self.client.get_data(path)).await? {
            Ok(found) => Ok(Some(found)),
            Err(Error::NoNode) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// What is asked of it is sent in the order of these calls, whenever the answers are waited for.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn acls(&self) -> Acls<'static> {
        self.acls
    }

    /// The number by which servers know it.
    pub(crate) fn number(&self) -> i64 {
        self.client.session_id().0
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire) || self.client.state().is_terminated()
    }

    /// Returns when it has ended.
    pub(crate) async fn ends(&self) {
        let mut end = self.end.subscribe();
        let _ = end.wait_for(|ended| *ended).await;
    }

    /// A write was answered that was sent then: for how much longer from `asked` on the session lives at least.
    pub(crate) fn lives(&self, sent: BootTime, asked: BootTime) -> Duration {
        let counted = self.touches.lock().unwrap_or_else(PoisonError::into_inner).proved(sent);
        // It may have been made after the caller asked; nobody is promised more than it lives.
        counted.after(self.life).since(asked).min(self.life)
    }

    /// Whether a node that was created by a session is this one's.
    pub(crate) fn made(&self, stat: &Stat) -> bool {
        stat.ephemeral_owner == self.number()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("life", &self.life).finish_non_exhaustive()
    }
}

/// Whose session: that of all claims with this ttl, or of one claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Whose {
    /// All that ask for so much.
    Shared(Duration),
    /// This claim's.
    Own(ClaimId, Duration),
}

impl Whose {
    fn life(self) -> Duration {
        match self {
            Self::Shared(life) | Self::Own(_, life) => life,
        }
    }
}

struct Open {
    session: Arc<Session>,
    task: JoinHandle<()>,
    used: BootTime,
}

type Slot = Arc<tokio::sync::Mutex<Option<Open>>>;

/// The sessions of one process.
pub(crate) struct Sessions {
    places: String,
    login: Option<leasehold_core::Secret>,
    own: bool,
    timeout: Duration,
    tick: Duration,
    root: String,
    clock: Clock,
    slots: Mutex<HashMap<Whose, Slot>>,
    /// When servers refused last, and how.
    refused: Mutex<Option<(BootTime, Fail)>>,
    doubts: Arc<Doubts>,
}

/// What has happened to connections since it was last told.
#[derive(Debug, Default)]
struct Doubts {
    cut: AtomicBool,
    notify: Notify,
}

impl Doubts {
    fn raise(&self) {
        self.cut.store(true, Ordering::Release);
        self.notify.notify_one();
    }
}

impl Sessions {
    pub(crate) fn new(settings: &Settings, paths: &Paths, clock: &Clock) -> Self {
        let Settings { places, root: _, login, own, timeout, tick, label: _ } = settings;
        Self {
            places: places.join(","),
            login: login.clone(),
            own: *own,
            timeout: *timeout,
            tick: *tick,
            root: paths.root().to_owned(),
            clock: clock.clone(),
            slots: Mutex::default(),
            refused: Mutex::default(),
            doubts: Arc::default(),
        }
    }

    /// The session for a claim.
    pub(crate) async fn of(&self, id: ClaimId, ttl: Duration) -> Result<Arc<Session>> {
        self.get(if self.own { Whose::Own(id, ttl) } else { Whose::Shared(ttl) }).await
    }

    /// A session for somebody without a claim: any that is there.
    pub(crate) async fn any(&self) -> Result<Arc<Session>> {
        let slots: Vec<(Whose, Slot)> =
            self.lock().iter().map(|(whose, slot)| (*whose, slot.clone())).collect();
        for (whose, slot) in slots {
            if let Whose::Shared(_) = whose
                && let Ok(open) = slot.try_lock()
                && let Some(Open { session, .. }) = &*open
                && session.client.state() == SessionState::SyncConnected
            {
                return Ok(session.clone());
            }
        }
        self.get(Whose::Shared(LOOKING)).await
    }

    /// A claim has ended: its own session is not needed any more.
    pub(crate) fn forget(&self, id: ClaimId) {
        self.lock().retain(|whose, slot| {
            let its = matches!(whose, Whose::Own(of, _) if *of == id);
            if its && let Ok(mut open) = slot.try_lock() {
                Open::close_in(&mut open);
            }
            !its
        });
    }

    /// Returns once a connection has ended. Another server will answer, if any: holders are warned until their leases have
    /// been asked for, since it may be long before that is possible.
    pub(crate) async fn doubted(&self) -> Doubt {
        while !self.doubts.cut.swap(false, Ordering::AcqRel) {
            self.doubts.notify.notified().await;
        }
        Doubt::Replaced
    }

    /// Ends all connections. The sessions end by themselves, later.
    pub(crate) fn close(&self) {
        for (_, slot) in self.lock().drain() {
            if let Ok(mut open) = slot.try_lock() {
                Open::close_in(&mut open);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Whose, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last_refusal(&self) -> MutexGuard<'_, Option<(BootTime, Fail)>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn get(&self, whose: Whose) -> Result<Arc<Session>> {
        let slot = self.lock().entry(whose).or_default().clone();
        // Whoever else wants it waits for the same.
        let mut open = slot.lock().await;
        let now = self.clock.now();
        if let Some(there) = &mut *open
            && !there.session.has_ended()
        {
            there.used = now;
            return Ok(there.session.clone());
        }
        Open::close_in(&mut open);
        // However many want one, servers that refuse are not besieged. And nobody is kept waiting for that: who gives up
        // while it waits knows nothing of what it asked for.
        if let Some((at, fail)) = &*self.last_refusal()
            && now.since(*at) < BACKOFF
        {
            return Err(fail.clone());
        }
        let connected = self.connect(whose.life()).await;
        let refused = connected.as_ref().err().map(|fail| (self.clock.now(), fail.clone()));
        *self.last_refusal() = refused;
        let session = Arc::new(connected?);
        let task = tokio::spawn(keep(session.clone(), self.root.clone(), self.doubts.clone()));
        *open = Some(Open { session: session.clone(), task, used: now });
        drop(open);
        self.sweep(now);
        Ok(session)
    }

    /// Lets go of sessions that have carried nothing for long.
    fn sweep(&self, now: BootTime) {
        self.lock().retain(|_, slot| {
            let Ok(mut open) = slot.try_lock() else { return true };
            // The task has one, and the slot.
            let idle = |open: &Open| Arc::strong_count(&open.session) <= 2 && now.since(open.used) > IDLE;
            if open.as_ref().is_some_and(idle) {
                Open::close_in(&mut open);
            }
            open.is_some() || Arc::strong_count(slot) > 1
        });
    }

    /// For how long a session lives that is to live so long. It is ended again.
    pub(crate) async fn granted(&self, life: Duration) -> Result<Duration> {
        Ok(self.reach(Client::connector(), life).await?.session_timeout())
    }

    /// Each server in the URL.
    pub(crate) fn places(&self) -> impl Iterator<Item = &str> {
        self.places.split(',')
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn has_login(&self) -> bool {
        self.login.is_some()
    }

    async fn reach(&self, connector: Connector, life: Duration) -> Result<Client> {
        let mut connector = connector.with_session_timeout(life).with_fail_eagerly();
        if let Some(login) = &self.login {
            connector = connector.with_auth("digest", login.expose().as_bytes());
        }
        match self.clock.within(self.timeout, connector.connect(&self.places)).await {
            None => Err(never_sent(Fail::silent())),
            Some(connected) => connected.map_err(|error| never_sent(Fail::from(error))),
        }
    }

    async fn connect(&self, life: Duration) -> Result<Session> {
        let asked = self.clock.now();
        // Its end must not free what may still be thought held: each lease is given back by itself.
        let client = self.reach(Client::connector().with_detached(), life).await?;
        let life = client.session_timeout();
        let lag = (life / 4).min(self.tick / 2 + LATE);
        Ok(Session {
            client,
            life,
            timeout: self.timeout,
            clock: self.clock.clone(),
            touches: Mutex::new(Touches::new(asked, lag)),
            ended: AtomicBool::new(false),
            end: watch::Sender::new(false),
            acls: if self.login.is_some() { Acls::creator_all() } else { Acls::anyone_all() },
        })
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions")
            .field("places", &self.places)
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}

impl Open {
    fn close_in(slot: &mut Option<Self>) {
        if let Some(Self { session, task, used: _ }) = slot.take() {
            task.abort();
            session.ended.store(true, Ordering::Release);
            session.end.send_replace(true);
        }
    }
}

/// Nothing was asked yet.
fn never_sent(fail: Fail) -> Fail {
    fail.known()
}

/// Touches a session, and notices when its connection ends, or it.
async fn keep(session: Arc<Session>, root: String, doubts: Arc<Doubts>) {
    let pause = (session.life / TOUCHES).max(SHORTEST_PAUSE);
    let mut states = session.client.state_watcher();
    let touching = async {
        loop {
            let sent = session.clock.now();
            if session.client.check_stat(&root).await.is_ok() {
                let answered = session.clock.now();
                session.touches.lock().unwrap_or_else(PoisonError::into_inner).answered(sent, answered);
            }
            session.clock.sleep_until(sent.after(pause)).await;
        }
    };
    let watching = async {
        loop {
            match states.changed().await {
                SessionState::SyncConnected => {}
                state => {
                    if state.is_terminated() {
                        session.ended.store(true, Ordering::Release);
                        session.end.send_replace(true);
                        doubts.raise();
                        return;
                    }
                    doubts.raise();
                }
            }
        }
    };
    tokio::select! {
        () = touching => {}
        () = watching => {}
    }
}
