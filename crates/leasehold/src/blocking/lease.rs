//! The blocking lease.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use leasehold_core::{LockName, Lost, Result, Token};
use tokio_util::sync::CancellationToken;

use super::mirror::mirror;
use super::wait;
use crate::handover::LeaseTicket;
use crate::hold::LeaseState;
use crate::sim::OnHost;

/// As [`crate::Lease`]: the proof that a lock is held, renewed in the background from birth, given back by
/// [`release`](Self::release) or on drop.
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// use std::time::Duration;
///
/// let client = leasehold::blocking::Leasehold::memory();
/// let lease = client.lock("reindex").acquire()?;
/// for part in 0..3 {
///     lease.ensure(Duration::from_secs(5))?; // at least so much is left for the next step
///     println!("part {part} under {}", lease.check()?);
/// }
/// assert!(lease.lost_within(Duration::ZERO).is_none());
/// lease.release()
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a lease that is not kept is given back at once"]
pub struct Lease(crate::Lease);

impl Lease {
    mirror! { "Lease"
        look name() -> &LockName;
        look token() -> Token;
        look owner_id() -> &str;
        look ttl() -> Duration;
        look remaining() -> Duration;
        look state() -> LeaseState;
        look cancelled() -> CancellationToken;
        wait ensure(least: Duration) -> Result<()>;
        wait lost() -> Lost;
        wait endangered() -> ();
        wait changed() -> ();
        wait ticket() -> Result<LeaseTicket>;
    }

    /// As [`Lease::check`](crate::Lease::check): the token, if the lease holds right now.
    ///
    /// # Errors
    ///
    /// [`Lost`], for good.
    pub fn check(&self) -> Result<Token, Lost> {
        self.0.check()
    }

    /// Whether it no longer holds, and never will again.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.check().is_err()
    }

    /// Waits until it is lost, for at most `most`; `None` if it still holds then.
    #[must_use]
    pub fn lost_within(&self, most: Duration) -> Option<Lost> {
        let lost = wait(async {
            match select(pin!(self.0.lost()), pin!(self.0.client().sleep(most))).await {
                Either::Left((lost, _)) => Some(lost),
                Either::Right(_) => None,
            }
        });
        lost.or_else(|| self.check().err())
    }

    /// As [`Lease::release`](crate::Lease::release): gives it back, and waits until the store has acknowledged that.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn release(self) -> Result<()> {
        wait(self.0.release())
    }

    /// As [`Lease::release_closed`](crate::Lease::release_closed): gives it back and keeps the name shut.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn release_closed(self, lasting: Duration, note: &str) -> Result<()> {
        wait(self.0.release_closed(lasting, note))
    }

    /// As [`Lease::keep`](crate::Lease::keep): lets go of it without giving it back.
    pub fn keep(self) {
        self.0.keep();
    }

    /// The same lease for async callers.
    pub fn into_async(self) -> crate::Lease {
        self.0
    }
}

impl From<crate::Lease> for Lease {
    fn from(lease: crate::Lease) -> Self {
        Self(lease)
    }
}

impl OnHost for Lease {
    fn owner_id(&self) -> String {
        OnHost::owner_id(&self.0)
    }
}
