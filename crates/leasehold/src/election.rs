//! Elections: one leader of many, in terms that are over before anybody else can lead.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::Either;
use leasehold_core::{LockName, NameError, Queueing, Result};

use crate::client::{Client, Leasehold};
use crate::leader::LeaderWatch;
use crate::lock::{Lock, first_of};
use crate::nesting;
use crate::term::Term;
use crate::terms;

/// How long to wait before campaigning again after the store has failed for longer than the client's timeout.
const STORE_PAUSE: Duration = Duration::from_secs(1);
/// Describes an election: a name, a ttl, a note. It does nothing until asked, and may be used any number of times.
///
/// | verb | what it does |
/// |---|---|
/// | [`lead`](Self::lead) | campaigns, works while it leads, and campaigns again |
/// | [`campaign`](Self::campaign) | waits for one term, to be held by hand |
/// | [`watch`](Self::watch) | tells who leads, without taking part |
///
/// An election is a lock whose waiters are served in strict order (where the store keeps a line): whoever resigns goes
/// to the end of it. `leasehold run` and [`Leasehold::lock`] on the same name take part in it.
#[derive(Debug, Clone)]
#[must_use = "an election is only a description: lead, campaign or watch"]
pub struct Election {
    lock: Lock,
    client: Arc<Client>,
    name: Result<LockName, NameError>,
}

impl Leasehold {
    /// Describes the election of this name; nothing happens until it is asked for. A bad name is reported then.
    ///
    /// ```
    /// # leasehold::doc_test(async {
    /// use std::ops::ControlFlow;
    /// use std::time::Duration;
    ///
    /// let client = leasehold::Leasehold::memory();
    /// let served = client
    ///     .election("indexer")
    ///     .ttl(Duration::from_secs(15))
    ///     .lead(async |term| {
    ///         println!("leading under token {}", term.token()); // send it with every write
    ///         ControlFlow::Break("served") // `()` instead would campaign for ever
    ///     })
    ///     .await?;
    /// assert_eq!(served, "served");
    /// # Ok(()) });
    /// ```
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        let lock = self.lock(&name);
        let lock = if self.capabilities().queueing == Queueing::Never { lock } else { lock.fair() };
        let name = LockName::parse(name.as_ref()).and_then(|name| name.within(&self.namespace));
        Election { lock, client: self.client.clone(), name }
    }
}

