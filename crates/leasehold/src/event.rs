//! What happens to locks, for logs, metrics, the command's messages and dashboards: the one seam.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Error, LockName, LostReason, Op, Result, Share, Token};
use tracing::{Span, field};

use crate::client::Client;
use crate::hold::Hold;
use crate::terms::Terms;

/// Something that happened.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// A claim was not granted at once and stands in line.
    Waiting {
        /// The lock.
        name: LockName,
        /// How many are before it, holders included, where the store can tell.
        ahead: Option<u32>,
    },
    /// A lease was granted.
    Acquired {
        /// The lock.
        name: LockName,
        /// The fencing token.
        token: Token,
        /// How long it was waited for.
        waited: Duration,
        /// For how long it holds without a renewal.
        remaining: Duration,
    },
    /// A lease takes more or less than before: a reader became the writer, or a writer a reader.
    Reshaped {
        /// The lock.
        name: LockName,
        /// The fencing token from now on: a new one if it takes more.
        token: Token,
        /// What it takes now.
        share: Share,
    },
    /// An acquire ended without a lease: somebody else has the lock, the wait was over, or the store failed. (One whose
    /// future was dropped is not told of.)
    NotAcquired {
        /// The lock.
        name: LockName,
        /// How long it was waited for.
        waited: Duration,
        /// What the caller is told.
        error: Error,
    },
    /// A renewal was answered.
    Renewed {
        /// The lock.
        name: LockName,
        /// The fencing token.
        token: Token,
        /// How much was left when the answer came: the less, the nearer it was to the loss.
        left: Duration,
        /// For how long it holds now without another.
        remaining: Duration,
    },
    /// A renewal was refused or not answered. It is tried again.
    RenewalFailed {
        /// The lock.
        name: LockName,
        /// The fencing token.
        token: Token,
        /// What went wrong.
        error: Error,
        /// How long ago the last good renewal was sent.
        silent: Duration,
        /// How much of the lease is left.
        remaining: Duration,
    },
    /// Renewals keep failing and the lease is about to end.
    Endangered {
        /// The lock.
        name: LockName,
        /// The fencing token.
        token: Token,
        /// How much of the lease is left.
        remaining: Duration,
    },
    /// A lease no longer holds.
    Lost {
        /// The lock.
        name: LockName,
        /// The fencing token.
        token: Token,
        /// Why.
        reason: LostReason,
    },
    /// A lease was given back.
    Released {
        /// The lock.
        name: LockName,
        /// The fencing token.
        token: Token,
        /// For how long it was held.
        held: Duration,
        /// Whether it went straight to a task of this process, without asking the store.
        handed_on: bool,
    },
    /// A release was not acknowledged; it is tried again in the background until the lease has run out.
    ReleaseFailed {
        /// The lock.
        name: LockName,
        /// What went wrong.
        error: Error,
    },
    /// Whoever waits for a lock has very likely taken it himself: the same task did, or it waits inside a `run` that
    /// holds it. Told once for a wait of more than a second. Unless that lease was moved to another task, which the
    /// library cannot see, the wait never ends: pass the lease along, or take the lock in a [scope](crate::Scope).
    WaitsForItself {
        /// The lock.
        name: LockName,
        /// The token of the lease that is waited for.
        token: Token,
        /// For how long that lease has been held.
        held: Duration,
    },
    /// Scopes and runs of this process wait for each other in a circle. Told once for each circle, after a second.
    /// Unless one of them gives up, none of them goes on: take the locks in one order everywhere, or all at once, or
    /// wait for a bounded time.
    Deadlock {
        /// Each of them, in the order in which they wait: each waits for what the next one holds, and the last for
        /// what the first holds.
        circle: Vec<Stuck>,
    },
    /// A store could not be reached, and what would have run under a lease goes on without one, or under one from
    /// another store, as its lock was told to ([`Lock::or_open`](crate::Lock::or_open),
    /// [`Lock::or_else`](crate::Lock::or_else)).
    WithoutStore {
        /// The lock.
        name: LockName,
        /// Why the store could not be used.
        error: Error,
        /// The store that was asked instead, if one was; `None` when nothing keeps others out.
        instead: Option<String>,
    },
    /// A store was asked something.
    Asked {
        /// What.
        op: Op,
        /// About which lock, if one.
        name: Option<LockName>,
        /// How long the answer took.
        took: Duration,
        /// What went wrong, if anything.
        error: Option<Error>,
    },
}

/// One of those who wait for each other.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stuck {
    /// Who: `scope request-8c1f`, `run of account:17`.
    pub who: String,
    /// What it holds, for which the one before waits.
    pub holds: LockName,
    /// What it waits for.
    pub waits_for: LockName,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, holds, waits_for } = self;
        write!(f, "{who} holds {holds} and waits for {waits_for}")
    }
}

