//! Who leads, for those who follow and block.

use std::time::Duration;

use leasehold_core::{Holder, Result};

use super::mirror::{both_ways, mirror};
use super::wait_within;

/// As [`crate::LeaderWatch`]: who leads, as a follower hears of it. Made by
/// [`Election::watch`](super::Election::watch).
#[derive(Debug, Clone)]
pub struct LeaderWatch(crate::LeaderWatch);

impl LeaderWatch {
    mirror! { "LeaderWatch"
        look latest() -> Option<Holder>;
        change changed() -> Result<Option<Holder>>;
    }

    /// As [`changed`](Self::changed), for at most `most`; says whether there was a change, which
    /// [`latest`](Self::latest) tells of then.
    ///
    /// # Errors
    ///
    /// As [`changed`](Self::changed).
    pub fn changed_within(&mut self, most: Duration) -> Result<bool> {
        let client = self.0.client().clone();
        wait_within(&client, most, self.0.changed()).map_or(Ok(false), |changed| changed.map(|_| true))
    }
}

both_ways!(LeaderWatch);
