//! One way to one server: at a port, at a socket of this machine, or over TLS.

use std::io;
use std::time::Duration;

use leasehold_core::{Secret, StoreErrorKind};
use redis::aio::{MultiplexedConnection, PubSubSink, PubSubStream};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion,
    PushInfo, RedisConnectionInfo, RedisResult, TlsCertificates, Value,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::config::Place;
use crate::fail::{Fail, Result};

/// Who we are to a server, and which of its databases we use.
pub(crate) fn login(user: Option<&str>, password: Option<&Secret>, database: i64) -> RedisConnectionInfo {
    let mut login = RedisConnectionInfo::default().set_db(database).set_skip_set_lib_name();
    if let Some(user) = user {
        login = login.set_username(user);
    }
    if let Some(password) = password {
        login = login.set_password(password.expose());
    }
    login
}

/// The way to one server, by which any number of connections can be opened.
pub(crate) struct Door {
    client: Client,
    place: Place,
    /// How long one answer may take.
    limit: Duration,
}

impl Door {
    pub(crate) fn to(place: &Place, login: RedisConnectionInfo, limit: Duration) -> Result<Self> {
        let (addr, ca) = match place {
            Place::Unix(path) => (ConnectionAddr::Unix(path.clone()), None),
            Place::Tcp { host, port, tls: None } => (ConnectionAddr::Tcp(host.clone(), *port), None),
            Place::Tcp { host, port, tls: Some(ca) } => {
                // Without one the library panics, where it should say so. An application may have chosen its own.
                if rustls::crypto::CryptoProvider::get_default().is_none() {
                    drop(rustls::crypto::ring::default_provider().install_default());
                }
                let (host, port) = (host.clone(), *port);
                (ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }, Some(ca.clone()))
            }
        };
        let info: ConnectionInfo = addr.into_connection_info()?.set_redis_settings(login);
        let client = match ca {
            None => Client::open(info),
            Some(root_cert) => Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert }),
        };
        let client = client.map_err(|error| advised(error.into(), place))?;
        Ok(Self { client, place: place.clone(), limit })
    }

    /// Where it leads.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// A failure before anything was asked for that changes something.
    pub(crate) fn failed(&self, fail: Fail) -> Fail {
        advised(fail, &self.place)
    }

    /// Nobody answers there.
    pub(crate) fn silent(&self) -> Fail {
        let message = format!("no connection within {:?}", self.limit);
        Fail::new(StoreErrorKind::Unavailable, message).help(self.place.advice())
    }

    /// Opens a connection, and has its end noticed at once: whoever holds something must not learn of it by the next
    /// renewal. Of one over TLS, which the library opens, that is so all the same, but nobody is told.
    pub(crate) async fn open(
        &self,
        ended: impl FnOnce() + Send + 'static,
    ) -> RedisResult<(MultiplexedConnection, Option<AbortHandle>)> {
        // Deadlines are ours, so that the library's own, which cost a timer for each request, are off.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        match &self.place {
            Place::Tcp { host, port, tls: None } => {
                let opened = timeout(self.limit, TcpStream::connect((host.as_str(), *port))).await;
                let stream = opened.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
                stream.set_nodelay(true)?;
                self.drive(stream, config, ended).await
            }
            Place::Unix(path) => self.drive(UnixStream::connect(path).await?, config, ended).await,
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
        ended: impl FnOnce() + Send + 'static,
    ) -> RedisResult<(MultiplexedConnection, Option<AbortHandle>)> {
        let login = self.client.get_connection_info().redis_settings();
        let logging_in = MultiplexedConnection::new_with_config(login, stream, config);
        let (connection, driving) = logging_in.await?;
        let driver = tokio::spawn(async move {
            driving.await;
            ended();
        });
        Ok((connection, Some(driver.abort_handle())))
    }

    /// Sends one request over a connection that is given up afterwards, whoever answers there.
    pub(crate) async fn ask(&self, command: &Cmd) -> Result<Value> {
        let asking = async {
            let (mut connection, driver) = self.open(|| ()).await?;
            let _driver = driver.map(AbortOnDrop);
            connection.send_packed_command(command).await?.extract_error()
        };
        let told = timeout(self.limit, asking).await.map_err(|_| self.silent())?;
        told.map_err(|error| self.failed(error.into()))
    }

    /// A connection of its own for what is told, with all that comes over it: in a cluster a server also tells that it
    /// ended a subscription, which the older protocol of the library does not know.
    pub(crate) async fn hear(&self) -> Result<(MultiplexedConnection, UnboundedReceiver<PushInfo>)> {
        let (pushes, heard) = unbounded_channel();
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(Some(self.limit))
            .set_push_sender(pushes);
        let info = self.client.get_connection_info().clone();
        let login = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.set_redis_settings(login))?;
        match timeout(self.limit, client.get_multiplexed_async_connection_with_config(&config)).await {
            Ok(opened) => Ok((opened?, heard)),
            Err(_) => Err(self.silent()),
        }
    }

    /// A connection of its own that hears one channel.
    pub(crate) async fn subscribe(&self, channel: &str) -> Result<(PubSubSink, PubSubStream)> {
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
}

/// Ends a task with whoever needed it.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn advised(fail: Fail, place: &Place) -> Fail {
    let fail = fail.not_sent();
    if fail.has_help() { fail } else { fail.help(place.advice()) }
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("place", &self.place.to_string()).finish_non_exhaustive()
    }
}
