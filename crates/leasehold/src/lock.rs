//! The description of a mutex, and the verbs that acquire it.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{Either, select};
use leasehold_core::{
    Aftermath, Busy, ConfigError, Error, LockName, Lost, NameError, Note, NoteError, Result, Share, Turn,
};
use tracing::{Instrument, Span};

use crate::acquire::Acquire;
use crate::client::Client;
use crate::config::{Config, DEFAULT_TTL};
use crate::event;
use crate::lease::Lease;
use crate::nesting;
use crate::proof::Proof;
use crate::scope::Scope;
use crate::terms::{self, Terms};

/// Describes a lock: a name, a ttl, a note. It holds nothing, and may be used any number of times.
///
/// | verb | waits | when somebody has it |
/// |---|---|---|
/// | [`acquire`](Self::acquire) | as long as it takes | |
/// | [`acquire_within`](Self::acquire_within) | at most so long | [`Error::TimedOut`] |
/// | [`try_acquire`](Self::try_acquire) | no | `None` |
/// | [`attempt`](Self::attempt) | no | [`Error::Busy`], which says who |
///
/// [`run`](Self::run) and its likes do all of it: acquire, work, stop the work if the lease is lost, release.
#[derive(Debug, Clone)]
#[must_use = "a lock is only a description: acquire it, or run something under it"]
pub struct Lock {
    client: Arc<Client>,
    name: Result<LockName, NameError>,
    ttl: Duration,
    grace: Option<Duration>,
    max_hold: Option<Duration>,
    note: Result<Note, NoteError>,
    share: Result<Share, ConfigError>,
    fair: bool,
    anchored: bool,
    aftermath: Aftermath,
    /// By whom it is to be taken, if by a scope.
    pub(crate) scope: Option<Scope>,
    /// Why it cannot be asked for, as far as the configuration says.
    refused: Option<ConfigError>,
}

/// What became of a [`Lock::try_run`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<T> {
    /// It ran.
    Ran(T),
    /// Somebody else has the lock.
    Skipped(Box<Busy>),
}

impl Lock {
    pub(crate) fn new(client: Arc<Client>, name: Result<LockName, NameError>) -> Self {
        let ttl = DEFAULT_TTL;
        Self {
            client,
            name,
            ttl,
            grace: None,
            max_hold: None,
            note: Ok(Note::NONE),
            share: Ok(Share::EXCLUSIVE),
            fair: false,
            anchored: false,
            aftermath: Aftermath::NONE,
            scope: None,
            refused: None,
        }
    }

    /// Starts from what the files say of the name, as it was typed.
    pub(crate) fn configured(mut self, config: &Config, typed: &str) -> Self {
        let settings = config.lock(typed);
        if let Some(ttl) = settings.ttl {
            self.ttl = ttl.value;
        }
        self.grace = settings.grace.map(|grace| grace.value);
        self.fair = settings.fair.is_some_and(|fair| fair.value);
        if let Some(note) = settings.note {
            self.note = Note::parse(&note.value);
        }
        // Before the stores are read, passwords and all: this stands in the path of every lock.
        if !config.names_a_store_for(typed) {
            return self;
        }
        self.refused = match (config.store(None), config.store(Some(typed))) {
            (Ok(usual), Ok(wanted)) if usual.url != wanted.url => {
                let message = format!("{} puts {typed} into the store {}", wanted.origin, wanted.url);
                Some(ConfigError::new(message).help("connect to that store for this name"))
            }
            (_, Err(error)) => Some(error),
            _ => None,
        };
        self
    }

    /// If this machine dies, others get in after this long; while it lives the lease is renewed every third of
    /// it. Defaults to 30 s; 100 ms to 24 h, and a store may ask for more.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long before the end the lease counts as endangered once renewals fail. Defaults to a sixth of the
    /// ttl; at most half of it counts.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// After this long the lease is lost even if it could be renewed, so that a hung holder does not keep it for
    /// ever. Defaults to no limit.
    pub fn max_hold(mut self, most: Duration) -> Self {
        self.max_hold = Some(most);
        self
    }

    /// What others may read: at most 1,000 bytes without control characters.
    pub fn note(mut self, note: impl AsRef<str>) -> Self {
        self.note = Note::parse(note.as_ref());
        self
    }

    /// Waits in strict order of arrival. By default a newcomer may take a free lock, though not past somebody
    /// who has waited long.
    pub fn fair(mut self) -> Self {
        self.fair = true;
        self
    }

