//! Since when a session surely lives on: what the leader has heard of it, as far as we can know.
//!
//! The leader alone ends sessions, and counts from when it heard of one. A follower that answers us tells it only in its
//! next answer to a ping, every half tick. So an answer proves nothing yet: the follower may be cut off from the leader,
//! and read for us on and on, or die before it has told. What proves it is a later *write* over the same connection, which
//! goes to the leader behind those answers to pings, and to a majority. And not even the write counts for the moment at
//! which it was sent, for it is not what the leader notes: the request before it does, if the follower had answered that
//! half a tick earlier, and so told of it meanwhile.
//!
//! So a session is touched often, and with each write that is answered, its life counts from the last touch that was
//! answered half a tick before that write was sent. A connection that is made anew is told to the leader at once.

use std::collections::VecDeque;
use std::time::Duration;

use leasehold_core::{BootTime, fault};

/// The requests by which a session was touched.
#[derive(Debug)]
pub(crate) struct Touches {
    /// How long a server may keep to itself that it has heard of a session.
    lag: Duration,
    /// When the last touch was sent of which the leader knows.
    counted: BootTime,
    /// When later ones were sent, and answered.
    later: VecDeque<(BootTime, BootTime)>,
}

impl Touches {
    /// A session that the leader made after this moment.
    pub(crate) fn new(asked: BootTime, lag: Duration) -> Self {
        Self { lag, counted: asked, later: VecDeque::new() }
    }

    /// A touch was answered.
    pub(crate) fn answered(&mut self, sent: BootTime, answered: BootTime) {
        self.later.push_back((sent, answered));
    }

    /// A write was answered that was sent at this moment. Tells since when the session lives on.
    pub(crate) fn proved(&mut self, sent: BootTime) -> BootTime {
        if fault!("zookeeper_write_counts_itself") {
            self.counted = self.counted.max(sent);
        }
        while let Some((touched, answered)) = self.later.front().copied() {
            if answered.after(self.lag) > sent {
                break;
            }
            self.counted = self.counted.max(touched);
            self.later.pop_front();
        }
        self.counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAG: Duration = Duration::from_millis(500);

    fn at(millis: u64) -> BootTime {
        BootTime::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_write_proves_what_was_answered_half_a_tick_before_it() {
        let mut touches = Touches::new(at(0), LAG);
        touches.answered(at(1000), at(1010));
        touches.answered(at(1300), at(1310));
        // Neither itself, nor what was answered just now.
        assert_eq!(touches.proved(at(1400)), at(0));
        assert_eq!(touches.proved(at(1511)), at(1000));
        assert_eq!(touches.proved(at(9000)), at(1300));
    }

    #[test]
    fn answers_alone_prove_nothing() {
        let mut touches = Touches::new(at(0), LAG);
        for second in 1..100 {
            touches.answered(at(second * 1000), at(second * 1000 + 5));
        }
        // A write that was sent long ago proves what was so then.
        assert_eq!(touches.proved(at(400)), at(0));
    }
}
