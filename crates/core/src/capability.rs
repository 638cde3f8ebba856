//! What a store can do: a few questions, checked in one place before the store is asked.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::line::{first_named_twice, named_twice};
use crate::{Aftermath, Claim, Result, Share, Turn, Unsupported};

/// How good the fencing tokens are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fencing {
    /// They rise unless the store both forgot its counter and has a clock that is behind.
    BestEffort,
    /// They always rise.
    Strong,
}

/// Where tokens come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Minting {
    /// A revision of the store's own: one for each grant.
    Revision,
    /// A [`Counter`](crate::Counter): runs can be reserved, and tokens proposed.
    Counter,
}

/// Which shares a store understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Shares {
    /// Exclusive ones only.
    Exclusive,
    /// Any.
    Any,
}

/// Whether a store keeps a line of waiters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Queueing {
    /// No.
    Never,
    /// For claims that ask for it.
    OnRequest,
    /// For every claim that may wait: the line is native.
    Always,
}

/// What ends a lease whose holder died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Expiry {
    /// The ttl of the claim.
    PerClaim,
    /// The end of a session that several claims may share.
    Session,
}

/// How a waiter learns that its turn has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wake {
    /// It is told.
    Push,
    /// It asks.
    Poll,
}

/// How widely locks of a store exclude.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reach {
    /// Within one process.
    Process,
    /// All processes of one host.
    Host,
    /// All hosts that reach the store.
    Fleet,
}

/// What a store can do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Capabilities {
    /// How good the tokens are.
    pub fencing: Fencing,
    /// Where tokens come from.
    pub minting: Minting,
    /// Which shares are understood.
    pub shares: Shares,
    /// Whether there is a line.
    pub queueing: Queueing,
    /// What ends the lease of a dead holder.
    pub expiry: Expiry,
    /// How waiters are woken.
    pub wake: Wake,
    /// Whether a release may leave the name shut.
    pub closing: bool,
    /// Whether several names can be claimed in one step, all or none
    /// ([`Store::claim_all`](crate::Store::claim_all)).
    pub together: bool,
    /// Whether a held claim that is stated with another share changes it ([`Claim::reshape`]): a reader becomes the
    /// writer, a writer a reader, and no one else gets in between.
    pub reshaping: bool,
    /// Whether a lease may go to another owner without ever being free ([`Claim::succeeds`]).
    pub succession: bool,
    /// Whether a lease that ends uncleanly may leave the name shut ([`Aftermath`]).
    pub aftermath: bool,
    /// How widely the locks exclude.
    pub reach: Reach,
    /// Which ttl may be asked for.
    pub ttl: RangeInclusive<Duration>,
}

impl Capabilities {
    /// The gate for several claims as one step: each must be one that the store can serve, and no two of one name.
    ///
    /// # Errors
    ///
    /// Says what the store cannot do, or which name is there twice.
    pub fn check_all(&self, claims: &[Claim]) -> Result<()> {
        if !self.together {
            return Err(Unsupported::here("claiming several names in one step").into());
        }
        if let Some(index) = first_named_twice(claims.iter().map(|claim| &claim.name)) {
            return Err(named_twice(&claims[index].name).into());
        }
        claims.iter().try_for_each(|claim| self.check(claim))
    }

    /// The one gate: whether the store can serve this claim, so that a store never sees one it cannot.
    ///
    /// # Errors
    ///
    /// Says what the store cannot do.
    pub fn check(&self, claim: &Claim) -> Result<()> {
        let Self { minting, shares, queueing, ttl, succession, aftermath, .. } = self;
        let cannot = |what: &str| Err(Unsupported::here(what).into());
        if *shares == Shares::Exclusive && claim.share != Share::EXCLUSIVE {
            return cannot("shared locks and permits");
        }
        if *queueing == Queueing::Never && claim.turn == Turn::Fifo {
            return cannot("waiting in strict order");
        }
        if *minting == Minting::Revision && claim.proposed.is_some() {
            return cannot("proposed tokens");
        }
        if !succession && claim.succeeds.is_some() {
            return cannot("handing a lease to another owner");
        }
        if !aftermath && claim.aftermath != Aftermath::NONE {
            return cannot("keeping a name shut after a lease that ended uncleanly");
        }
        if !ttl.contains(&claim.ttl) {
            let (low, high) = (ttl.start(), ttl.end());
            let what = format!("a ttl of {:?}: it takes {low:?} to {high:?}", claim.ttl);
            return Err(Unsupported::new(what).help("choose a ttl within what it takes").into());
        }
        Ok(())
    }
}
