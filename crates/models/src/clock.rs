//! The whole seconds of the models, as the formulas that ship take them.

use std::time::Duration;

use leasehold_core::{BootTime, valid_until};

/// A moment as the formulas take it.
pub(crate) fn at(seconds: u8) -> BootTime {
    BootTime::from_nanos(u64::from(seconds) * 1_000_000_000)
}

/// Until when a lease of so many seconds holds that counts from `sent`.
pub(crate) fn holds_until(sent: u8, ttl: u8) -> BootTime {
    valid_until(at(sent), Duration::from_secs(ttl.into()))
}
