//! The blocking description of several locks that are wanted together.

use std::time::Duration;

use super::lease_set::LeaseSet;
use super::mirror::{both_ways, mirror};

/// As [`crate::LockAll`]: all of them, or none. It holds nothing, and may be used any number of times.
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// use std::time::Duration;
///
/// let client = leasehold::blocking::Leasehold::memory();
/// let accounts = client.lock_all(["account:17", "account:42"]).ttl(Duration::from_secs(20));
/// let moved = accounts.run_within(Duration::from_secs(3), |both| both.check().map(|()| 5))??;
/// assert_eq!(moved, 5);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "this is only a description: acquire it, or run something under it"]
pub struct LockAll(crate::LockAll);

impl LockAll {
    mirror! { "LockAll"
        option ttl(ttl: Duration);
        option grace(grace: Duration);
        option max_hold(most: Duration);
        option note(note: impl AsRef<str>);
        option fair();
        lease acquire() -> LeaseSet;
        lease acquire_within(most: Duration) -> LeaseSet;
        maybe try_acquire() -> LeaseSet;
        lease attempt() -> LeaseSet;
        run run() by acquire() -> LeaseSet;
        run run_within(most: Duration) by acquire_within() -> LeaseSet;
        run try_run() by attempt() -> LeaseSet;
    }
}

both_ways!(LockAll);
