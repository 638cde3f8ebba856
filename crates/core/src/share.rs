//! A part of a name: how much of it a claim takes, and how much may be taken at once.

use std::fmt;

/// What an exclusive claim takes. Three bits are left so that sums of shares cannot overflow a `u64`, let
/// alone wrap.
const FULL: u32 = u32::MAX >> 3;

/// How much of a name a claim takes, and how much may be taken at once.
///
/// Mutex, readers-writer and semaphore are three ways to fill in these two numbers; [`admit`](crate::admit) is
/// the one rule over them.
///
/// ```
/// use leasehold_core::Share;
///
/// assert!(Share::EXCLUSIVE.excludes(Share::SHARED));
/// assert!(!Share::SHARED.excludes(Share::SHARED));
/// let two_of_five = Share::permits(2, 5)?;
/// assert!(!two_of_five.excludes(two_of_five));
/// # Ok::<(), leasehold_core::ShareError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Share {
    take: u32,
    of: u32,
}

impl Share {
    /// All of it: a mutex, or the writer of a readers-writer lock.
    pub const EXCLUSIVE: Self = Self { take: FULL, of: FULL };
    /// A reader: any number of these fit together, none fits beside [`Share::EXCLUSIVE`].
    pub const SHARED: Self = Self { take: 1, of: FULL };
    /// A reader that may become the writer: it fits beside readers, and not beside another of its kind. So of two
    /// that want to write only one can be reading, and no two ever wait for each other.
    pub const UPGRADEABLE: Self = Self { take: FULL / 2 + 1, of: FULL };

    /// `take` of `of` permits.
    ///
    /// # Errors
    ///
    /// When `take` is zero or above `of`, or `of` is above 536,870,910 (one less than an exclusive claim takes,
    /// so that a permit never looks like a mutex).
    pub fn permits(take: u32, of: u32) -> Result<Self, ShareError> {
        if take == 0 || take > of || of >= FULL {
            Err(ShareError { take, of })
        } else {
            Ok(Self { take, of })
        }
    }

    /// Restores a share from the two numbers that a store kept.
    ///
    /// # Errors
    ///
    /// When the two numbers cannot have come from [`Share::take`] and [`Share::of`].
    pub fn from_parts(take: u32, of: u32) -> Result<Self, ShareError> {
        if take == 0 || take > of || of > FULL { Err(ShareError { take, of }) } else { Ok(Self { take, of }) }
    }

    /// How much the claim takes.
    #[must_use]
    pub const fn take(self) -> u32 {
        self.take
    }

    /// How much may be taken at once.
    #[must_use]
    pub const fn of(self) -> u32 {
        self.of
    }

    /// Whether the two cannot be held together, even with nobody else there.
    #[must_use]
    pub const fn excludes(self, other: Self) -> bool {
        let sum = self.take as u64 + other.take as u64;
        sum > self.of as u64 || sum > other.of as u64
    }

    /// Whether the two are permits of different sizes, which a store refuses: 3 slots here and 5 there is a
    /// deployment gone wrong, never a wish.
    #[must_use]
    pub const fn disagrees(self, other: Self) -> bool {
        self.of != other.of && self.of != FULL && other.of != FULL
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::EXCLUSIVE => f.write_str("exclusive"),
            Self::SHARED => f.write_str("shared"),
            Self::UPGRADEABLE => f.write_str("upgradeable"),
            Self { take, of } => write!(f, "{take} of {of}"),
        }
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Share({self})")
    }
}

/// Why a number of permits cannot be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{take} of {of} permits cannot be asked for: take at least 1 and at most all of 1 to 536870910")]
pub struct ShareError {
    take: u32,
    of: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anything_plus_an_exclusive_claim_is_too_much() {
        let permits = Share::permits(1, 5).unwrap();
        for other in [Share::EXCLUSIVE, Share::SHARED, permits] {
            assert!(Share::EXCLUSIVE.excludes(other));
            assert!(other.excludes(Share::EXCLUSIVE));
        }
    }

    #[test]
    fn one_upgradeable_reader_fits_beside_many_plain_ones() {
        let (upgradeable, reader) = (Share::UPGRADEABLE, Share::SHARED);
        assert!(upgradeable.excludes(upgradeable));
        assert!(upgradeable.excludes(Share::EXCLUSIVE) && !upgradeable.excludes(reader));
        let readers = FULL - upgradeable.take();
        assert!(readers > 1_000_000, "{readers} readers fit beside it");
    }

    #[test]
    fn permits_are_bounded() {
        assert!(Share::permits(0, 1).is_err());
        assert!(Share::permits(2, 1).is_err());
        assert!(Share::permits(1, FULL).is_err());
        assert!(Share::permits(FULL - 1, FULL - 1).is_ok());
        assert!(Share::from_parts(FULL, FULL).is_ok());
        assert!(Share::from_parts(0, 0).is_err());
    }

    #[test]
    fn different_numbers_of_slots_disagree_and_kinds_do_not() {
        let (three, five) = (Share::permits(1, 3).unwrap(), Share::permits(1, 5).unwrap());
        assert!(three.disagrees(five));
        assert!(!three.disagrees(Share::EXCLUSIVE));
        assert!(!Share::SHARED.disagrees(five));
    }
}
