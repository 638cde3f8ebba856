//! The blocking side of handing a lease over.

use std::time::Duration;

use leasehold_core::{LockName, Result};

use super::mirror::{both_ways, mirror};
use super::wait_within;
use crate::handover::LeaseTicket;

/// As [`crate::HandOver`]: a lease that its holder has let go of for somebody else. Made by
/// [`Lease::hand_over`](super::Lease::hand_over). Dropping it before it was taken gives the lease back.
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// # use std::sync::Arc;
/// # use leasehold::blocking::Leasehold;
/// # use leasehold::{LeaseTicket, MemoryStore};
/// # let store = Arc::new(MemoryStore::new());
/// # let (giver, taker) = (Leasehold::builder().store(store.clone()), Leasehold::builder().store(store));
/// let lease = giver.lock("migration").acquire()?;
/// let old = lease.token();
/// let given = lease.hand_over()?;
/// let bytes = given.ticket().to_bytes(); // through a pipe: whoever has it can take the lease
///
/// let taken = taker.take_over(LeaseTicket::from_bytes(&bytes)?)?;
/// assert!(taken.check()? > old);
/// given.taken()?; // the giver may end
/// taken.release()
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping it gives the lease back instead of handing it over"]
pub struct HandOver(crate::HandOver);

impl HandOver {
    mirror! { "HandOver"
        look ticket() -> &LeaseTicket;
        look name() -> &LockName;
        end taken() -> Result<()>;
    }

    /// As [`taken`](Self::taken), for at most `most`; `false` if it is not known by then that
    /// anybody has it. Then it is given back, unless somebody has taken it in this very moment.
    ///
    /// # Errors
    ///
    /// As [`taken`](Self::taken).
    pub fn taken_within(self, most: Duration) -> Result<bool> {
        let client = self.0.client().clone();
        wait_within(&client, most, self.0.taken()).map_or(Ok(false), |taken| taken.map(|()| true))
    }
}

both_ways!(HandOver);
