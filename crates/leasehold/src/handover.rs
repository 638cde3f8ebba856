//! A lease as something that can be carried: to another process, or out of this one.

use std::fmt;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::{
    Aftermath, Claim, ClaimId, ConfigError, Entry, Holder, Leave, LockName, Note, Op, Owner, Release, Result,
    Share, Tenure, Token, Turn,
};
use serde::{Deserialize, Serialize};

use crate::client::Leasehold;
use crate::engine::Engine;
use crate::janitor;
use crate::lease::Lease;

/// All that it takes to renew and release a lease. A secret: whoever has it holds the lease.
///
/// Made by [`Lease::ticket`](crate::Lease::ticket) and [`Leasehold::find`](crate::Leasehold::find), and used by
/// [`Leasehold::resume`](crate::Leasehold::resume), also in another process. Pass it through a pipe, never in an
/// argument, a variable or a file that others can read.
#[derive(Clone)]
pub struct LeaseTicket {
    pub(crate) claim: Claim,
    pub(crate) tenure: Tenure,
    /// Whether its holder has stopped using it, so that somebody else may take it over.
    pub(crate) given: bool,
}

/// How a ticket is written.
#[derive(Serialize, Deserialize)]
struct Written {
    name: String,
    id: [u8; 16],
    owner: (String, String, u32, String, String),
    share: (u32, u32),
    reshape: u32,
    ttl_ns: u64,
    delay_ns: u64,
    at_least_ns: u64,
    anchored: bool,
    given: bool,
    note: String,
    tenure: u32,
    token: u64,
}

impl LeaseTicket {
    pub(crate) fn new(claim: &Claim, tenure: &Tenure, given: bool) -> Self {
        Self { claim: claim.clone(), tenure: tenure.clone(), given }
    }

    /// The ticket of a holder, as it is looked at.
    pub(crate) fn of(name: &LockName, entry: &Entry) -> Option<Self> {
        let token = entry.token?;
        let tenure = Tenure { count: entry.tenure, token, note: entry.note.clone() };
        let (id, owner) = (entry.id, entry.owner.clone());
        let shape = (entry.share, entry.reshape);
        let claim = claim(name.clone(), id, owner, shape, entry.ttl, entry.note.clone(), false);
        Some(Self { claim, tenure, given: false })
    }

    /// What is locked.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.claim.name
    }

    /// The fencing token.
    #[must_use]
    pub fn token(&self) -> Token {
        self.tenure.token
    }

    /// Who holds it, as others read it: `host/pid/tag`.
    #[must_use]
    pub fn owner_id(&self) -> String {
        self.claim.owner.id()
    }

    /// The ticket as bytes, for a pipe to a process of the same version.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let Claim { name, id, owner, share, reshape, turn: _, ttl, note: _, anchored, aftermath, .. } =
            &self.claim;
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let Owner { host, user, pid, program, tag } = owner.clone();
        let written = Written {
            name: name.to_string(),
            id: id.to_bytes(),
            owner: (host, user, pid, program, tag),
            share: (share.take(), share.of()),
            reshape: *reshape,
            ttl_ns: nanos(*ttl),
            delay_ns: nanos(aftermath.delay),
            at_least_ns: nanos(aftermath.at_least),
            anchored: *anchored,
            given: self.given,
            note: self.tenure.note.text().unwrap_or("").to_owned(),
            tenure: self.tenure.count,
            token: self.tenure.token.get(),
        };
        // Numbers and texts: nothing of it can fail to be written.
        serde_json::to_vec(&written).unwrap_or_default()
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    ///
    /// When these bytes are no ticket of this version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let wrong = || ConfigError::new("this is not the ticket of a lease, or one of another version");
        let written: Written = serde_json::from_slice(bytes).map_err(|_| wrong())?;
        let Written { name, id, owner, share, reshape, ttl_ns, delay_ns, at_least_ns, .. } = written;
        let Written { anchored, given, note, tenure, token, .. } = written;
        let (host, user, pid, program, tag) = owner;
        let owner = Owner { host, user, pid, program, tag };
        let share = Share::from_parts(share.0, share.1).map_err(|_| wrong())?;
        let note = Note::parse(&note).map_err(|_| wrong())?;
        let token = Token::new(token).ok_or_else(wrong)?;
        let (name, id) = (LockName::parse(&name)?, ClaimId::from_bytes(id));
        let ttl = Duration::from_nanos(ttl_ns);
        let (delay, at_least) = (Duration::from_nanos(delay_ns), Duration::from_nanos(at_least_ns));
        let claim = claim(name, id, owner, (share, reshape), ttl, note.clone(), anchored);
        let claim = Claim { aftermath: Aftermath { delay, at_least }, ..claim };
        Ok(Self { claim, tenure: Tenure { count: tenure, token, note }, given })
    }
}

impl Leasehold {
    /// The ticket of whoever holds the name under this token, if somebody does: for scripts, whose steps are
    /// processes of their own.
    ///
    /// # Errors
    ///
    /// A bad name, and a store that cannot be asked.
    ///
    /// # Cancel safety
    ///
    /// Nothing happens when it is dropped.
    pub async fn find(&self, name: impl AsRef<str>, token: Token) -> Result<Option<LeaseTicket>> {
        let snapshot = self.inspect(name).await?;
        let holder = snapshot.holders.iter().find(|holder| holder.token == Some(token));
        Ok(holder.and_then(|holder| LeaseTicket::of(&snapshot.name, holder)))
    }

