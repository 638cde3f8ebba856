//! Where a setting comes from.

use std::fmt;
use std::path::PathBuf;

/// Where a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// A flag of the command, or a method of the builder.
    Flag(&'static str),
    /// A variable of the environment.
    Env(&'static str),
    /// A configuration file.
    File {
        /// Which file.
        path: PathBuf,
        /// Which key of it, such as `[run] ttl`.
        key: String,
    },
    /// Nobody said anything.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => f.write_str(name),
            Self::Env(name) => write!(f, "environment {name}"),
            Self::File { path, key } => write!(f, "{} {key}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A setting, with where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<T> {
    /// What it is.
    pub value: T,
    /// Where it comes from.
    pub origin: Origin,
}

impl<T> Setting<T> {
    pub(super) const fn default(value: T) -> Self {
        Self { value, origin: Origin::Default }
    }
}
