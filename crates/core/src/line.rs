//! The whole law of one name's line of claims: no I/O, no clock of its own, the same for every store that
//! keeps its lines itself.
//!
//! The memory store holds a [`Line`] for each name; the SQLite store loads one from its tables, lets it rule,
//! and writes back what changed. Stores whose server rules (scripts, SQL functions) restate this law and are
//! held to it by random operations against the memory store.

mod claims;
mod lapses;
mod looks;
mod overruled;
mod reshaping;
#[cfg(test)]
mod search;
mod succession;
mod together;
mod tombstones;
mod waits;

use std::sync::Arc;
use std::time::Duration;

use crate::{Aftermath, BootTime, ClaimId, Note, Owner, ServerTime, Share, Token, Turn};

pub use overruled::Overruled;
pub(crate) use overruled::named_twice;
pub use together::Joint;
pub(crate) use together::named_twice as first_named_twice;
pub use tombstones::Tombstones;
pub use waits::{Ruling, Watch};

/// How long a place in line lives without being refreshed, whatever the ttl: so a dead waiter costs the others
/// at most this.
pub const PLACE_LIFE: Duration = Duration::from_secs(2);
/// How long a grant to a claim that has waited holds until it is renewed: its waiter may have died while the
/// grant was on its way, and must not cost the others a whole ttl.
pub const SHORT_GRANT: Duration = Duration::from_millis(1400);
/// From when on a waiter is served before newcomers. Below it a newcomer may take a free name, which saves a
/// change of process for each short tenure; above it somebody would starve.
pub const LONG_WAIT: Duration = Duration::from_millis(100);
/// How long an ended id is remembered: twice as long as a claim may be under way.
pub const TOMBSTONE_LIFE: Duration = Duration::from_secs(10);

/// Now, by the store's clocks.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Judges what has run out.
    pub boot: BootTime,
    /// Dates tokens, and late claims.
    pub wall: ServerTime,
}

/// One claim in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub id: ClaimId,
    /// Whose it is.
    pub owner: Owner,
    /// How much it takes.
    pub share: Share,
    /// How much it wants instead, if it holds and waits for more.
    pub wanted: Option<Share>,
    /// Which change of its share was stated last.
    pub reshape: u32,
    /// How it takes its turn.
    pub turn: Turn,
    /// The ttl it asked for.
    pub ttl: Duration,
    /// What is left behind should it end uncleanly.
    pub aftermath: Aftermath,
    /// What its owner wants others to read.
    pub note: Note,
    /// Its place: lower is earlier.
    pub place: u64,
    /// Since when it has stood here.
    pub since: BootTime,
    /// Until when it stands, or holds, unless refreshed or renewed.
    pub until: BootTime,
    /// When it was last refreshed or renewed.
    pub renewed: BootTime,
    /// What it got, if it holds.
    pub held: Option<Held>,
    /// Whether it is kept beyond its end while what is behind it surely lives; the store sees to that.
    pub anchored: bool,
    /// Whatever the store knows the living process behind it by.
    pub life: Option<Arc<str>>,
}

impl Member {
    /// How much others must leave to it: while it waits for more, as much as it wants, or newcomers would keep it
    /// waiting for ever.
    #[must_use]
    pub fn claims(&self) -> Share {
        self.wanted.unwrap_or(self.share)
    }
}

/// What a member that holds got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The token of the present tenure.
    pub token: Token,
    /// The first token of the run.
    pub first: Token,
    /// How many tokens the run has.
    pub run: u32,
    /// Since when it has held.
    pub since: BootTime,
    /// How often it was renewed.
    pub renewals: u32,
    /// The how-manieth tenure under this claim.
    pub tenure: u32,
}

/// A name that is kept shut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shut {
    /// Until when.
    pub until: BootTime,
    /// Who shut it.
    pub by: Owner,
    /// Why.
    pub note: Note,
}

impl Shut {
    /// What keeps the name shut for longer: a second closing never opens early what a first one shut.
    #[must_use]
    pub fn longer(self, other: Self) -> Self {
        if other.until > self.until { other } else { self }
    }
}

/// The line of claims for one name, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Line {
    /// Holders and waiters, by place.
    pub members: Vec<Member>,
    /// Set while the name is kept shut.
    pub shut: Option<Shut>,
    /// Ended ids.
    pub tombstones: Tombstones,
    /// Rises with each change that somebody may wait for.
    pub version: u64,
}

impl Line {
    /// Whether nothing is left that a store would have to keep.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.shut.is_none() && self.tombstones.is_empty()
    }

    fn bury(&mut self, id: ClaimId, until: BootTime) {
        if !crate::fault!("claim_twice_granted") {
            self.tombstones.bury(id, until);
        }
    }
}