    /// Keeps the lease beyond its ttl while any copy of [`Leasehold::life`](crate::Leasehold::life) is open in any
    /// process, where the store can tell: for whoever starts other programs under the lock, which must be dead
    /// before anybody else gets in. The holder's own validity ends as ever.
    pub fn anchored(mut self) -> Self {
        self.anchored = true;
        self
    }

    /// Takes this share of the name instead of all of it.
    pub(crate) fn sharing(mut self, share: Result<Share, ConfigError>) -> Self {
        self.share = share;
        self
    }

    /// The share that it takes, if that can be asked for.
    pub(crate) fn share(&self) -> &Result<Share, ConfigError> {
        &self.share
    }

    /// Keeps the name shut for this long should the lease end without being given back: it ran out, or the holder
    /// died. Defaults to no time. For what is protected by a lock and cannot check [`Lease::token`]: writes of the
    /// last holder that are still under way arrive before the next one starts. (Chubby and Consul call it lock-delay.)
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.aftermath.delay = delay;
        self
    }

    /// Keeps the name shut until this long after the grant, however soon it is given back or the holder dies: a task
    /// that takes a second runs once although five hosts ask within ten. Defaults to no time.
    pub fn at_least(mut self, least: Duration) -> Self {
        self.aftermath.at_least = least;
        self
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// The name, with its namespace.
    pub(crate) fn full_name(&self) -> Result<&LockName> {
        self.name.as_ref().map_err(|error| error.clone().into())
    }

    pub(crate) fn terms(&self, now: bool) -> Result<Terms> {
        let bad_note = |error: &NoteError| {
            ConfigError::new(error.to_string()).help("shorten the note to one plain line")
        };
        if let Some(refused) = &self.refused {
            return Err(refused.clone().into());
        }
        let ttl = self.ttl;
        Ok(Terms {
            name: self.name.clone()?,
            share: self.share.clone()?,
            turn: match (now, self.fair) {
                (true, _) => Turn::Now,
                (false, true) => Turn::Fifo,
                (false, false) => Turn::Any,
            },
            ttl,
            grace: self.grace.unwrap_or_else(|| terms::default_grace(ttl)),
            max_hold: self.max_hold,
            anchored: self.anchored,
            aftermath: self.aftermath,
            note: self.note.as_ref().map_err(bad_note)?.clone(),
            succeeds: None,
        })
    }

    async fn ask(&self, wait: Option<Duration>, now: bool, wants_busy: bool) -> Result<Lease> {
        let terms = self.terms(now)?;
        match &self.scope {
            // Boxed, so that those who use no scope do not carry its state in each of their futures.
            Some(scope) => Box::pin(scope.acquire(&self.client, terms, wait, wants_busy)).await,
            None => Acquire::new(self.client.clone(), terms, wait, wants_busy).await,
        }
    }

    /// Waits for the lock as long as it takes.
    ///
    /// # Errors
    ///
    /// A bad name or note, a ttl that the store does not take, and a store that has been silent for longer than
    /// the client's timeout.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the line; what was granted meanwhile is given back in the background. A future that is
    /// not polled loses its place after 2 s.
    ///
    /// # Examples
    ///
    /// ```
    /// # leasehold::doc_test(async {
    /// # let client = leasehold::Leasehold::memory();
    /// let lease = client.lock("import").acquire().await?;
    /// println!("import under token {}", lease.check()?);
    /// lease.release().await?;
    /// # Ok(()) });
    /// ```
    pub async fn acquire(&self) -> Result<Lease> {
        self.ask(None, false, false).await
    }

    /// Waits for the lock for at most `wait`.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Error::TimedOut`], which says who has it.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Examples
    ///
    /// ```
    /// # leasehold::doc_test(async {
    /// # let client = leasehold::Leasehold::memory();
    /// use std::time::Duration;
    /// use leasehold::Error;
    ///
    /// let first = client.lock("import").acquire().await?;
    /// match client.lock("import").acquire_within(Duration::from_millis(10)).await {
    ///     Ok(_) => unreachable!("the first has it"),
    ///     Err(Error::TimedOut { busy, .. }) => println!("held by {}", busy.holder.expect("the first")),
    ///     Err(error) => return Err(error),
    /// }
    /// # first.release().await });
    /// ```
    pub async fn acquire_within(&self, wait: Duration) -> Result<Lease> {
        self.ask(Some(wait), false, true).await
    }

    /// Takes the lock if it is free: one step, and nothing is left behind if it is not.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// What was granted is given back in the background.
    pub async fn try_acquire(&self) -> Result<Option<Lease>> {
        match self.ask(None, true, false).await {
            Ok(lease) => Ok(Some(lease)),
            Err(Error::Busy(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes the lock if it is free, and says who has it if not.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Error::Busy`].
    ///
    /// # Cancel safety
    ///
    /// As [`try_acquire`](Self::try_acquire).
    pub async fn attempt(&self) -> Result<Lease> {
        self.ask(None, true, true).await
    }

    /// Waits for the lock, works, and gives it back. If the lease is lost the work is stopped: its future is
    /// dropped where it stands.
    ///
    /// An acquire of the same name inside the work would wait for itself. It does not wait, however it was asked:
    /// it is [`Error::Busy`], which says that it is you. Work that needs the lock twice passes the lease along, or
    /// takes it in a [scope](crate::Scope).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Error::Lost`] if the work was stopped. A release that fails is logged
    /// and does not hide what the work returned.
    ///
    /// # Cancel safety
    ///
    /// The work is dropped, and the lease is given back in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # leasehold::doc_test(async {
    /// # let client = leasehold::Leasehold::memory();
    /// let sum = client.lock("sum").run(async |lease| lease.check().map(|_| 1 + 1)).await??;
    /// assert_eq!(sum, 2);
    /// # Ok(()) });
    /// ```
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&Lease) -> T) -> Result<T> {
        run_under(self.acquire().await?, work).await
    }

    /// As [`run`](Self::run), waiting for at most `wait`.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and [`Error::TimedOut`].
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    pub async fn run_within<T>(&self, wait: Duration, work: impl AsyncFnOnce(&Lease) -> T) -> Result<T> {
        run_under(self.acquire_within(wait).await?, work).await
    }

    /// As [`run`](Self::run), if the lock is free.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    pub async fn try_run<T>(&self, work: impl AsyncFnOnce(&Lease) -> T) -> Result<Outcome<T>> {
        match self.attempt().await {
            Ok(lease) => run_under(lease, work).await.map(Outcome::Ran),
            Err(Error::Busy(busy)) => Ok(Outcome::Skipped(busy)),
            Err(error) => Err(error),
        }
    }
}