    /// Goes on with a lease: renews it at once, and keeps it from then on as if it had been acquired here.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) when the store no longer knows it, a store that cannot be asked, and a
    /// ticket from [`Lease::hand_over`]: that lease waits to be [taken over](Self::take_over).
    ///
    /// # Cancel safety
    ///
    /// It may have been renewed once.
    pub async fn resume(&self, ticket: LeaseTicket) -> Result<Lease> {
        if ticket.given {
            let message = format!("the lease of {} is being handed over to another owner", ticket.name());
            return Err(ConfigError::new(message).help("take it over instead of resuming it").into());
        }
        let adopt = move |engine: Rc<Engine>| {
            async move { crate::watchdog::adopt(&engine, ticket).await }.boxed_local()
        };
        let hold = self.client.on_engine(adopt).await??;
        Ok(Lease::new(hold, self.client.clone()))
    }

    /// Ends somebody else's lease, if its token is still this one; says whose it was. Its holder hears of it with
    /// the next renewal; until then two may work at once, and the tokens tell them apart.
    ///
    /// # Errors
    ///
    /// A bad name, and a store that cannot be asked.
    ///
    /// # Cancel safety
    ///
    /// It may have been ended.
    pub async fn break_lease(&self, name: impl AsRef<str>, token: Token) -> Result<Option<Holder>> {
        let snapshot = self.inspect(name).await?;
        let Some(entry) = snapshot.holders.iter().find(|holder| holder.token == Some(token)) else {
            return Ok(None);
        };
        let Some(ticket) = LeaseTicket::of(&snapshot.name, entry) else { return Ok(None) };
        let end = move |engine: Rc<Engine>| {
            async move {
                let expires = engine.clock.now().after(ticket.claim.ttl);
                let given = janitor::give_back(&engine, &ticket.claim, Leave::Open, expires);
                given.await.unwrap_or_else(|_| Err(janitor::ended()))
            }
            .boxed_local()
        };
        let ended = self.client.on_engine(end).await??;
        let was = Holder::of(entry, self.owner());
        Ok(was.filter(|_| ended.release == Release::Released || ended.repeated))
    }

    /// A duplicate of the descriptor by which the kernel tells others that this client lives, where the store has
    /// one: leases that were taken [`anchored`](crate::Lock::anchored) last while any copy of it is open, in whatever
    /// process. It closes on exec unless told otherwise.
    ///
    /// # Errors
    ///
    /// When it cannot be duplicated.
    ///
    /// # Cancel safety
    ///
    /// Nothing happens when it is dropped.
    pub async fn life(&self) -> Result<Option<OwnedFd>> {
        self.client.ask(Op::Open, None, |store| async move { store.anchor().await }.boxed()).await
    }
}

/// A claim that was granted: how it took its turn, and what it asked for, no longer matters.
fn claim(
    name: LockName,
    id: ClaimId,
    owner: Owner,
    (share, reshape): (Share, u32),
    ttl: Duration,
    note: Note,
    anchored: bool,
) -> Claim {
    let (turn, aftermath, tokens) = (Turn::Now, Aftermath::NONE, 1);
    let succeeds = None;
    let (seen, proposed, not_after) = (None, None, None);
    Claim {
        name,
        id,
        owner,
        share,
        reshape,
        turn,
        ttl,
        note,
        anchored,
        aftermath,
        succeeds,
        tokens,
        seen,
        proposed,
        not_after,
    }
}

impl fmt::Debug for LeaseTicket {
    /// Not the id: with it the lease can be released.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseTicket")
            .field("name", &self.claim.name)
            .field("token", &self.tenure.token)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_reads_back_as_it_was_written_and_does_not_print_its_id() {
        let owner =
            Owner { host: "h".into(), user: "u".into(), pid: 7, program: "p".into(), tag: "t".into() };
        let (name, id) = (LockName::parse("a \"b\"").unwrap(), ClaimId::random().unwrap());
        let note = Note::parse("job #1").unwrap();
        let claim =
            claim(name, id, owner, (Share::EXCLUSIVE, 4), Duration::from_millis(1500), note.clone(), true);
        let aftermath = Aftermath { delay: Duration::from_secs(2), at_least: Duration::from_secs(9) };
        let claim = Claim { aftermath, ..claim };
        let tenure = Tenure { count: 3, token: Token::new(99).unwrap(), note };
        let ticket = LeaseTicket { claim, tenure, given: true };
        let back = LeaseTicket::from_bytes(&ticket.to_bytes()).unwrap();
        let LeaseTicket { claim, tenure, given } = &ticket;
        assert_eq!((&back.claim, &back.tenure, back.given), (claim, tenure, *given));
        assert!(LeaseTicket::from_bytes(b"{}").is_err());
        assert!(!format!("{ticket:?}").contains(&format!("{id:?}")));
    }
}
