//! Who has it: the answer behind every "no".

use std::fmt;
use std::time::Duration;

use crate::{Closure, Entry, LockName, Note, Owner, Snapshot, Token};

/// Somebody who holds a lock now.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The host's name.
    pub host: String,
    /// The user's name.
    pub user: String,
    /// The process id on that host.
    pub pid: u32,
    /// What runs there.
    pub program: String,
    /// The public id: `host/pid/tag`.
    pub id: String,
    /// What the holder wants others to read.
    pub note: Note,
    /// Its fencing token.
    pub token: Token,
    /// For how long it has held it.
    pub held: Duration,
    /// How much of its lease is left unless it is renewed.
    pub left: Duration,
    /// Whether the holder is this very process.
    pub is_you: bool,
}

impl Holder {
    /// The holder that an entry of a snapshot tells of, if it is one, as `me` sees it.
    #[must_use]
    pub fn of(entry: &Entry, me: &Owner) -> Option<Self> {
        let owner = &entry.owner;
        Some(Self {
            host: owner.host.clone(),
            user: owner.user.clone(),
            pid: owner.pid,
            program: owner.program.clone(),
            id: owner.id(),
            note: entry.note.clone(),
            token: entry.token?,
            held: entry.age,
            left: entry.left,
            is_you: owner.host == me.host && owner.pid == me.pid,
        })
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_you {
            return write!(f, "you (this process, pid {})", self.pid);
        }
        let Self { host, user, pid, program, .. } = self;
        write!(f, "{host} ({user}, pid {pid}, {program})")
    }
}

/// A lock that somebody else has: who, since when, and how many are ahead.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Busy {
    /// What is locked.
    pub name: LockName,
    /// Who has it; `None` if it was given back while we asked.
    pub holder: Option<Holder>,
    /// How many claims are before ours, holders included; `None` where a store cannot tell.
    pub ahead: Option<u32>,
    /// Set when the name is kept shut rather than held.
    pub closed: Option<Closure>,
}

impl Busy {
    /// What a snapshot says of a name, as `me` sees it.
    #[must_use]
    pub fn from_snapshot(snapshot: &Snapshot, ahead: Option<u32>, me: &Owner) -> Self {
        Self {
            name: snapshot.name.clone(),
            holder: snapshot.holders.iter().find_map(|entry| Holder::of(entry, me)),
            ahead,
            closed: snapshot.closed.clone(),
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn help(&self) -> &'static str {
        if self.holder.as_ref().is_some_and(|holder| holder.is_you) {
            "if it is the same piece of work, pass its lease along or take the lock in a scope; else wait longer"
        } else {
            "wait longer, or ask its holder"
        }
    }

    /// Nothing but the name: the holder could not be asked for.
    #[must_use]
    pub fn unknown(name: LockName, ahead: Option<u32>) -> Self {
        Self { name, holder: None, ahead, closed: None }
    }
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.holder, &self.closed) {
            (Some(holder), _) => {
                write!(f, "{} is held by {holder} for {}", self.name, Rough(holder.held))?;
                if let Some(note) = holder.note.text() {
                    write!(f, " ({note})")?;
                }
                // Of one the holder has just been told.
                match self.ahead {
                    Some(ahead) if ahead > 1 => write!(f, ", and {} more are ahead", ahead - 1),
                    _ => Ok(()),
                }
            }
            (None, Some(closed)) => {
                write!(f, "{} is kept shut for another {}", self.name, Rough(closed.left))
            }
            (None, None) => write!(f, "{} is busy", self.name),
        }
    }
}

/// A duration as people say it: `0.4s`, `12s`, `3m12s`, `29h05m`.
struct Rough(Duration);

impl fmt::Display for Rough {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match seconds {
            0..10 => write!(f, "{:.1}s", self.0.as_secs_f64()),
            10..60 => write!(f, "{seconds}s"),
            60..3600 => write!(f, "{}m{:02}s", seconds / 60, seconds % 60),
            _ => write!(f, "{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        }
    }
}
