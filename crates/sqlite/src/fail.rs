//! What went wrong on the database thread, before it is known for whom.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use leasehold_core::{Code, Effect, Error, LockName, Op, StoreError, StoreErrorKind};
use rusqlite::ffi;

/// A failure without its operation, its lock and its store, which only the caller knows.
#[derive(Debug)]
pub(crate) struct Fail {
    kind: StoreErrorKind,
    code: Option<Code>,
    message: String,
    help: Option<String>,
    effect: Effect,
    /// Whether another process was in the way for the moment.
    pub(crate) busy: bool,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

pub(crate) type Result<T, E = Fail> = std::result::Result<T, E>;

impl Fail {
    pub(crate) fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        let (message, effect) = (message.into(), Effect::None);
        Self { kind, code: None, message, help: None, effect, busy: false, source: None }
    }

    /// What another version, another program or a bad disk left in the file.
    pub(crate) fn protocol(code: Code, message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Protocol, message).code(code)
    }

    /// What is not ours is left alone.
    pub(crate) fn foreign(message: impl Into<String>) -> Self {
        Self::protocol(Code::FOREIGN, message).help("it was left as it is: name another path")
    }

    /// What was ours, and was damaged by somebody or something.
    pub(crate) fn damaged(message: impl Into<String>) -> Self {
        Self::protocol(Code::CORRUPT, message).help(
            "nothing was changed; if a copy was restored over it, its old -wal and -shm must go; else restore or \
             remove it while nobody uses it",
        )
    }

    pub(crate) fn io(doing: impl fmt::Display, error: rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        let kind = match error {
            Errno::ACCESS | Errno::PERM | Errno::ROFS => StoreErrorKind::Denied,
            Errno::NOSPC | Errno::DQUOT | Errno::MFILE | Errno::NFILE => StoreErrorKind::Full,
            _ => StoreErrorKind::Unavailable,
        };
        Self::new(kind, format!("{doing}: {}", std::io::Error::from(error))).because(error)
    }

    pub(crate) fn code(mut self, code: Code) -> Self {
        self.code = Some(code);
        self
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub(crate) fn because(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// A commit that failed half-way may be found committed by whoever recovers the log.
    pub(crate) fn unknown(mut self) -> Self {
        self.effect = Effect::Unknown;
        self
    }

    pub(crate) fn is(&self, kind: StoreErrorKind) -> bool {
        self.kind == kind
    }

    pub(crate) fn has(&self, code: Code) -> bool {
        self.code == Some(code)
    }

    pub(crate) fn into_error(self, op: Op, name: Option<&LockName>, store: &str) -> Error {
        let Self { kind, code, message, help, effect, busy: _, source } = self;
        let mut error = StoreError::new(kind, op, store).saying(message);
        error.code = code.unwrap_or(error.code);
        error.name = name.cloned();
        error.effect = effect;
        error.help = help;
        error.source = source;
        error.into()
    }
}

/// Whether somebody else was in the way for the moment.
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked};
    matches!(error.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked))
}

impl From<rusqlite::Error> for Fail {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode;
        let busy = is_busy(&error);
        let fail = match error.sqlite_error_code() {
            _ if busy => Self::new(StoreErrorKind::Unavailable, "another process keeps writing to the file")
                .help(
                    "see who has it open (`fuser FILE`): a transaction in an sqlite3 shell blocks everybody",
                ),
            Some(ErrorCode::DiskFull) => Self::new(StoreErrorKind::Full, "no space is left for the file")
                .help("free some space on its file system, or use a file on another one"),
            Some(ErrorCode::ReadOnly) => {
                Self::new(StoreErrorKind::Denied, "the file, its directory or its file system is read-only")
                    .help("the file, its -wal and -shm and their directory must be writable to us")
            }
            Some(ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
                Self::new(StoreErrorKind::Denied, "the file may not be used by us")
            }
            Some(ErrorCode::CannotOpen) => {
                Self::new(StoreErrorKind::Denied, "the file, its -wal or its -shm cannot be opened")
                    .help("the file, its -wal and -shm and their directory must be writable to us")
            }
            Some(ErrorCode::DatabaseCorrupt) => Self::damaged("the file is damaged"),
            Some(ErrorCode::NotADatabase) => Self::foreign("this is not a SQLite file"),
            Some(ErrorCode::SystemIoFailure) if is_no_space(&error) => {
                Self::new(StoreErrorKind::Full, "no space is left for the file")
            }
            Some(ErrorCode::SystemIoFailure) => {
                Self::new(StoreErrorKind::Unavailable, format!("the disk failed ({error})"))
            }
            _ => Self::new(StoreErrorKind::Unexpected, error.to_string()),
        };
        Self { busy, ..fail.because(error) }
    }
}

/// Growing the shared memory file on a full disk is reported as a failure of input and output.
fn is_no_space(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    matches!(code, Some(ffi::SQLITE_IOERR_SHMSIZE | ffi::SQLITE_IOERR_SHMMAP))
}
