//! On what terms a lock is asked for, defaults and checks in one place.

use std::time::Duration;

use leasehold_core::{Aftermath, ClaimId, LockName, Note, Share, Turn};
pub(crate) use leasehold_core::{margin, valid_until};

/// What somebody wants of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) name: LockName,
    pub(crate) share: Share,
    pub(crate) turn: Turn,
    pub(crate) ttl: Duration,
    /// How long before the end a holder whose renewals fail is warned.
    pub(crate) grace: Duration,
    /// After this the lease is lost even if it could be renewed.
    pub(crate) max_hold: Option<Duration>,
    /// Whether it outlasts its ttl while something of the holder surely lives.
    pub(crate) anchored: bool,
    /// How long the name stays shut after it: from its end should that be unclean, and from its grant in any case.
    pub(crate) aftermath: Aftermath,
    pub(crate) note: Note,
    /// The claim that it takes over from, if it does.
    pub(crate) succeeds: Option<ClaimId>,
}

impl Terms {
    /// Whether a lease that was claimed on these terms may be handed on to somebody with those.
    pub(crate) fn agree(&self, other: &Self) -> bool {
        let Self { name, share, turn, ttl, grace: _, max_hold: _, anchored, aftermath, note: _, succeeds } =
            self;
        let same = (name, share, turn, succeeds) == (&other.name, &other.share, &other.turn, &other.succeeds);
        same && (ttl, anchored, aftermath) == (&other.ttl, &other.anchored, &other.aftermath)
    }
}

/// How long before the end a holder whose renewals fail is warned, unless asked otherwise.
pub(crate) fn default_grace(ttl: Duration) -> Duration {
    ttl / 6
}

/// How long after asking a lease is renewed.
pub(crate) fn renew_after(ttl: Duration) -> Duration {
    ttl / 3
}

/// How long to wait before the `failures`-th try of a renewal is repeated.
///
/// Half a second, doubling to eight, for the ttls that people use; for shorter ones so much less that several
/// tries fit into what is left.
pub(crate) fn retry_after(ttl: Duration, failures: u32) -> Duration {
    let first = (ttl / 60).clamp(Duration::from_millis(5), Duration::from_millis(500));
    let most = (ttl / 12).clamp(first, Duration::from_secs(8));
    jitter(first.saturating_mul(1 << failures.min(10)).min(most))
}

/// How long one renewal may take before it counts as unanswered.
pub(crate) fn renewal_deadline(ttl: Duration, timeout: Duration) -> Duration {
    (ttl / 4).max(Duration::from_millis(25)).min(timeout)
}

/// Between four fifths and six fifths of it, so that those who failed together do not try again together.
pub(crate) fn jitter(duration: Duration) -> Duration {
    duration.mul_f64(0.8 + 0.4 * fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_retries_fit_into_what_is_left_after_the_first_renewal() {
        for ttl in [100, 1000, 3000, 30_000, 120_000].map(Duration::from_millis) {
            let left = ttl - renew_after(ttl) - margin(ttl) - default_grace(ttl);
            let tries: Duration = (0..3).map(|n| retry_after(ttl, n)).sum();
            assert!(tries < left, "{ttl:?}: {tries:?} of {left:?}");
        }
    }
}
