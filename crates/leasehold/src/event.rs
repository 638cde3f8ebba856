//! What happens to locks, for logs, metrics, the command's messages and dashboards: the one seam.

use std::fmt;
use std::time::Duration;

use leasehold_core::{Error, LockName, LostReason, Op, Share, Token};

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
    /// A renewal was answered.
    Renewed {
        /// The lock.
        name: LockName,
        /// The fencing token.
        token: Token,
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

/// Listens to a client.
///
/// It is called on the client's own thread, which also renews leases: return at once.
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
        Event::Renewed { name, token, remaining } => {
            tracing::trace!(%name, %token, remaining_ms = ms(remaining), "renewed");
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
        Event::Asked { op, name, took, error } => {
            let (name, error) = (name.as_ref().map(LockName::as_str), error.as_ref().map(Error::to_string));
            tracing::trace!(%op, name, took_us = micros(took), error, "asked");
        }
    }
}

fn ms(duration: &Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn micros(duration: &Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
