//! The way to the cluster: one connection to one member at a time, and a deadline for each answer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Doubt, Op, Result as StoreResult};
use tokio::sync::Notify;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Response, Status};

use crate::config::{Settings, Tls};
use crate::fail::{Fail, Result, What};
use crate::proto::auth_client::AuthClient;
use crate::proto::{AuthenticateRequest, ResponseHeader};

/// How often a connection is asked whether it lives while requests are under way. etcd hangs up on who asks more often
/// than each 5 s (its `--grpc-keepalive-min-time`), so a dead one is found out by the deadline of an answer before.
const PING: Duration = Duration::from_secs(6);
/// Larger than any line that works; etcd itself takes at most 1.5 MB.
const MOST_BYTES: usize = 64 << 20;

type Answering<T> = Pin<Box<dyn Future<Output = Result<Response<T>, Status>> + Send>>;

/// The members, one of which is spoken to.
pub(crate) struct Link {
    hosts: Vec<Host>,
    at: AtomicUsize,
    settings: Settings,
    token: Mutex<Option<MetadataValue<Ascii>>>,
    seen: Mutex<Seen>,
    doubt: Mutex<Option<Doubt>>,
    doubts: Notify,
}

struct Host {
    place: String,
    endpoint: Endpoint,
    channel: Mutex<Option<Channel>>,
}

/// What the cluster said of itself so far.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    cluster: u64,
    revision: i64,
    /// The highest one ever, whatever became of that cluster: no token may be below it.
    highest: i64,
}

impl Link {
    pub(crate) fn new(settings: &Settings) -> StoreResult<Self> {
        let hosts = settings.places.iter().map(|place| {
            let endpoint = endpoint(place, settings).map_err(|fail| {
                let fail: Fail = fail;
                fail.into_error(Op::Open, None, &settings.label)
            })?;
            Ok(Host { place: place.clone(), endpoint, channel: Mutex::new(None) })
        });
        let hosts = hosts.collect::<StoreResult<Vec<_>>>()?;
        // Clients spread over the members.
        let at = AtomicUsize::new(fastrand::usize(..hosts.len().max(1)));
        Ok(Self {
            hosts,
            at,
            settings: settings.clone(),
            token: Mutex::default(),
            seen: Mutex::default(),
            doubt: Mutex::default(),
            doubts: Notify::new(),
        })
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.settings.timeout
    }

    pub(crate) fn places(&self) -> impl Iterator<Item = &str> {
        self.hosts.iter().map(|host| host.place.as_str())
    }

    /// Asks the member that is spoken to, and the next one where it does not answer. What is asked must be such that
    /// asking twice is asking once.
    pub(crate) async fn call<M: Clone, T>(
        &self,
        message: M,
        ask: impl Fn(Channel, Request<M>) -> Answering<T>,
    ) -> Result<T> {
        let mut unknown = false;
        let mut attempts = self.hosts.len().max(2);
        let mut logged_in = false;
        loop {
            let index = self.at.load(Ordering::Relaxed) % self.hosts.len().max(1);
            let fail = match self.ask(index, message.clone(), &ask).await {
                Ok(answer) => return Ok(answer),
                Err(fail) => fail,
            };
            unknown |= fail.is_unknown();
            attempts -= 1;
            match fail.what() {
                What::Login if !logged_in && self.settings.login.is_some() => {
                    logged_in = true;
                    *lock(&self.token) = None;
                    attempts += 1;
                }
                What::Away | What::Unreached => {
                    self.leave(index);
                    if attempts == 0 {
                        return Err(if unknown { fail.unknown() } else { fail });
                    }
                }
                _ => return Err(if unknown { fail.unknown() } else { fail }),
            }
        }
    }

    /// Asks one member once.
    pub(crate) async fn ask<M, T>(
        &self,
        index: usize,
        message: M,
        ask: impl Fn(Channel, Request<M>) -> Answering<T>,
    ) -> Result<T> {
        let Some(host) = self.hosts.get(index) else { return Err(Fail::garbled("no member is named")) };
        let answer = async {
            let channel = host.channel();
            let request = self.request(&channel, &host.place, message).await?;
            ask(channel, request).await.map_err(|status| Fail::from_status(&status, &host.place))
        };
        match tokio::time::timeout(self.settings.timeout, answer).await {
            Ok(answer) => answer.map(Response::into_inner),
            Err(_) => {
                // What is silent now would be silent to the next request, too.
                host.hang_up();
                Err(Fail::silent(&host.place))
            }
        }
    }

    /// A channel to whichever member is spoken to, a request that it takes, and which member that is: for a stream.
    pub(crate) async fn open<M>(&self, message: M) -> Result<(Channel, Request<M>, usize)> {
        let index = self.at.load(Ordering::Relaxed) % self.hosts.len().max(1);
        let Some(host) = self.hosts.get(index) else { return Err(Fail::garbled("no member is named")) };
        let channel = host.channel();
        let asked = tokio::time::timeout(self.settings.timeout, self.request(&channel, &host.place, message));
        match asked.await {
            Ok(request) => Ok((channel, request?, index)),
            Err(_) => {
                self.leave(index);
                Err(Fail::silent(&host.place))
            }
        }
    }

