//! Where a claim stands, and what else a store answers.

use std::sync::Arc;
use std::time::Duration;

use crate::{Claim, ClaimId, Cursor, LockName, Note, Owner, ServerTime, Share, Token};

/// Where a claim stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Granted, waiting, closed ..
    pub state: State,
    /// From what [`Store::changed`](crate::Store::changed) goes on.
    pub cursor: Cursor,
    /// The store's clock when it answered.
    pub server_time: Option<ServerTime>,
}

/// The state of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// It holds.
    Granted(Grant),
    /// It does not hold yet; with [`Turn::Now`](crate::Turn::Now) it has left nothing behind.
    Waiting {
        /// How many claims are before it, holders included.
        ahead: Option<u32>,
        /// When to ask again even if nothing was heard.
        retry_after: Option<Duration>,
    },
    /// The name is kept shut.
    Closed(Closure),
    /// The id was released, or was granted once and lost: it is never granted again. Ask under a new id.
    Spent,
    /// A quorum node's counter is not below the proposed token.
    Refused {
        /// The counter: propose higher.
        counter: Token,
    },
}

/// Where several claims stand that were stated as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Together {
    /// All of them hold; the standings are in the order of the claims.
    All(Vec<Standing>),
    /// None of them holds by this step, and none has left anything behind.
    None {
        /// The first that was in the way, by its place among the claims.
        index: usize,
        /// Where that one stands.
        standing: Standing,
    },
}

/// What a granted claim got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The fencing token, the first of the run.
    pub token: Token,
    /// How many tokens in a row were reserved, this one included.
    pub tokens: u32,
    /// How long the lease holds, counted from when the caller *asked*. It may be shorter than what was asked
    /// for: a grant to a claim that has waited is short until it is renewed, so that a waiter that died with
    /// its grant costs the others little.
    pub ttl: Duration,
}

/// A held claim to prolong.
#[derive(Debug, Clone)]
pub struct Renew {
    /// The claim.
    pub claim: Arc<Claim>,
    /// Which tenure of it runs now.
    pub tenure: Tenure,
}

/// One holding of a lease; a lease that is handed on inside a process has several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenure {
    /// The how-manieth tenure under this claim, from 1.
    pub count: u32,
    /// The token of this tenure.
    pub token: Token,
    /// The note of this tenure.
    pub note: Note,
}

/// What became of a renewal. An error in its place means *unknown*, never lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// It holds for this long, counted from when the caller *asked*.
    Kept {
        /// How long.
        ttl: Duration,
        /// The store's clock when it answered.
        server_time: Option<ServerTime>,
    },
    /// The claim holds nothing.
    Lost,
}

/// What became of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// It held, and holds no longer.
    Released,
    /// It stood in line, and stands there no longer.
    Withdrawn,
    /// It held nothing: expired, or released before.
    NotHeld,
}

/// What a release leaves behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leave {
    /// A free name.
    Open,
    /// A name that stays shut for a while.
    Closed {
        /// For how long, from now.
        lasting: Duration,
        /// Why.
        note: Note,
    },
}

/// A name that is kept shut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closure {
    /// For how much longer.
    pub left: Duration,
    /// Who shut it.
    pub by: Owner,
    /// Why.
    pub note: Note,
}

/// One name in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The name.
    pub name: LockName,
    /// Who holds it, oldest first.
    pub holders: Vec<Entry>,
    /// Who waits for it, in order.
    pub waiters: Vec<Entry>,
    /// Whether it is kept shut.
    pub closed: Option<Closure>,
    /// From what to wait for a change.
    pub cursor: Cursor,
    /// The store's clock when it answered.
    pub server_time: Option<ServerTime>,
}

/// One claim, as people look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its id. A secret: with it the claim can be released.
    pub id: ClaimId,
    /// Whose it is.
    pub owner: Owner,
    /// How much it takes.
    pub share: Share,
    /// How much it wants instead, if it holds and waits for more.
    pub wanted: Option<Share>,
    /// Which change of its share was stated last.
    pub reshape: u32,
    /// What its owner wants others to read.
    pub note: Note,
    /// Its token, if it holds.
    pub token: Option<Token>,
    /// The how-manieth tenure under this claim.
    pub tenure: u32,
    /// For how long it has held, or stood in line.
    pub age: Duration,
    /// How long ago it was last renewed, or its place refreshed.
    pub renewed: Duration,
    /// How often it was renewed; fewer times, or none, where the store prolongs leases without writing.
    pub renewals: u32,
    /// How much is left of its lease, or of its place; [`Duration::MAX`] if it never ends by itself.
    pub left: Duration,
    /// The ttl it asked for; [`Duration::MAX`] if it asked for none.
    pub ttl: Duration,
}

impl Entry {
    /// Whether it stays until somebody takes it away: the lock of another client that set no ttl.
    #[must_use]
    pub fn never_ends(&self) -> bool {
        self.left == Duration::MAX
    }
}
