//! The loss of a lease, as a value.

use std::fmt;

/// Why a lease no longer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// Its time ran out on this machine's boot clock before a renewal was answered.
    Expired,
    /// Somebody ended it on purpose.
    Broken,
    /// Another claim holds the name now.
    Superseded,
    /// The store no longer knows it, or is not the store it was.
    StoreForgot,
    /// It was held longer than its holder allowed itself.
    HeldTooLong,
    /// It was given back.
    Released,
    /// This process is a fork of the one that holds it.
    Forked,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its time ran out before a renewal was answered",
            Self::Broken => "somebody broke it",
            Self::Superseded => "somebody else holds it now",
            Self::StoreForgot => "the store no longer knows it",
            Self::HeldTooLong => "it was held longer than allowed",
            Self::Released => "it was given back",
            Self::Forked => "a fork does not inherit the lease of its parent",
        })
    }
}

/// A lease that no longer holds. It never comes back to life: acquire a new one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the lease is lost: {reason}")]
#[non_exhaustive]
pub struct Lost {
    /// Why.
    pub reason: LostReason,
}

impl Lost {
    /// A loss for this reason.
    #[must_use]
    pub const fn new(reason: LostReason) -> Self {
        Self { reason }
    }
}
