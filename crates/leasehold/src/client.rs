//! The client: one store, one thread, any number of locks.

use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use leasehold_core::{
    Capabilities, Clock, Code, ConfigError, LockName, Op, Owner, Reach, Result, Snapshot, Store,
};
use tokio::sync::oneshot;

use crate::builder::Builder;
use crate::config::{Config, Overrides};
use crate::engine::{self, Command, Engine, Handle, Settings};
use crate::event::Event;
use crate::janitor;
use crate::lock::Lock;
use crate::open::Opened;

/// A client of one store: what everything starts from. Cheap to clone; clones share one thread.
///
/// The thread starts with the first lock, or with [`connect`](Self::connect). It ends when the last clone and the
/// last lease are gone, or with [`close`](Self::close).
///
/// # After a fork
///
/// The child's copy answers every call with an error: connect again there.
///
/// ```
/// # leasehold::doc_test(async {
/// use std::time::Duration;
///
/// let client = leasehold::Leasehold::memory();
/// let shipped = client
///     .lock("order:10017")
///     .ttl(Duration::from_secs(30))
///     .run_within(Duration::from_secs(5), async |lease| format!("shipped under {}", lease.token()))
///     .await?;
/// assert!(shipped.starts_with("shipped"));
/// client.close().await
/// # });
/// ```
#[derive(Clone)]
pub struct Leasehold {
    pub(crate) client: Arc<Client>,
    pub(crate) namespace: Arc<str>,
    /// What the files say of names, for a client that was made from them.
    pub(crate) config: Option<Arc<Config>>,
}

/// What all clones of a client share.
pub(crate) struct Client {
    store: Arc<dyn Store>,
    store_name: String,
    capabilities: Capabilities,
    created: Option<String>,
    settings: Settings,
    handle: OnceLock<Handle>,
    starting: Mutex<()>,
    seq: AtomicU64,
    pid: u32,
}

impl Client {
    pub(crate) fn new(opened: Opened, settings: Settings, handle: Option<Handle>) -> Arc<Self> {
        let Opened { store, created } = opened;
        Arc::new(Self {
            store_name: store.to_string(),
            capabilities: store.capabilities(),
            store,
            created,
            settings,
            handle: handle.map_or_else(OnceLock::new, OnceLock::from),
            starting: Mutex::new(()),
            seq: AtomicU64::new(1),
            pid: std::process::id(),
        })
    }

    pub(crate) fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// The store, for people.
    pub(crate) fn store_name(&self) -> &str {
        &self.store_name
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.settings.clock
    }

    /// Whether the two are certainly of one store. Stores within a process are called alike, and need not be the same.
    pub(crate) fn shares_store_with(&self, other: &Self) -> bool {
        let alike = self.store_name == other.store_name && self.capabilities.reach != Reach::Process;
        alike || Arc::ptr_eq(&self.store, &other.store)
    }

    /// Tells everybody who listens, on the client's own thread.
    pub(crate) fn tell(&self, event: Event) {
        // A client that was closed tells nobody any more.
        drop(
            self.send(Command::Run(Box::new(move |engine| async move { engine.emit(&event) }.boxed_local()))),
        );
    }

