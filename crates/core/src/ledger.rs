//! What a store keeps beside claims: marks that something was done, and records of what happened.

use std::time::Duration;

use async_trait::async_trait;

use crate::{LockName, Result};

/// What a mark is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum MarkKind {
    /// The work of a name was done for a slot or key.
    Once,
    /// Somebody was told that a name is overdue.
    Overdue,
    /// A name, or a pattern of names, is paused.
    Pause,
}

impl MarkKind {
    /// The word under which stores keep it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Overdue => "overdue",
            Self::Pause => "pause",
        }
    }
}

/// A mark: at most one stands for each kind, name and key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// What it is for.
    pub kind: MarkKind,
    /// The name that it is about.
    pub name: LockName,
    /// Which of the name's marks it is: a slot such as `2025-06-03`, or any text.
    pub key: String,
    /// Who made it: the owner's public id.
    pub by: String,
    /// Whatever its maker wants to find again, such as a remembered result.
    pub text: String,
    /// For how long it stands, from now; in an answer: for how much longer.
    pub lasting: Duration,
    /// In an answer: how long ago it was made.
    pub age: Duration,
}

/// What became of a mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MarkOutcome {
    /// It was made, and survives a power cut.
    Made,
    /// One stands already.
    Already(Box<Mark>),
}

/// The number of a record: rises with each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RecordId(pub u64);

/// What a record tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RecordKind {
    /// A command ran under a lease.
    Run,
    /// A command was skipped.
    Skip,
    /// Something else happened to a name.
    Event,
}

impl RecordKind {
    /// The word under which stores keep it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Skip => "skip",
            Self::Event => "event",
        }
    }
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What it tells.
    pub kind: RecordKind,
    /// The name that it is about.
    pub name: LockName,
    /// Whose: the owner's public id.
    pub by: String,
    /// Details, as one JSON object.
    pub text: String,
    /// How long ago it was written; zero when it is being written.
    pub age: Duration,
}

/// What a store keeps beside claims.
///
/// Marks survive a power cut before [`mark`](Ledger::mark) returns; records may lose the last few.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// Makes a mark, unless one stands.
    ///
    /// # Errors
    ///
    /// When the store cannot be asked. Making a mark again is harmless.
    async fn mark(&self, mark: &Mark) -> Result<MarkOutcome>;

    /// The marks of one kind that stand for a name, newest first.
    ///
    /// # Errors
    ///
    /// When the store cannot be asked.
    async fn marks(&self, kind: MarkKind, name: &LockName) -> Result<Vec<Mark>>;

    /// Takes a mark away, and says whether one stood.
    ///
    /// # Errors
    ///
    /// When the store cannot be asked.
    async fn unmark(&self, kind: MarkKind, name: &LockName, key: &str) -> Result<bool>;

    /// Writes down what happened. A store keeps the last 1,000 records of a name, at least for a day.
    ///
    /// # Errors
    ///
    /// When the store cannot be asked.
    async fn record(&self, record: &Record) -> Result<RecordId>;

    /// Records after `after`, oldest first, at most `most` of the newest ones; of one name, or of all.
    ///
    /// # Errors
    ///
    /// When the store cannot be asked.
    async fn records(
        &self,
        name: Option<&LockName>,
        after: RecordId,
        most: usize,
    ) -> Result<Vec<(RecordId, Record)>>;
}
