//! When a command must stop, counted back from the end of its lease. Arithmetic alone.

use std::time::Duration;

use leasehold::BootTime;

/// What the command keeps for its signals to arrive and to work, besides the library's margin.
const FOR_SIGNALS: Duration = Duration::from_millis(98);
/// The longest grace unless asked for more.
const GRACE: Duration = Duration::from_secs(10);
/// The most of a lease that may be grace.
const MOST_OF_THE_LEASE: u32 = 3;
/// How long a command may clean up when its lease is gone already, at most.
const WHEN_GONE: Duration = Duration::from_secs(2);

/// The grace that a ttl allows at most.
pub(crate) fn most_grace(ttl: Duration) -> Duration {
    ttl / MOST_OF_THE_LEASE
}

/// The grace unless another is asked for.
pub(crate) fn default_grace(ttl: Duration) -> Duration {
    GRACE.min(most_grace(ttl))
}

/// The time between TERM and KILL when somebody else may hold the lock already.
pub(crate) fn grace_when_gone(grace: Duration) -> Duration {
    grace.min(WHEN_GONE)
}

/// The moments at which something must happen unless a renewal succeeds before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timetable {
    grace: Duration,
    end: BootTime,
    /// Half of the lease is gone: say so.
    pub(crate) warn: BootTime,
    /// TERM.
    pub(crate) term: BootTime,
    /// KILL.
    pub(crate) kill: BootTime,
}

impl Timetable {
    /// For a lease that was valid for another `remaining` at `now`.
    pub(crate) fn new(now: BootTime, remaining: Duration, grace: Duration) -> Self {
        let end = now.after(remaining);
        let kill = end.before(FOR_SIGNALS);
        // A grant to one who has waited is short until its first renewal; so the grace is taken of what there is.
        let term = kill.before(grace.min(remaining / MOST_OF_THE_LEASE));
        Self { grace, end, warn: end.before(remaining / 2), term, kill }
    }

    /// Moves everything if the lease was prolonged, and tells whether it was.
    pub(crate) fn look(&mut self, now: BootTime, remaining: Duration) -> bool {
        // `remaining` and `now` are read one after the other; a renewal adds far more than what is between.
        let prolonged = now.after(remaining) > self.end.after(Duration::from_millis(5));
        if prolonged {
            *self = Self::new(now, remaining, self.grace);
        }
        prolonged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(seconds: f64) -> BootTime {
        BootTime::from_nanos(1_000_000_000_000).after(Duration::from_secs_f64(seconds))
    }

    #[test]
    fn the_times_are_those_of_the_documentation() {
        // ttl 2m, grace 10s: the library's validity is 120 s less 1 % and 2 ms.
        let table = Timetable::new(second(0.0), Duration::from_secs_f64(118.798), Duration::from_secs(10));
        assert_eq!(table.kill, second(118.7));
        assert_eq!(table.term, second(108.7));
        assert_eq!(table.warn, second(59.399));
    }

    #[test]
    fn a_renewal_moves_all_and_a_second_look_nothing() {
        let mut table = Timetable::new(second(0.0), Duration::from_millis(1384), Duration::from_secs(10));
        assert!(table.term > second(0.5), "a short grant is not stopped at birth: {table:?}");
        assert!(!table.look(second(0.4), Duration::from_millis(984)));
        assert!(table.look(second(0.5), Duration::from_secs_f64(29.698)));
        assert_eq!(table.kill, second(30.1));
        assert_eq!(table.term, table.kill.before(Duration::from_secs_f64(29.698 / 3.0)));
    }

    #[test]
    fn grace_stays_inside_the_lease() {
        assert_eq!(default_grace(Duration::from_secs(120)), Duration::from_secs(10));
        assert_eq!(default_grace(Duration::from_secs(3)), Duration::from_secs(1));
        assert_eq!(grace_when_gone(Duration::from_secs(10)), Duration::from_secs(2));
    }
}
