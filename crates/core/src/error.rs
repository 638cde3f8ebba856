//! The one error type.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{Busy, Code, LockName, Lost, NameError, UrlError};

/// Short for what may go wrong here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What stops a program. What a correct program meets every day is a value instead.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody has it, possibly you.
    #[error("{0}")]
    Busy(Box<Busy>),
    /// Somebody still has it at the end of the wait.
    #[error("still busy after {waited:.1?}: {busy}")]
    TimedOut {
        /// How long it was waited.
        waited: Duration,
        /// Who has it.
        busy: Box<Busy>,
    },
    /// The lease no longer holds.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Box<StoreError>),
    /// The store cannot do this.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// A text that is not a lock name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A setting, a URL or a value that cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl Error {
    /// The number under which `leasehold explain` tells more.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Busy(_) => Code::BUSY,
            Self::TimedOut { .. } => Code::TIMED_OUT,
            Self::Lost(_) => Code::LOST,
            Self::Store(error) => error.code,
            Self::Unsupported(error) => error.code,
            Self::Name(error) => error.code(),
            Self::Config(error) => error.code,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Busy(busy) | Self::TimedOut { busy, .. } => Some(busy.help().to_owned()),
            Self::Lost(_) => Some("the work may be half done; acquire a new lease to go on".to_owned()),
            Self::Store(error) => error.help.clone(),
            Self::Unsupported(error) => error.help.clone(),
            Self::Name(error) => Some(error.help()),
            Self::Config(error) => error.help.clone(),
        }
    }

    /// Whether trying again later can help, with nothing changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Busy(_) | Self::TimedOut { .. } | Self::Lost(_) => true,
            Self::Store(error) => error.is_retryable(),
            Self::Unsupported(_) | Self::Name(_) | Self::Config(_) => false,
        }
    }

    /// Whether what was asked for may have been done all the same.
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        matches!(self, Self::Store(error) if error.effect == Effect::Unknown)
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::Store(Box::new(error))
    }
}

impl From<UrlError> for Error {
    fn from(error: UrlError) -> Self {
        Self::Config(error.into())
    }
}

/// What was being done when a store failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// Opening the store.
    Open,
    /// Stating a claim.
    Claim,
    /// Waiting for a turn.
    Wait,
    /// Prolonging a lease.
    Renew,
    /// Giving a lease or a place back.
    Release,
    /// Looking at a name.
    Inspect,
    /// Listing names.
    List,
    /// Reading or writing marks and records.
    Ledger,
    /// Finding out how fit the store is.
    Check,
    /// Closing the store.
    Close,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Claim => "acquire",
            Self::Wait => "wait for",
            Self::Renew => "renew",
            Self::Release => "release",
            Self::Inspect => "look at",
            Self::List => "list",
            Self::Ledger => "keep records of",
            Self::Check => "check",
            Self::Close => "close",
        })
    }
}

/// What kind of failure of a store it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// It did not answer, or said that it cannot now.
    Unavailable,
    /// It refused us: login, rights.
    Denied,
    /// What it holds is not ours, or of a newer version, or damaged.
    Protocol,
    /// It has no room.
    Full,
    /// None of these: a defect, ours or the store's.
    Unexpected,
}

/// Whether a request that failed may have been executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// It was certainly not.
    None,
    /// It may have been.
    Unknown,
}