impl Election {
    /// If the leader's machine dies, the next one leads after this long. Defaults to 30 s; as [`Lock::ttl`].
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { lock: self.lock.ttl(ttl), ..self }
    }

    /// How long before the end of its lease a leader whose renewals fail is told to wind down. Defaults to a sixth of
    /// the ttl; as [`Lock::grace`].
    pub fn grace(self, grace: Duration) -> Self {
        Self { lock: self.lock.grace(grace), ..self }
    }

    /// What others may read of who leads or campaigns, such as an address. As [`Lock::note`].
    pub fn note(self, note: impl AsRef<str>) -> Self {
        Self { lock: self.lock.note(note), ..self }
    }

    /// Waits until it leads, as long as that takes.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`].
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`]: what was won meanwhile is given up in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # leasehold::doc_test(async {
    /// # let client = leasehold::Leasehold::memory();
    /// let term = client.election("indexer").campaign().await?;
    /// println!("write under token {}", term.check()?);
    /// term.resign().await?;
    /// # Ok(()) });
    /// ```
    pub async fn campaign(&self) -> Result<Term> {
        Term::begin(self.lock.acquire().await?, &self.client)
    }

    /// Campaigns, calls `work` with each term, and campaigns again when the work is done or its term is over: for ever,
    /// unless the work answers [`ControlFlow::Break`] (see [`AfterTerm`]).
    ///
    /// When renewals fail, [`Term::cancelled`] fires first; if the work is not done by the end of the term it is
    /// stopped: its future is dropped where it stands, before anybody else can lead. That takes an executor that gets
    /// round to it; who blocks his threads looks at [`Term::check`] before each step. A store that cannot be asked is
    /// asked again for as long as it takes. [`Term::resign`] in the work ends it where it stands.
    ///
    /// # Errors
    ///
    /// A bad name or note, a ttl that the store does not take, a store that refuses us, and a client that was closed.
    ///
    /// # Cancel safety
    ///
    /// The work is dropped, and the term is given up in the background.
    ///
    /// # Examples
    ///
    /// See [`Leasehold::election`].
    pub async fn lead<V, F>(&self, mut work: impl FnMut(Term) -> F) -> Result<V::Stop>
    where
        V: AfterTerm,
        // Not `AsyncFnMut(&Term)`: the compiler cannot see yet that such a future may be sent to another thread.
        F: Future<Output = V>,
    {
        loop {
            let term = self.next_term().await?;
            let done = {
                // The end comes first: work that ended in the very moment of it is not vouched for.
                let over = pin!(term.ends());
                let leases = term.leases();
                let work = pin!(nesting::polled_under(&leases, work(term.view())));
                first_of(over, work).await
            };
            match done {
                // In the background: the store does not answer, or knows already.
                Either::Left(_) => drop(term),
                Either::Right(verdict) => {
                    give_up(term).await;
                    if let Some(stop) = verdict.stop() {
                        return Ok(stop);
                    }
                }
            }
        }
    }

    /// Campaigns for as long as it takes, also while the store cannot be asked.
    pub(crate) async fn next_term(&self) -> Result<Term> {
        loop {
            match self.campaign().await {
                Err(error) if error.is_retryable() || error.outcome_unknown() => {
                    tracing::warn!(%error, "cannot campaign now, trying again");
                    self.client.pause(terms::jitter(STORE_PAUSE)).await?;
                }
                answer => return answer,
            }
        }
    }

    /// Tells who leads from now on, without taking part, until what it returns is dropped.
    ///
    /// It costs one look at each change, and one in 30 s; where the store can tell of changes (SQLite, memory) they
    /// are seen at once. Problems, such as a bad name, are told by [`LeaderWatch::changed`].
    ///
    /// # Examples
    ///
    /// ```
    /// # leasehold::doc_test(async {
    /// # let client = leasehold::Leasehold::memory();
    /// let mut leader = client.election("indexer").watch();
    /// assert!(leader.changed().await?.is_none());
    /// let term = client.election("indexer").note("10.0.0.7:80").campaign().await?;
    /// let holder = leader.changed().await?.expect("somebody leads");
    /// assert_eq!((holder.token, holder.note.text()), (term.token(), Some("10.0.0.7:80")));
    /// # term.resign().await });
    /// ```
    #[must_use = "it tells only until it is dropped"]
    pub fn watch(&self) -> LeaderWatch {
        LeaderWatch::start(self.client.clone(), self.name.clone())
    }
}

/// Gives a term up after its work: a failure does not hide what the work answered.
pub(crate) async fn give_up(term: Term) {
    let (name, token) = (term.name().clone(), term.token());
    if let Err(error) = term.resign().await {
        tracing::warn!(%name, %token, %error, "the work is done, but its term could not be given up");
    }
}

/// What the work of a term answers: whether to campaign again.
///
/// `()` campaigns again, for ever. [`ControlFlow`] campaigns again on `Continue`, and on `Break` ends
/// [`Election::lead`] with what it carries.
pub trait AfterTerm {
    /// What [`Election::lead`] returns in the end.
    type Stop;

    /// What to end with; `None` campaigns again.
    fn stop(self) -> Option<Self::Stop>;
}

impl AfterTerm for () {
    type Stop = Infallible;

    fn stop(self) -> Option<Infallible> {
        None
    }
}

impl<B> AfterTerm for ControlFlow<B> {
    type Stop = B;

    fn stop(self) -> Option<B> {
        self.break_value()
    }
}
