//! Handing a live lease to another owner, without it ever being free: a new claim takes the place of the old one,
//! with a higher token.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::{ConfigError, LockName, LostReason, Result, Turn};
use tokio::sync::oneshot;

use crate::acquire::Acquire;
use crate::client::{Client, Leasehold};
use crate::engine::Engine;
use crate::handover::LeaseTicket;
use crate::hold::Hold;
use crate::lease::Lease;
use crate::terms::{self, Terms};
use crate::watchdog;

/// At most this often is the store asked whether a lease has been taken over.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A lease that its holder has let go of for somebody else, and that is renewed until that somebody takes it.
///
/// Made by [`Lease::hand_over`]. Dropping it before it was taken gives the lease back; dropping it afterwards does
/// nothing.
#[must_use = "dropping it gives the lease back instead of handing it over"]
pub struct HandOver {
    lease: Lease,
    ticket: LeaseTicket,
}

impl Lease {
    /// Lets go of the lease, and keeps it renewed until somebody with the [ticket](HandOver::ticket)
    /// [takes it over](Leasehold::take_over), such as another process. In between nobody else gets in.
    ///
    /// From now on it is [lost](LostReason::Superseded) here, for all leases of its [scope](crate::Scope): nobody has
    /// to guess when exactly the other one begins. To go on under the same token and owner instead, as a script does
    /// whose steps are processes, use [`ticket`](Self::ticket) and [`resume`](Leasehold::resume).
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) when it no longer holds, and a store that cannot do it.
    ///
    /// # Cancel safety
    ///
    /// The lease is given back.
    ///
    /// # Examples
    ///
    /// ```
    /// # leasehold::doc_test(async {
    /// # use std::sync::Arc;
    /// # use leasehold::{Leasehold, LeaseTicket, MemoryStore};
    /// # let store = Arc::new(MemoryStore::new());
    /// # let (giver, taker) = (Leasehold::builder().store(store.clone()), Leasehold::builder().store(store));
    /// let lease = giver.lock("migration").acquire().await?;
    /// let old = lease.token();
    /// let given = lease.hand_over().await?;
    /// let bytes = given.ticket().to_bytes(); // through a pipe: whoever has it can take the lease
    ///
    /// let taken = taker.take_over(LeaseTicket::from_bytes(&bytes)?).await?;
    /// assert!(taken.check()? > old);
    /// given.taken().await?; // the giver may end
    /// # taken.release().await });
    /// ```
    pub async fn hand_over(self) -> Result<HandOver> {
        self.check()?;
        if !self.client().capabilities().succession {
            return Err(leasehold_core::Unsupported::here("handing a lease to another owner").into());
        }
        let (hold, client) = (self.hold().clone(), self.client().clone());
        let give = {
            let client = client.clone();
            move |engine: Rc<Engine>| {
                async move {
                    let (hold, ticket) = watchdog::give(&engine, &hold)?;
                    // A lease from here on, so that it is given back should nobody receive it.
                    Ok(HandOver { lease: Lease::new(hold, client), ticket })
                }
                .boxed_local()
            }
        };
        let given = client.on_engine(give).await?;
        if given.is_ok() {
            self.forget();
        }
        given
    }
}

impl HandOver {
    pub(crate) fn client(&self) -> &Arc<Client> {
        self.lease.client()
    }

    /// What it takes to take the lease over.
    #[must_use]
    pub fn ticket(&self) -> &LeaseTicket {
        &self.ticket
    }

    /// What is locked.
    #[must_use]
    pub fn name(&self) -> &LockName {
        self.lease.name()
    }

    /// Returns once the lease has gone: the store knows it as ours no longer. (Somebody who broke it meanwhile looks
    /// the same from here.) The store is asked about every twentieth of the ttl.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) if it ran out before anybody took it.
    ///
    /// # Cancel safety
    ///
    /// The lease is given back if it was not taken.
    pub async fn taken(self) -> Result<()> {
        let hold = self.lease.hold().clone();
        let ask = move |engine: Rc<Engine>| async move { ask_until_gone(&engine, &hold).await }.boxed_local();
        // It goes on by itself, and ends with the lease: a client that was closed ends the wait below.
        let asking = self.lease.client().on_engine(ask);
        let lost = {
            let lost = std::pin::pin!(self.lease.lost());
            let asking = std::pin::pin!(asking);
            match futures_util::future::select(lost, asking).await {
                futures_util::future::Either::Left((lost, _)) => lost,
                futures_util::future::Either::Right((asked, lost)) => {
                    asked?;
                    lost.await
                }
            }
        };
        if lost.reason == LostReason::Superseded { Ok(()) } else { Err(lost.into()) }
    }
}

/// Renews it more often than it needs: the answer tells when somebody else has it.
async fn ask_until_gone(engine: &Rc<Engine>, hold: &Arc<Hold>) {
    let pause = (hold.ttl / 20).max(LOOK_EVERY);
    while hold.reason().is_none() {
        let (reply, answer) = oneshot::channel();
        engine.watchdog.ensure(hold, reply);
        // A renewal that fails is tried again; what it says otherwise the hold says, too.
        drop(answer.await);
        engine.clock.sleep_until(engine.clock.now().after(pause)).await;
    }
}

impl Leasehold {
    /// Takes over a lease that its holder [handed over](Lease::hand_over): under this client as its owner, with a new
    /// and higher token and the full ttl, without anybody else getting in between.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) when there is nothing to take over any more: it ran out, was given back,
    /// or somebody else took it first. A ticket whose holder still uses the lease, a store that cannot do it
    /// ([`Error::Unsupported`](crate::Error::Unsupported)), and one that cannot be asked.
    ///
    /// # Cancel safety
    ///
    /// It may have been taken over; then it is given back in the background.
    pub async fn take_over(&self, ticket: LeaseTicket) -> Result<Lease> {
        let LeaseTicket { claim, tenure, given } = ticket;
        if !given {
            let message = format!("the lease of {} is still used by its holder", claim.name);
            return Err(ConfigError::new(message)
                .help("hand it over first (`Lease::hand_over`), or go on with it as it is (`resume`)")
                .into());
        }
        let terms = Terms {
            name: claim.name,
            share: claim.share,
            turn: Turn::Now,
            ttl: claim.ttl,
            grace: terms::default_grace(claim.ttl),
            max_hold: None,
            anchored: claim.anchored,
            aftermath: claim.aftermath,
            note: tenure.note,
            succeeds: Some(claim.id),
        };
        Acquire::new(self.client.clone(), terms, None, false).await
    }
}

impl fmt::Debug for HandOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandOver").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}