    pub(crate) fn next_seq(&self) -> u64 {
        self.seq.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a command to the engine, starting it if need be.
    pub(crate) fn send(&self, command: Command) -> Result<()> {
        if self.pid != std::process::id() {
            return Err(ConfigError::new("this client was made before a fork, and a fork inherits none")
                .code(Code::FORKED)
                .help("connect again in the child")
                .into());
        }
        let handle = match self.handle.get() {
            Some(handle) => handle,
            None => self.start()?,
        };
        handle.send(command).map_err(|_| janitor::ended())
    }

    fn start(&self) -> Result<&Handle> {
        let _alone = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.handle.get().is_none() {
            let store = self.store.clone();
            let (handle, _opened) = engine::start(self.settings.clone(), Box::new(move || Ok(store)))?;
            return Ok(self.handle.get_or_init(|| handle));
        }
        self.handle.get().ok_or_else(janitor::ended)
    }

    /// The kind of store: what its URL starts with.
    pub(crate) fn scheme(&self) -> &str {
        self.store_name.split(':').next().unwrap_or_default()
    }

    /// Whether its thread was started: until then nothing can be under way.
    pub(crate) fn is_running(&self) -> bool {
        self.handle.get().is_some()
    }

    /// Runs something on the engine's thread.
    pub(crate) async fn on_engine<T: Send + 'static>(
        &self,
        work: impl FnOnce(Rc<Engine>) -> LocalBoxFuture<'static, T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Run(Box::new(move |engine| {
            let work = work(engine);
            // Whoever asked may have gone.
            async move { drop(reply.send(work.await)) }.boxed_local()
        })))?;
        answer.await.map_err(|_| janitor::ended())
    }

    /// Waits on the engine's thread: no public future touches a timer of the user's runtime.
    pub(crate) async fn pause(&self, lasting: Duration) -> Result<()> {
        let wait = move |engine: Rc<Engine>| {
            async move { engine.clock.sleep_until(engine.clock.now().after(lasting)).await }.boxed_local()
        };
        self.on_engine(wait).await
    }

    /// Returns once so much time has passed by the client's clock, on any executor.
    pub(crate) async fn sleep(&self, time: Duration) -> Result<()> {
        let (mut reply, passed) = oneshot::channel();
        self.send(Command::Run(Box::new(move |engine| {
            async move {
                let clock = &engine.clock;
                tokio::select! {
                    () = clock.sleep_until(clock.now().after(time)) => drop(reply.send(())),
                    () = reply.closed() => {}
                }
            }
            .boxed_local()
        })))?;
        passed.await.map_err(|_| janitor::ended())
    }

    /// Runs something with the store on the engine's thread, within the client's timeout.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        op: Op,
        name: Option<LockName>,
        work: impl FnOnce(Arc<dyn Store>) -> BoxFuture<'static, Result<T>> + Send + 'static,
    ) -> Result<T> {
        let work = move |engine: Rc<Engine>| {
            async move {
                let work = work(engine.store.clone());
                engine.call(op, name.as_ref(), engine.settings.timeout, work).await
            }
            .boxed_local()
        };
        self.on_engine(work).await?
    }
}

