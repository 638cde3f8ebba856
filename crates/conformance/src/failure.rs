//! Why a case failed, in words.

use std::fmt;

/// What a case, or a step of one, comes to.
pub type Check<T = ()> = Result<T, Failure>;

/// Why a case failed.
///
/// It is made from any error by `?`, so that a case reads as a list of steps; which is why it is no
/// [`std::error::Error`] itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Failure(String);

impl Failure {
    /// A failure for this reason.
    #[must_use]
    pub fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }

    /// Says during what it happened.
    #[must_use]
    pub fn during(self, what: impl fmt::Display) -> Self {
        Self(format!("{what}: {}", self.0))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// Ends a case with a failure, with its place in the source, unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($holds:expr, $($why:tt)+) => {
        if !$holds {
            return Err($crate::Failure::new(format!($($why)+)).during(concat!(file!(), ":", line!())));
        }
    };
}
