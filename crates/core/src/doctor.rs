//! What a store can tell about its own fitness to keep locks: checks, each with a verdict and with what to do.

use std::fmt;

use async_trait::async_trait;

use crate::{Code, Error, LockName, Result, ServerTime};

/// The verdict of a check, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Health {
    /// As it should be.
    Ok,
    /// The store did not tell.
    Unknown,
    /// Locks work, and something about them may surprise.
    Warning,
    /// Locks do not work, or not as promised.
    Failed,
}

impl Health {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Check {
    /// What was looked at, in one word or two joined by `_`; stable, for programs.
    pub name: &'static str,
    /// The verdict.
    pub health: Health,
    /// What was found, in one sentence, without secrets.
    pub says: String,
    /// What to do about it, a line each; there is something unless it is [`Health::Ok`].
    pub fix: Option<String>,
    /// The number under which `leasehold explain` tells more.
    pub code: Option<Code>,
}

impl Check {
    /// As it should be.
    #[must_use]
    pub fn ok(name: &'static str, says: impl Into<String>) -> Self {
        Self { name, health: Health::Ok, says: says.into(), fix: None, code: None }
    }

    /// The store did not tell; `fix` says how to find out.
    #[must_use]
    pub fn unknown(name: &'static str, says: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { health: Health::Unknown, fix: Some(fix.into()), ..Self::ok(name, says) }
    }

    /// Locks work, and something about them may surprise.
    #[must_use]
    pub fn warning(name: &'static str, code: Code, says: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { health: Health::Warning, fix: Some(fix.into()), code: Some(code), ..Self::ok(name, says) }
    }

    /// Locks do not work, or not as promised.
    #[must_use]
    pub fn failed(name: &'static str, code: Code, says: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { health: Health::Failed, ..Self::warning(name, code, says, fix) }
    }

    /// It could not be done, and that is a failure itself.
    #[must_use]
    pub fn failed_by(name: &'static str, error: &Error) -> Self {
        let fix = error.help().unwrap_or_else(|| format!("leasehold explain {}", error.code()));
        Self::failed(name, error.code(), error.to_string(), fix)
    }

    /// It could not be done, and that says nothing.
    #[must_use]
    pub fn untold(name: &'static str, error: &Error) -> Self {
        let fix = error.help().unwrap_or_else(|| format!("leasehold explain {}", error.code()));
        Self { code: Some(error.code()), ..Self::unknown(name, format!("not told: {error}"), fix) }
    }
}

/// What a store tells of itself beside locks. Whatever holds for every store (how far away it is, whether a lock can be
/// had, what its clock says) is found out by who asks, by means of these and of [`Store`](crate::Store).
#[async_trait]
pub trait Doctor: Send + Sync {
    /// What was reached, in a few words: kind, version, role, as whom.
    ///
    /// # Errors
    ///
    /// When it cannot be reached, or refuses us.
    async fn greet(&self) -> Result<String>;

    /// The cheapest round trip that there is, and the store's clock if it has one of its own.
    ///
    /// # Errors
    ///
    /// When the store cannot be asked.
    async fn ping(&self) -> Result<Option<ServerTime>>;

    /// What only this kind of store can be asked. A question that is not answered is a check that is
    /// [`Health::Unknown`]. What is written for it is taken away again.
    async fn checkup(&self) -> Vec<Check>;

    /// Takes the name and gives it back with the store's own cheapest means, without a token or a line: what the lock
    /// of this name is measured against. It leaves nothing behind, and says in a few words what was done; nothing where
    /// the store has no such means.
    ///
    /// # Errors
    ///
    /// When the store cannot be asked.
    async fn bare(&self, name: &LockName) -> Result<Option<&'static str>>;
}