/// Works under a lease until the work is done or the lease is lost.
pub(crate) async fn run_under<P: Proof, T>(proof: P, work: impl AsyncFnOnce(&P) -> T) -> Result<T> {
    let value = work_under(&proof.leases(), work(&proof)).await?;
    give_back(proof).await;
    Ok(value)
}

/// Works until the work is done or one of the leases is lost; then the work is dropped where it stands.
pub(crate) async fn work_under<T>(leases: &[&Lease], work: impl Future<Output = T>) -> Result<T, Lost> {
    // The loss comes first: work that ended in the very moment of the loss is not vouched for.
    let lost = pin!(first_lost(leases));
    let span = leases.first().map_or_else(Span::none, |lease| event::run_span(lease.name(), lease.token()));
    let work = pin!(nesting::polled_under(leases, work.instrument(span)));
    match select(lost, work).await {
        Either::Left((lost, _)) => Err(lost),
        Either::Right((value, _)) => Ok(value),
    }
}

/// Returns once one of them is lost; never, if there are none.
pub(crate) async fn first_lost(leases: &[&Lease]) -> Lost {
    let mut lost: Vec<_> = leases.iter().map(|lease| Box::pin(lease.lost())).collect();
    poll_fn(|context| {
        let mut polls = lost.iter_mut().map(|lost| lost.as_mut().poll(context));
        polls.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
}

/// Gives a proof back after the work: a failure does not hide what the work returned.
pub(crate) async fn give_back(proof: impl Proof) {
    let told = proof.leases().first().map(|lease| (lease.name().clone(), lease.token().get()));
    if let Err(error) = proof.release().await {
        let (name, token) = told.unzip();
        let name = name.as_ref().map(LockName::as_str);
        tracing::warn!(name, token, %error, "the work is done, but its lease could not be given back");
    }
}

/// The output of whichever is done first, looking at `a` first; the other one is dropped.
pub(crate) async fn first_of<A: Future + Unpin, B: Future + Unpin>(
    a: A,
    b: B,
) -> Either<A::Output, B::Output> {
    match select(a, b).await {
        Either::Left((a, _)) => Either::Left(a),
        Either::Right((b, _)) => Either::Right(b),
    }
}