/// A failure of a store: names the store, the lock, the operation, and whether the outcome is known.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoreError {
    /// What kind of failure.
    pub kind: StoreErrorKind,
    /// What was being done.
    pub op: Op,
    /// Which store, without secrets.
    pub store: String,
    /// Which lock, if one.
    pub name: Option<LockName>,
    /// Whether it may have been executed.
    pub effect: Effect,
    /// What happened, in one sentence.
    pub message: String,
    /// The number under which `leasehold explain` tells more.
    pub code: Code,
    /// What to do about it.
    pub help: Option<String>,
    /// What is behind it.
    pub source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl StoreError {
    /// A failure that had no effect; the builder methods add what else is known.
    #[must_use]
    pub fn new(kind: StoreErrorKind, op: Op, store: impl fmt::Display) -> Self {
        let code = match kind {
            StoreErrorKind::Unavailable => Code::UNREACHABLE,
            StoreErrorKind::Denied => Code::DENIED,
            StoreErrorKind::Protocol => Code::FOREIGN,
            StoreErrorKind::Full => Code::FULL,
            StoreErrorKind::Unexpected => Code::BUG,
        };
        let store = store.to_string();
        let message = String::new();
        Self { kind, op, store, name: None, effect: Effect::None, message, code, help: None, source: None }
    }

    /// Names the lock.
    #[must_use]
    pub fn about(mut self, name: &LockName) -> Self {
        self.name = Some(name.clone());
        self
    }

    /// Says what happened.
    #[must_use]
    pub fn saying(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// Says that the request may have been executed.
    #[must_use]
    pub fn unknown(mut self) -> Self {
        self.effect = Effect::Unknown;
        self
    }

    /// Gives it a number of its own.
    #[must_use]
    pub fn code(mut self, code: Code) -> Self {
        self.code = code;
        self
    }

    /// Says what to do about it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Keeps what is behind it.
    #[must_use]
    pub fn because(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Whether trying again later can help, with nothing changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Unavailable | StoreErrorKind::Full)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}", self.op)?;
        match &self.name {
            Some(name) => write!(f, " {name} in {}", self.store)?,
            None if matches!(self.op, Op::List | Op::Ledger) => write!(f, " {}", self.store)?,
            None => write!(f, " the store {}", self.store)?,
        }
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        match self.effect {
            Effect::None => Ok(()),
            // Nothing is done by looking.
            Effect::Unknown if matches!(self.op, Op::Inspect | Op::List) => Ok(()),
            Effect::Unknown => f.write_str(" (it may have been done all the same)"),
        }
    }
}

impl StdError for StoreError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// Something that a store cannot do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unsupported {
    /// What it cannot do.
    pub what: String,
    /// The number under which `leasehold explain` tells more.
    pub code: Code,
    /// What to do about it.
    pub help: Option<String>,
}

impl Unsupported {
    /// This store cannot do `what`.
    #[must_use]
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), code: Code::UNSUPPORTED, help: None }
    }

    /// This store cannot do `what`, and others can, which is the help.
    #[must_use]
    pub fn here(what: impl Into<String>) -> Self {
        Self::new(what).help("use a store of another kind for it: leasehold explain stores")
    }

    /// Gives it a number of its own.
    #[must_use]
    pub fn code(mut self, code: Code) -> Self {
        self.code = code;
        self
    }

    /// Says what to do about it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this store cannot do {}", self.what)
    }
}

impl StdError for Unsupported {}

/// A setting, a URL or a value that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigError {
    /// What is wrong with it.
    pub message: String,
    /// The number under which `leasehold explain` tells more.
    pub code: Code,
    /// What to write instead.
    pub help: Option<String>,
}

impl ConfigError {
    /// Says what is wrong.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: Code::CONFIG, help: None }
    }

    /// Gives it a number of its own.
    #[must_use]
    pub fn code(mut self, code: Code) -> Self {
        self.code = code;
        self
    }

    /// Says what to write instead.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for ConfigError {}

impl From<UrlError> for ConfigError {
    fn from(error: UrlError) -> Self {
        Self::new(error.to_string()).code(Code::URL).help(error.help())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_error_names_store_lock_operation_and_outcome() {
        let name = LockName::parse("report:daily").unwrap();
        let error = StoreError::new(StoreErrorKind::Unavailable, Op::Renew, "sqlite:/x.db")
            .about(&name)
            .saying("the disk does not answer")
            .unknown();
        let error = Error::from(error);
        assert!(error.outcome_unknown() && error.is_retryable());
        assert_eq!(
            error.to_string(),
            "cannot renew report:daily in sqlite:/x.db: the disk does not answer (it may have been done all the same)"
        );
        let error = StoreError::new(StoreErrorKind::Unavailable, Op::Inspect, "sqlite:/x.db").about(&name);
        let error = Error::from(error.saying("the disk does not answer").unknown());
        assert_eq!(
            error.to_string(),
            "cannot look at report:daily in sqlite:/x.db: the disk does not answer"
        );
    }
}
