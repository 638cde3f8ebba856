//! Until when a lease holds, by the clock of whoever holds it.

use std::time::Duration;

use crate::BootTime;

/// Given up besides one percent of the ttl: the grain of clocks and timers.
const GRAIN: Duration = Duration::from_millis(2);

/// What is given up of a ttl for clocks that run at different rates: one percent and 2 ms, as Redlock's authors
/// do. One percent is a hundred times what quartz is off; a host that stops its guest is not covered by any
/// margin, which is what tokens are for.
#[must_use]
pub fn margin(ttl: Duration) -> Duration {
    ttl / 100 + GRAIN
}

/// Until when a lease of this ttl holds that was asked for at `sent`.
///
/// `sent` is taken before the first byte of that very request: the store may have started counting right then.
#[must_use]
pub fn valid_until(sent: BootTime, ttl: Duration) -> BootTime {
    sent.after(ttl.saturating_sub(margin(ttl)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validity_ends_before_the_store_lets_others_in() {
        let sent = BootTime::from_nanos(0);
        let end = valid_until(sent, Duration::from_secs(100));
        assert_eq!(end.since(sent), Duration::from_millis(98_998));
        assert_eq!(valid_until(sent, Duration::from_millis(1)), sent, "nothing is left of a tiny ttl");
    }
}