impl Leasehold {
    /// Opens a store by its URL, with the defaults of [`Builder`].
    ///
    /// # Errors
    ///
    /// A URL that cannot be parsed, a store that this build does not have, and whatever the store says while it is
    /// being opened.
    ///
    /// # Cancel safety
    ///
    /// The store is closed again.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().connect(url).await
    }

    /// Opens the store that the environment and the configuration files name, and obeys their rules for each
    /// name, as the command does: `LEASEHOLD_STORE`, `LEASEHOLD_NAMESPACE`, `LEASEHOLD_CONFIG` and so on, then
    /// `$XDG_CONFIG_HOME/leasehold/config.toml`, then `/etc/leasehold/config.toml`. With none of them it is the
    /// SQLite file of this machine.
    ///
    /// # Errors
    ///
    /// A setting that cannot be used, a store that locks less widely than `scope` asks, and as
    /// [`connect`](Self::connect). A name for which a rule chooses another store is refused when it is asked for.
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    pub async fn from_env() -> Result<Self> {
        let config = Config::load(Overrides::default())?;
        let store = config.store(None)?;
        let builder = Self::builder().namespace(config.namespace().value).timeout(store.timeout.value);
        let mut client = builder.open(store.url).await?;
        if let Some(scope) = config.scope() {
            scope.value.check(client.capabilities().reach, client.store())?;
        }
        client.config = Some(Arc::new(config));
        Ok(client)
    }

    /// A client of a store of its own in the memory of this process, for tests and for locks within one process.
    #[must_use]
    pub fn memory() -> Self {
        Self::builder().memory()
    }

    /// For other than the defaults.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Describes the lock of this name; nothing happens until it is asked for. A bad name is reported then.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        let typed = name.as_ref();
        let name = LockName::parse(typed).and_then(|name| name.within(&self.namespace));
        let lock = Lock::new(self.client.clone(), name);
        match &self.config {
            Some(config) => lock.configured(config, typed),
            None => lock,
        }
    }

    /// One name in full: who holds it, who waits.
    ///
    /// # Errors
    ///
    /// A bad name, and a store that cannot be asked.
    ///
    /// # Cancel safety
    ///
    /// Nothing happens when it is dropped.
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Snapshot> {
        let name = LockName::parse(name.as_ref())?.within(&self.namespace)?;
        let about = name.clone();
        let ask = move |store: Arc<dyn Store>| async move { store.inspect(&about).await }.boxed();
        self.client.ask(Op::Inspect, Some(name), ask).await
    }

    /// All names under this client's namespace that start with `prefix` and are held, waited for or shut, in
    /// byte order, with their namespace.
    ///
    /// # Errors
    ///
    /// A store that cannot be asked.
    ///
    /// # Cancel safety
    ///
    /// Nothing happens when it is dropped.
    pub async fn list(&self, prefix: &str) -> Result<Vec<LockName>> {
        let space = if self.namespace.is_empty() { String::new() } else { format!("{}:", self.namespace) };
        let prefix = format!("{space}{prefix}");
        let ask = move |store: Arc<dyn Store>| {
            async move {
                let mut names: Vec<LockName> = Vec::new();
                loop {
                    let page = store.list(&prefix, names.last()).await?;
                    if page.is_empty() {
                        return Ok(names);
                    }
                    names.extend(page);
                }
            }
            .boxed()
        };
        self.client.ask(Op::List, None, ask).await
    }

    /// Runs something with the store's ledger, if it keeps one, on the client's own thread and within its
    /// timeout.
    ///
    /// # Errors
    ///
    /// What `work` answers, a store without a ledger, and one that does not answer in time.
    ///
    /// # Cancel safety
    ///
    /// The work goes on.
    pub async fn with_ledger<T: Send + 'static>(&self, work: impl AsyncLedger<T>) -> Result<T> {
        let ask = move |store: Arc<dyn Store>| {
            async move {
                match store.ledger() {
                    Some(ledger) => work.run(ledger).await,
                    None => Err(leasehold_core::Unsupported::here("marks and records").into()),
                }
            }
            .boxed()
        };
        self.client.ask(Op::Ledger, None, ask).await
    }

    /// What the store can do.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        &self.client.capabilities
    }

    /// The store's URL for people, without secrets.
    #[must_use]
    pub fn store(&self) -> &str {
        &self.client.store_name
    }

    /// Who this client is, as others read it.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.client.settings.owner
    }

    /// The namespace that goes before every name; empty for none.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The clock that decides whether this client's leases hold.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.client.settings.clock
    }

    /// The file that this connect made, if it did: whoever believes that it is shared should hear of it.
    #[must_use]
    pub fn created_store(&self) -> Option<&str> {
        self.client.created.as_deref()
    }

    /// Waits until everything that was given back is acknowledged, for at most the timeout; closes the store, and
    /// ends the thread. Leases that are still held are endangered from then on, since nobody renews them, and lost when
    /// their time has run out; every later call fails.
    ///
    /// # Errors
    ///
    /// When the store cannot be closed.
    ///
    /// # Cancel safety
    ///
    /// The closing goes on.
    pub async fn close(self) -> Result<()> {
        if self.client.handle.get().is_none() {
            return self.client.store.close().await;
        }
        let (reply, answer) = oneshot::channel();
        self.client.send(Command::Close { reply })?;
        answer.await.map_err(|_| janitor::ended())?
    }
}

/// Work with a [`Ledger`](leasehold_core::Ledger); implemented by closures that return a boxed future.
pub trait AsyncLedger<T>: Send + 'static {
    /// Does it.
    fn run(self, ledger: &dyn leasehold_core::Ledger) -> BoxFuture<'_, Result<T>>;
}

impl<T, F> AsyncLedger<T> for F
where
    F: for<'a> FnOnce(&'a dyn leasehold_core::Ledger) -> BoxFuture<'a, Result<T>> + Send + 'static,
{
    fn run(self, ledger: &dyn leasehold_core::Ledger) -> BoxFuture<'_, Result<T>> {
        self(ledger)
    }
}

impl fmt::Debug for Leasehold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leasehold").field("store", &self.store()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("store", &self.store_name).finish_non_exhaustive()
    }
}
