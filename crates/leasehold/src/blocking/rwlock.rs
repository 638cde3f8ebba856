//! The blocking description of a readers-writer lock.

use super::lock::Lock;
use super::mirror::{both_ways, mirror};

/// As [`crate::RwLock`]: any number read at once, one writes alone. It holds nothing, and may be used any number of
/// times.
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// use std::time::Duration;
///
/// let client = leasehold::blocking::Leasehold::memory();
/// let config = client.rwlock("config");
/// let (one, two) = (config.read().acquire()?, config.read().acquire()?); // many
/// one.release()?;
/// two.release()?;
/// let mut lease = config.upgradeable().acquire()?;
/// // .. what was read is out of date ..
/// let token = lease.upgrade_within(Duration::from_secs(30))?; // alone
/// println!("writing under token {token}");
/// lease.downgrade()?;
/// lease.release()
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a readers-writer lock is only a description: acquire `read()`, `write()` or `upgradeable()`"]
pub struct RwLock(crate::RwLock);

impl RwLock {
    mirror! { "RwLock"
        describe read() -> Lock;
        describe write() -> Lock;
        describe upgradeable() -> Lock;
    }
}

both_ways!(RwLock);