    /// What a member said that ended a stream.
    pub(crate) fn failed(&self, index: usize, status: Option<&Status>) -> Fail {
        let place = self.hosts.get(index).map_or("", |host| &host.place);
        let fail = status.map_or_else(|| Fail::silent(place), |status| Fail::from_status(status, place));
        if fail.what() == What::Login {
            *lock(&self.token) = None;
        }
        fail
    }

    /// Goes on to the next member, unless somebody else has already.
    pub(crate) fn leave(&self, index: usize) {
        if let Some(host) = self.hosts.get(index) {
            host.hang_up();
        }
        let next = (index + 1) % self.hosts.len().max(1);
        let _ = self.at.compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
        self.doubt(Doubt::Cut);
    }

    pub(crate) fn close(&self) {
        self.hosts.iter().for_each(Host::hang_up);
    }

    async fn request<M>(&self, channel: &Channel, place: &str, message: M) -> Result<Request<M>> {
        let mut request = Request::new(message);
        if let Some((user, password)) = &self.settings.login {
            let known = lock(&self.token).clone();
            let token = match known {
                Some(token) => token,
                None => {
                    let login =
                        AuthenticateRequest { name: user.clone(), password: password.expose().to_owned() };
                    let told = AuthClient::new(channel.clone()).authenticate(login).await;
                    let told = told.map_err(|status| Fail::from_status(&status, place))?;
                    let mut token: MetadataValue<Ascii> = told
                        .into_inner()
                        .token
                        .parse()
                        .map_err(|_| Fail::garbled("a token of a login that is no text"))?;
                    token.set_sensitive(true);
                    *lock(&self.token) = Some(token.clone());
                    token
                }
            };
            request.metadata_mut().insert("token", token);
        }
        Ok(request)
    }

    /// The highest revision that this cluster was seen at.
    pub(crate) fn revision(&self) -> i64 {
        lock(&self.seen).revision
    }

    /// The highest that was ever seen.
    pub(crate) fn highest(&self) -> i64 {
        lock(&self.seen).highest
    }

    /// Notes the revision of an answer to what was asked when `before` was the highest one seen. One that is lower
    /// comes from a cluster that was restored from a copy, or from another one.
    pub(crate) fn saw(&self, header: Option<&ResponseHeader>, before: i64) -> Result<i64> {
        let Some(ResponseHeader { cluster_id, revision, .. }) = header else {
            return Err(Fail::garbled("an answer without a revision"));
        };
        let mut seen = lock(&self.seen);
        let other = seen.cluster != 0 && *cluster_id != 0 && seen.cluster != *cluster_id;
        if *cluster_id != 0 {
            seen.cluster = *cluster_id;
        }
        // What was asked before somebody noticed is no news.
        let back = *revision < before && *revision < seen.revision;
        seen.revision = if other || back { *revision } else { seen.revision.max(*revision) };
        seen.highest = seen.highest.max(*revision);
        drop(seen);
        if other || back {
            self.doubt(Doubt::Replaced);
        }
        Ok(*revision)
    }

    pub(crate) fn doubt(&self, doubt: Doubt) {
        let mut standing = lock(&self.doubt);
        if *standing != Some(Doubt::Replaced) {
            *standing = Some(doubt);
        }
        drop(standing);
        self.doubts.notify_one();
    }

    pub(crate) async fn doubted(&self) -> Doubt {
        loop {
            if let Some(doubt) = lock(&self.doubt).take() {
                return doubt;
            }
            self.doubts.notified().await;
        }
    }
}

impl Host {
    /// Made when it is first asked for, and made anew after it was left.
    fn channel(&self) -> Channel {
        lock(&self.channel).get_or_insert_with(|| self.endpoint.connect_lazy()).clone()
    }

    fn hang_up(&self) {
        *lock(&self.channel) = None;
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("store", &self.settings.label).finish_non_exhaustive()
    }
}

/// No client of ours refuses an answer for its size.
pub(crate) const fn most_bytes() -> usize {
    MOST_BYTES
}

fn endpoint(place: &str, settings: &Settings) -> Result<Endpoint> {
    let scheme = if settings.tls.is_some() { "https" } else { "http" };
    let wrong = |error: &dyn std::error::Error| {
        let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        Fail::new(leasehold_core::StoreErrorKind::Denied, format!("{place} cannot be spoken to: {why}"))
            .help("check hosts and ports, and ca=, cert= and key=")
    };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{place}")).map_err(|error| wrong(&error))?;
    let endpoint = endpoint
        .connect_timeout(settings.timeout)
        .http2_keep_alive_interval(PING)
        .keep_alive_timeout(settings.timeout)
        .tcp_nodelay(true);
    let Some(Tls { ca, identity }) = &settings.tls else { return Ok(endpoint) };
    let mut tls = match ca {
        Some(ca) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    if let Some((cert, key)) = identity {
        tls = tls.identity(Identity::from_pem(cert, key.expose()));
    }
    endpoint.tls_config(tls).map_err(|error| wrong(&error))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
