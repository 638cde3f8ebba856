//! The blocking side of one time of leading.

use std::time::Duration;

use leasehold_core::{LockName, Lost, Result, Token};
use tokio_util::sync::CancellationToken;

use super::mirror::{both_ways, mirror};
use super::wait_within;

/// As [`crate::Term`]: one time of leading, over before its lease is. Dropping it gives it up.
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// use std::time::Duration;
///
/// let client = leasehold::blocking::Leasehold::memory();
/// let term = client.election("indexer").campaign()?;
/// for part in 0..3 {
///     println!("part {part} under {}", term.check()?);
/// }
/// // A pause that ends early if the term does:
/// assert!(term.ends_within(Duration::from_millis(10)).is_none());
/// term.resign()
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a term that is not kept is given up at once"]
pub struct Term(crate::Term);

impl Term {
    mirror! { "Term"
        look name() -> &LockName;
        look token() -> Token;
        look owner_id() -> &str;
        look remaining() -> Duration;
        look cancelled() -> CancellationToken;
        wait ends() -> Lost;
        end resign() -> Result<()>;
    }

    /// As [`Term::check`](crate::Term::check): the token, if it leads right now.
    ///
    /// # Errors
    ///
    /// [`Lost`], for good: a term never comes back.
    pub fn check(&self) -> Result<Token, Lost> {
        self.0.check()
    }

    /// Whether it is time to wind down: renewals fail and the end is near, or it is over. It stays so.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.check().is_err() || self.0.cancelled().is_cancelled()
    }

    /// Waits until it is over, for at most `most`; `None` if it lasts longer.
    #[must_use]
    pub fn ends_within(&self, most: Duration) -> Option<Lost> {
        wait_within(self.0.client(), most, self.0.ends()).or_else(|| self.check().err())
    }
}

both_ways!(Term);
