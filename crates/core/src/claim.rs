//! A claim: one request by one owner for a share of a name, known by its id.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{Error, LockName, Op, Result, ServerTime, Share, StoreError, StoreErrorKind, Token};

/// The id of a claim: 128 bits that nobody can guess. It is what makes every request idempotent, and what only
/// the owner can renew or release with; so it is never logged and never given to a child process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(u128);

impl ClaimId {
    /// A new id from the operating system's source of randomness.
    ///
    /// # Errors
    ///
    /// When that source fails, which it does only very early at boot.
    pub fn random() -> Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| {
            Error::from(
                StoreError::new(StoreErrorKind::Unexpected, Op::Claim, "getrandom")
                    .saying(format!("no random bytes for a claim id: {error}")),
            )
        })?;
        Ok(Self(u128::from_be_bytes(bytes)))
    }

    /// The id that these bytes say, as a store kept them.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// The bytes for a store to keep.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

impl fmt::Debug for ClaimId {
    /// Enough to tell two apart in a log, too little to release with.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClaimId({:04x}..)", self.0 >> 112)
    }
}

/// Who states claims, as people want to read it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Owner {
    /// The host's name.
    pub host: String,
    /// The user's name, or number where it has none.
    pub user: String,
    /// The process id.
    pub pid: u32,
    /// What runs, such as `report.sh`.
    pub program: String,
    /// A few characters that tell two clients of one process apart.
    pub tag: String,
}

impl Owner {
    /// The public id of the owner: `host/pid/tag`. It grants nothing: claims are proved by their [`ClaimId`].
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}/{}/{}", self.host, self.pid, self.tag)
    }
}

/// What the holder wants others to read: at most 1,000 bytes without control characters.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Note(Option<Arc<str>>);

impl Note {
    /// The most bytes that a note may have.
    pub const MOST_BYTES: usize = 1000;
    /// Nothing to say.
    pub const NONE: Self = Self(None);

    /// Parses a note; an empty text is no note.
    ///
    /// # Errors
    ///
    /// When the text is over 1,000 bytes or has a control character (it is shown in other people's terminals).
    pub fn parse(text: &str) -> Result<Self, NoteError> {
        if text.is_empty() {
            return Ok(Self::NONE);
        }
        if text.len() > Self::MOST_BYTES {
            return Err(NoteError::Long { bytes: text.len() });
        }
        match text.chars().find(|c| c.is_control()) {
            Some(found) => Err(NoteError::Control { found }),
            None => Ok(Self(Some(text.into()))),
        }
    }

    /// The text, if there is one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl fmt::Debug for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Note({:?})", self.text().unwrap_or(""))
    }
}

/// Why a text is not a note.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoteError {
    /// Too long.
    #[error("the note has {bytes} bytes, {} are the most", Note::MOST_BYTES)]
    Long {
        /// How long it is.
        bytes: usize,
    },
    /// It would garble the terminal of whoever reads it.
    #[error("the note has the control character {found:?}; notes are shown in terminals")]
    Control {
        /// The first such character.
        found: char,
    },
}

/// How a claim takes its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Turn {
    /// One step: granted now, or nothing is left behind.
    Now,
    /// May wait. A free lock may be taken by a newcomer, but not past somebody who has waited long.
    Any,
    /// Keeps a place in strict order of arrival.
    Fifo,
}

/// How long a name stays shut after a lease that ended *uncleanly*: it ran out, or its holder died. A release,
/// also one by somebody else, is clean, and so is a lease that went to another owner.
///
/// Whoever was paused and wakes up may still write; the *lock-delay* of Chubby gives such writes the time to arrive
/// before the next holder starts, where what is written to cannot check tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Aftermath {
    /// From the end of the lease.
    pub delay: Duration,
    /// From the grant: what runs at most so often does so also when a run dies.
    pub at_least: Duration,
}

impl Aftermath {
    /// The name is free at once.
    pub const NONE: Self = Self { delay: Duration::ZERO, at_least: Duration::ZERO };
}

/// One request by one owner for a share of a name.
///
/// Stating a claim again with the same id is the same claim: a lost reply is cured by asking again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// What is locked.
    pub name: LockName,
    /// By what the claim is known.
    pub id: ClaimId,
    /// Who states it.
    pub owner: Owner,
    /// How much of the name it takes.
    pub share: Share,
    /// Which change of its share this is: 0 as it was asked for first, and one more for each time that its owner
    /// changes its mind, back included. Of two statements that say different shares the one with the higher number
    /// counts, whichever arrives first: one that was under way for long neither makes a writer a reader again nor
    /// brings back a wish that was given up.
    pub reshape: u32,
    /// How it takes its turn.
    pub turn: Turn,
    /// How long the store keeps the lease without a renewal.
    pub ttl: Duration,
    /// What others may read.
    pub note: Note,
    /// Whether the lease is to outlast its ttl for as long as something of the holder surely lives: a store that is
    /// told by the kernel ([`Store::anchor`](crate::Store::anchor)) then keeps it. Other stores take no notice.
    pub anchored: bool,
    /// What is left behind should the lease end without being given back.
    pub aftermath: Aftermath,
    /// The claim that this one takes over from, if it is to: a lease that goes to another owner without ever being
    /// free. Its id is the proof that whoever had it agreed. It states the share that is held.
    pub succeeds: Option<ClaimId>,
    /// How many tokens to reserve, at least 1: a run of them lets a process hand the lease on between its own
    /// tasks, each with its own higher token. A store may grant fewer.
    pub tokens: u32,
    /// The highest token that the client has seen. A store with a counter grants above it, if it is at most a
    /// day ahead of the store's clock; so tokens rise over a store that forgot.
    pub seen: Option<Token>,
    /// The token that the claim must get: a node of a quorum grants only if this is above its own counter.
    pub proposed: Option<Token>,
    /// Until when, by the store's clock, the claim may be executed. One that arrives later is not: it was
    /// given up long ago.
    pub not_after: Option<ServerTime>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unlike_and_do_not_print_themselves() {
        let (one, two) = (ClaimId::random().unwrap(), ClaimId::random().unwrap());
        assert_ne!(one, two);
        assert_eq!(ClaimId::from_bytes(one.to_bytes()), one);
        assert!(format!("{one:?}").len() < 20, "a debug print must not carry the whole id");
    }

    #[test]
    fn notes_are_short_and_harmless() {
        assert_eq!(Note::parse("").unwrap(), Note::NONE);
        assert_eq!(Note::parse("job #5512").unwrap().text(), Some("job #5512"));
        assert!(Note::parse("\u{1b}[31mred").is_err());
        assert!(Note::parse(&"x".repeat(1001)).is_err());
    }
}
