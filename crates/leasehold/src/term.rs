//! One time of leading: over before its lease is.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::{LockName, Lost, LostReason, Result, Token, fault};
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::engine::{Command, Engine};
use crate::hold::{Hold, LeaseState};
use crate::lease::Lease;
use crate::terms;

/// One time of leading. Dropping it gives it up.
///
/// It is over before its lease is, by as much as a lease gives up for clocks that run at different rates (one percent
/// of the ttl and 2 ms, once more): so who leads next starts after it. When its renewals fail
/// [`cancelled`](Self::cancelled) fires first, and from then on it never recovers, whatever the store answers later:
/// whoever was told to wind down has begun to.
#[must_use = "a term that is not kept is given up at once"]
pub struct Term {
    hold: Arc<Hold>,
    /// What to give up in the end; the work of [`Election::lead`](crate::Election::lead) only looks on.
    lease: Option<Lease>,
    client: Arc<Client>,
    warned: CancellationToken,
    over: CancellationToken,
}

impl Term {
    /// What it stands on: nothing, for a view of it.
    pub(crate) fn leases(&self) -> Vec<&Lease> {
        self.lease.iter().collect()
    }

    pub(crate) fn begin(lease: Lease, client: &Arc<Client>) -> Result<Self> {
        let (warned, over) = (CancellationToken::new(), CancellationToken::new());
        let hold = lease.hold().clone();
        let kept = (hold.clone(), (warned.clone(), over.clone()));
        let keep = |engine: Rc<Engine>| keep(engine, kept.0, kept.1).boxed_local();
        client.send(Command::Run(Box::new(keep)))?;
        Ok(Self { hold, lease: Some(lease), client: client.clone(), warned, over })
    }

    /// The same term for who works in it, and does not keep it.
    pub(crate) fn view(&self) -> Self {
        let Self { hold, lease: _, client, warned, over } = self;
        let (hold, client) = (hold.clone(), client.clone());
        Self { hold, lease: None, client, warned: warned.clone(), over: over.clone() }
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// What is led, with its namespace.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.hold.name
    }

    /// The fencing token: higher than those of all terms before. It stays readable after the end, for logs.
    #[must_use]
    pub fn token(&self) -> Token {
        self.hold.token()
    }

    /// Who leads, as others read it: `host/pid/tag`.
    #[must_use]
    pub fn owner_id(&self) -> &str {
        &self.hold.owner_id
    }

    /// How long it lasts if no renewal succeeds any more; zero once it is over.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if self.over.is_cancelled() { Duration::ZERO } else { left(&self.hold) }
    }

    /// The token, if it leads right now. It asks nobody; so put it before each step that matters, and send the token
    /// with the write.
    ///
    /// # Errors
    ///
    /// [`Lost`], for good: a term never comes back.
    pub fn check(&self) -> Result<Token, Lost> {
        let token = self.hold.check()?;
        if self.remaining().is_zero() {
            // A renewal that is answered right now must not bring it back.
            self.warned.cancel();
            self.over.cancel();
            return Err(Lost::new(LostReason::Expired));
        }
        Ok(token)
    }

    /// A token that is cancelled when it is time to wind down: renewals fail and the end is near, or the lease is
    /// lost. Whatever is still under way at the [end](Self::ends) is too late.
    #[must_use]
    pub fn cancelled(&self) -> CancellationToken {
        self.warned.clone()
    }

    /// Returns once it is over, with the reason; for `select!`.
    ///
    /// # Cancel safety
    ///
    /// Nothing happens when it is dropped.
    pub async fn ends(&self) -> Lost {
        self.over.cancelled().await;
        Lost::new(self.hold.reason().unwrap_or(LostReason::Expired))
    }

    /// Gives it up, and waits until the store has acknowledged that. In the work of
    /// [`Election::lead`](crate::Election::lead) it stops that work, and returns at once.
    ///
    /// # Errors
    ///
    /// As [`Lease::release`].
    ///
    /// # Cancel safety
    ///
    /// As [`Lease::release`].
    pub async fn resign(self) -> Result<()> {
        let Self { hold: _, lease, client: _, warned, over } = self;
        warned.cancel();
        over.cancel();
        match lease {
            Some(lease) => lease.release().await,
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term")
            .field("name", self.name())
            .field("token", &self.token())
            .field("cancelled", &self.warned.is_cancelled())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

/// How much is left of the term under a lease: its validity, less the margin once more.
fn left(hold: &Hold) -> Duration {
    if fault!("term_outlives_lease") {
        return Duration::MAX;
    }
    hold.remaining().saturating_sub(terms::margin(hold.ttl))
}

/// Ends a term in time: tells its holder to wind down when its lease is endangered, and that it is over a margin
/// before its lease is.
async fn keep(engine: Rc<Engine>, hold: Arc<Hold>, (warned, over): (CancellationToken, CancellationToken)) {
    let mut news = hold.news();
    let clock = &engine.clock;
    let stop = loop {
        let held = news.borrow_and_update().state == LeaseState::Held;
        let stop = clock.now().after(left(&hold));
        if !held || stop <= clock.now() || over.is_cancelled() {
            break stop;
        }
        tokio::select! {
            // The sender lives in the hold, so it ends only with news. A jump of the clock is news, too.
            _ = news.changed() => {}
            () = clock.sleep_until(stop) => {}
        }
    };
    warned.cancel();
    tokio::select! {
        _ = news.wait_for(|news| news.reason.is_some()) => {}
        () = clock.sleep_until(stop) => {}
        () = over.cancelled() => {}
    }
    over.cancel();
}
