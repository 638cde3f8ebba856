//! The proof that a lock is held.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::{ConfigError, Leave, LockName, Lost, LostReason, Note, NoteError, Result, Token, fault};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::client::Client;
use crate::engine::{Command, Engine};
use crate::event;
use crate::handover::LeaseTicket;
use crate::hold::{Hold, LeaseState};
use crate::janitor;
use crate::scope::{Counted, End};

/// The proof that a lock is held: renewed in the background from birth, lost loudly, given back by
/// [`release`](Lease::release) or on drop.
///
/// # When it is dropped
///
/// It is given back in the background by the client's own thread, whether or not a runtime is there; if the
/// process ends before that, the store frees it after its ttl (at once where the kernel tells it that the
/// process is gone). `let _ = lock.acquire().await?` drops it at once: give it a name.
///
/// # After a fork
///
/// The child's copy is lost from the start, and dropping it there does nothing.
///
/// ```
/// # leasehold::doc_test(async {
/// let client = leasehold::Leasehold::memory();
/// let lease = client.lock("reindex").acquire().await?;
/// assert_eq!(lease.check()?, lease.token());
/// lease.release().await?;
/// # Ok(()) });
/// ```
#[must_use = "a lease that is not kept is given back at once"]
pub struct Lease {
    hold: Arc<Hold>,
    client: Arc<Client>,
    released: bool,
    /// Set if it is one of several leases of this hold.
    counted: Option<Counted>,
    /// Open as long as the lease is held.
    span: Span,
}

impl Lease {
    pub(crate) fn new(hold: Arc<Hold>, client: Arc<Client>) -> Self {
        let span = event::lease_span(&hold);
        Self { hold, client, released: false, counted: None, span }
    }

    /// Makes it one of several of its hold.
    pub(crate) fn counted(mut self, counted: Counted) -> Self {
        self.counted = Some(counted);
        self
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Takes it out of the count of its scope. Gives the way in which its hold is to end, if it was the last.
    fn leave(&mut self, end: End) -> Option<End> {
        match self.counted.take() {
            Some(counted) => counted.leave(&self.hold, end),
            None => Some(end),
        }
    }

    /// Ends this lease without ending its hold, which has gone elsewhere; nobody of its scope enters it any more.
    pub(crate) fn forget(mut self) {
        self.released = true;
        if let Some(counted) = self.counted.take() {
            counted.forget(&self.hold);
        }
    }

    /// What it shares with the engine, and the way there.
    pub(crate) fn parts(&self) -> (&Arc<Hold>, &Arc<Client>) {
        (&self.hold, &self.client)
    }

    /// What is locked, with its namespace.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.hold.name
    }

    /// The fencing token. It stays readable after the loss, for logs; what belongs before a write is
    /// [`check`](Self::check). An [`upgrade`](Self::upgrade) brings a new one.
    #[must_use]
    pub fn token(&self) -> Token {
        self.hold.token()
    }

    /// Who holds it, as others read it: `host/pid/tag`.
    #[must_use]
    pub fn owner_id(&self) -> &str {
        &self.hold.owner_id
    }