/// Listens to a client: the one seam through which logs, metrics, the command's messages and dashboards hear of what
/// happens.
///
/// It is called on the client's own thread, which also renews leases: return at once, and hand what takes longer to a
/// channel. Events of one lease come in their order. A client without observers, and without a subscriber of
/// `tracing` that listens, makes no event of what it asks the store.
///
/// # `tracing`
///
/// Every client writes its events to `tracing` as well, under the target `leasehold::event`: losses as errors, what
/// endangers a lease as warnings, acquires and releases at `DEBUG`, renewals and requests at `TRACE`. And it opens
/// three kinds of spans, at `INFO`, in the task that asks:
///
/// | span | from | fields |
/// |---|---|---|
/// | `leasehold.acquire` | the first poll of an acquire to its answer | `store` (the kind), `name`, `ttl_ms`, `wait_ms`; `outcome`: `granted`, `busy`, `timed_out`, `failed`; `token` |
/// | `leasehold.lease` | the grant to the end of the [`Lease`](crate::Lease) | `name`, `token`; `ended`: `released`, `dropped`, `lost` |
/// | `leasehold.run` | around the work of [`Lock::run`](crate::Lock::run) and its likes | `name`, `token` |
///
/// # Metrics
///
/// `Metrics`, with the feature `metrics`, is an observer that counts through the facade `metrics`, with labels of few
/// values.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use leasehold::{Event, Leasehold, Observer};
///
/// #[derive(Debug)]
/// struct Print;
/// impl Observer for Print {
///     fn on(&self, event: &Event) {
///         eprintln!("{event:?}");
///     }
/// }
/// let client = Leasehold::builder().observer(Arc::new(Print)).memory();
/// ```
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// Hears of an event.
    fn on(&self, event: &Event);
}

/// Writes an event to `tracing`, as every client does.
pub(crate) fn trace(event: &Event) {
    match event {
        Event::Waiting { name, ahead } => tracing::debug!(%name, ahead, "waiting"),
        Event::Acquired { name, token, waited, .. } => {
            tracing::debug!(%name, %token, waited_ms = ms(waited), "acquired");
        }
        Event::Reshaped { name, token, share } => tracing::debug!(%name, %token, %share, "reshaped"),
        Event::NotAcquired { name, waited, error } => {
            tracing::debug!(%name, %error, waited_ms = ms(waited), "not acquired");
        }
        Event::Renewed { name, token, left, remaining } => {
            tracing::trace!(%name, %token, left_ms = ms(left), remaining_ms = ms(remaining), "renewed");
        }
        Event::RenewalFailed { name, token, error, remaining, .. } => {
            tracing::warn!(%name, %token, %error, remaining_ms = ms(remaining), "renewal failed, retrying");
        }
        Event::Endangered { name, token, remaining } => {
            tracing::warn!(%name, %token, remaining_ms = ms(remaining), "endangered");
        }
        Event::Lost { name, token, reason } => tracing::error!(%name, %token, %reason, "lost"),
        Event::Released { name, token, held, handed_on } => {
            tracing::debug!(%name, %token, held_ms = ms(held), handed_on, "released");
        }
        Event::ReleaseFailed { name, error } => tracing::warn!(%name, %error, "release failed, retrying"),
        Event::WaitsForItself { name, token, held } => tracing::warn!(
            %name, %token, held_ms = ms(held),
            "this wait never ends if the lease was not moved to another task: the same task took it; pass the lease \
             along, or take the lock in a scope"
        ),
        Event::Deadlock { circle } => {
            let circle = circle.iter().map(Stuck::to_string).collect::<Vec<_>>().join("; ");
            tracing::error!(
                circle,
                "deadlock: take the locks in one order everywhere, or all at once, or wait for a bounded time"
            );
        }
        Event::WithoutStore { name, error, instead: Some(store) } => {
            tracing::warn!(%name, %error, store, "the store cannot be used: asking another one");
        }
        Event::WithoutStore { name, error, instead: None } => {
            tracing::warn!(%name, %error, "the store cannot be used: going on WITHOUT a lease");
        }
        Event::Asked { op, name, took, error } => {
            let (name, error) = (name.as_ref().map(LockName::as_str), error.as_ref().map(Error::to_string));
            tracing::trace!(%op, name, took_us = micros(took), error, "asked");
        }
    }
}

/// Around an acquire, from the first poll to the answer.
pub(crate) fn acquire_span(client: &Client, terms: &Terms, wait: Option<Duration>) -> Span {
    tracing::info_span!(
        "leasehold.acquire",
        store = client.scheme(),
        name = %terms.name,
        ttl_ms = ms(&terms.ttl),
        wait_ms = wait.as_ref().map(ms),
        outcome = field::Empty,
        token = field::Empty,
    )
}

/// Writes down how an acquire ended.
pub(crate) fn record_acquire(span: &Span, answer: &Result<Arc<Hold>>) {
    match answer {
        Ok(hold) => span.record("token", hold.token().get()).record("outcome", "granted"),
        Err(error) => span.record("outcome", outcome(error)),
    };
}

/// Around a lease, from the grant to its end.
pub(crate) fn lease_span(hold: &Hold) -> Span {
    tracing::info_span!("leasehold.lease", name = %hold.name, token = hold.token().get(), ended = field::Empty)
}

/// Writes down how a lease ended.
pub(crate) fn record_end(span: &Span, hold: &Hold, by_hand: bool) {
    let ended = match hold.reason() {
        Some(LostReason::Released) | None if by_hand => "released",
        Some(LostReason::Released) | None => "dropped",
        Some(_) => "lost",
    };
    span.record("ended", ended);
}

/// Around the work that runs under a lease.
pub(crate) fn run_span(name: &LockName, token: Token) -> Span {
    tracing::info_span!("leasehold.run", %name, token = token.get())
}

/// How an acquire ended without a lease, in one of a few words.
pub(crate) fn outcome(error: &Error) -> &'static str {
    match error {
        Error::Busy(_) => "busy",
        Error::TimedOut { .. } => "timed_out",
        _ => "failed",
    }
}

fn ms(duration: &Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn micros(duration: &Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