    /// The ttl that was asked for.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.hold.ttl
    }

    /// For how long it still holds if no renewal succeeds any more; zero once it is lost. By the boot clock, so
    /// it goes on while the machine sleeps.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Held, endangered or lost.
    #[must_use]
    pub fn state(&self) -> LeaseState {
        self.hold.state()
    }

    /// The token, if the lease holds right now. It looks at the local end of validity and asks nobody; so put it
    /// before each step that matters, and send the token with the write.
    ///
    /// # Errors
    ///
    /// [`Lost`], for good: a lease never comes back to life, even if the store kept it a little longer.
    pub fn check(&self) -> Result<Token, Lost> {
        self.hold.check()
    }

    /// Makes sure that at least `least` is left, renewing if there is less.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) when it no longer holds, [`Error::Store`](crate::Error::Store) when
    /// the renewal was not answered (it still holds for [`remaining`](Self::remaining)), and
    /// [`Error::Config`](crate::Error::Config) when the ttl is too short for `least`.
    ///
    /// # Cancel safety
    ///
    /// The renewal goes on.
    pub async fn ensure(&self, least: Duration) -> Result<()> {
        self.check()?;
        if self.remaining() >= least {
            return Ok(());
        }
        let (reply, answer) = oneshot::channel();
        self.client.send(Command::Ensure { hold: self.hold.clone(), reply })?;
        answer.await.map_err(|_| janitor::ended())??;
        self.check()?;
        if self.remaining() >= least {
            return Ok(());
        }
        let message = format!("{least:?} cannot be ensured with a ttl of {:?}", self.hold.ttl);
        Err(ConfigError::new(message).help("ask for the lock with a longer ttl").into())
    }

    /// Returns once the lease is lost, with the reason; for `select!`.
    ///
    /// # Cancel safety
    ///
    /// Nothing happens when it is dropped.
    pub async fn lost(&self) -> Lost {
        let mut news = self.hold.news();
        // The sender lives in the hold, so the wait ends only by the loss.
        let reason = news.wait_for(|news| news.reason.is_some()).await.ok().and_then(|news| news.reason);
        Lost::new(reason.unwrap_or(LostReason::Expired))
    }

    /// Returns once renewals fail and the end is near, or the lease is lost: time to wind down.
    ///
    /// # Cancel safety
    ///
    /// Nothing happens when it is dropped.
    pub async fn endangered(&self) {
        let mut news = self.hold.news();
        drop(news.wait_for(|news| news.state != LeaseState::Held).await);
    }

    /// Returns after the next renewal or change of state: whoever counts down to the end looks again.
    ///
    /// # Cancel safety
    ///
    /// Nothing happens when it is dropped; what changed between two calls is seen by
    /// [`remaining`](Self::remaining) and [`state`](Self::state).
    pub async fn changed(&self) {
        let mut news = self.hold.news();
        drop(news.changed().await);
    }

    /// A token that is cancelled when the lease is lost, for code that takes one.
    #[must_use]
    pub fn cancelled(&self) -> CancellationToken {
        self.hold.cancelled()
    }

    /// Gives it back, and waits until the store has acknowledged that.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) when it had ended before: somebody else may have worked meanwhile.
    /// [`Error::Store`](crate::Error::Store) when the store did not answer in time; it is asked again in the
    /// background until the lease has run out.
    ///
    /// # Cancel safety
    ///
    /// It is given back all the same.
    pub async fn release(self) -> Result<()> {
        self.give_back(Leave::Open).await
    }

    /// Says that nothing was done under it: when it is given back others get in at once, although it was asked for
    /// with [`at_least`](crate::Lock::at_least).
    pub fn unused(self) -> Self {
        self.hold.was_idle();
        self
    }

    /// Gives it back and keeps the name shut for `lasting`: nobody gets in before that, not even we. `note` says why
    /// to those who look.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release), and a note that cannot be one.
    ///
    /// # Cancel safety
    ///
    /// As [`release`](Self::release).
    pub async fn release_closed(self, lasting: Duration, note: &str) -> Result<()> {
        let bad = |error: NoteError| ConfigError::new(error.to_string()).help("write one plain line");
        let note = Note::parse(note).map_err(bad)?;
        let leave = if lasting.is_zero() { Leave::Open } else { Leave::Closed { lasting, note } };
        self.give_back(leave).await
    }

    async fn give_back(mut self, leave: Leave) -> Result<()> {
        self.released = true;
        if self.hold.is_forked() {
            return Err(Lost::new(LostReason::Forked).into());
        }
        // Time that ran out unnoticed must not be reported as a good release.
        let stands = self.hold.check();
        let leave = match self.leave(End::GiveBack(leave)) {
            Some(End::GiveBack(leave)) => leave,
            Some(End::Keep) => {
                self.let_go();
                return stands.map(drop).map_err(Into::into);
            }
            None => return stands.map(drop).map_err(Into::into),
        };
        let (reply, answer) = oneshot::channel();
        self.client.send(Command::Release { hold: self.hold.clone(), leave, reply: Some(reply) })?;
        let answer = answer.await.map_err(|_| janitor::ended())?;
        stands?;
        answer
    }

    /// What it takes to go on with this lease elsewhere ([`Leasehold::resume`](crate::Leasehold::resume)). As long as
    /// both renew it, either may.
    ///
    /// # Errors
    ///
    /// When it no longer holds.
    ///
    /// # Cancel safety
    ///
    /// Nothing happens when it is dropped.
    pub async fn ticket(&self) -> Result<LeaseTicket> {
        self.check()?;
        let id = self.hold.id;
        let look = move |engine: Rc<Engine>| async move { engine.watchdog.ticket(id) }.boxed_local();
        self.client.on_engine(look).await?.ok_or_else(|| Lost::new(LostReason::Released).into())
    }

    /// Lets go of it without giving it back: it is renewed no longer, and runs to the end of its ttl unless
    /// somebody [resumes](crate::Leasehold::resume) it.
    ///
    /// One of several leases of a [scope](crate::Scope) has the hold kept once the last of them goes.
    pub fn keep(mut self) {
        self.released = true;
        if self.leave(End::Keep).is_some() {
            self.let_go();
        }
    }

    fn let_go(&self) {
        // A client that was closed renews nothing.
        drop(self.client.send(Command::Keep { hold: self.hold.clone() }));
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        event::record_end(&self.span, &self.hold, self.released);
        if self.released || self.hold.is_forked() || fault!("no_release_on_drop") {
            return;
        }
        match self.leave(End::GiveBack(Leave::Open)) {
            // A client that was closed has given back what it could.
            Some(End::GiveBack(leave)) => {
                drop(self.client.send(Command::Release { hold: self.hold.clone(), leave, reply: None }));
            }
            Some(End::Keep) => self.let_go(),
            None => {}
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", self.name())
            .field("token", &self.token())
            .field("state", &self.state())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
