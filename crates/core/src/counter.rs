//! The counter behind fencing tokens, for stores that have no revision of their own.

use std::collections::HashMap;
use std::time::Duration;

use crate::{Claim, LockName, Token};

/// A client's claim to have seen a token counts only if it is at most this far ahead of the store's clock: a
/// client gone mad must not use up the scale for everybody.
const BELIEVED_AHEAD: Duration = Duration::from_secs(24 * 60 * 60);
/// A quorum node refuses proposals further ahead of its clock than this.
const PROPOSED_AHEAD: Duration = Duration::from_secs(60 * 60);
/// A counter of one name is kept until the clock is so far beyond its value: whoever proposes by a clock proposes higher.
const KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The hybrid counter of fencing tokens: `max(last + 1, microseconds since 1970, highest token seen + 1)`.
///
/// The clock makes tokens rise over a store that forgot everything (a flush, a restart without data, a failover
/// to a stale copy); the counter makes them rise while the clock stands or steps back; what clients have seen
/// makes them rise when both failed.
///
/// ```
/// use leasehold_core::Counter;
///
/// let mut counter = Counter::default();
/// let (first, run) = counter.take(1_000_000, None, 3).unwrap();
/// assert_eq!((first.get(), run), (1_000_000, 3));
/// // The clock stepped back: the counter goes on, but reserves no run while it is ahead of the clock.
/// let (next, run) = counter.take(10, None, 3).unwrap();
/// assert_eq!((next.get(), run), (1_000_003, 1));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counter {
    /// The last token given; zero if none was.
    pub last: u64,
}

impl Counter {
    /// Takes up to `wanted` tokens in a row at the store's wall clock, above `seen`. Gives the first of them and
    /// how many there are; `None` at the end of the scale.
    ///
    /// While the counter is ahead of the clock a run of one is given, so that a busy name does not run away
    /// from the clock that protects the tokens of a store that forgets.
    pub fn take(&mut self, wall_micros: u64, seen: Option<Token>, wanted: u32) -> Option<(Token, u32)> {
        let believed = wall_micros.saturating_add(micros(BELIEVED_AHEAD));
        let seen = seen.map_or(0, Token::get);
        let above_seen = if seen <= believed { seen + 1 } else { 0 };
        let floor = self.last.saturating_add(1).max(above_seen);
        let run = if floor > wall_micros { 1 } else { wanted.max(1) };
        let first = if crate::fault!("token_follows_wall") { wall_micros } else { floor.max(wall_micros) };
        let first = Token::new(first)?;
        self.last = first.after(run - 1)?.get();
        Some((first, run))
    }

    /// Whether a quorum node may accept this proposal, given its wall clock; if so the counter is set to it.
    pub fn accept(&mut self, wall_micros: u64, proposed: Token) -> bool {
        let near = proposed.get() <= wall_micros.saturating_add(micros(PROPOSED_AHEAD));
        let accepted = near && proposed.get() > self.last;
        if accepted {
            self.last = proposed.get();
        }
        accepted
    }

    /// The last token given.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        Token::new(self.last)
    }
}

/// The counters of a store: one for all that it grants by itself, and one for each name that is proposed for, so that
/// those who propose for different names never refuse each other.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    own: Counter,
    names: HashMap<LockName, Counter>,
}

impl Counters {
    /// The one that this claim's token comes from, or is held against.
    pub fn of(&mut self, claim: &Claim) -> &mut Counter {
        match claim.proposed {
            Some(_) => self.names.entry(claim.name.clone()).or_default(),
            None => &mut self.own,
        }
    }

    /// The one for all that the store grants by itself.
    pub fn own(&mut self) -> &mut Counter {
        &mut self.own
    }

    /// Drops counters of names that the clock has left far behind.
    pub fn sweep(&mut self, wall_micros: u64) {
        self.names.retain(|_, counter| counter.last.saturating_add(micros(KEPT)) > wall_micros);
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600 * 1_000_000;

    #[test]
    fn tokens_rise_over_a_store_that_forgot_and_a_clock_that_stepped_back() {
        let mut counter = Counter::default();
        let (old, _) = counter.take(5 * DAY, None, 1).unwrap();
        // All forgotten, clock behind: what the client has seen is enough.
        counter = Counter::default();
        let (new, _) = counter.take(5 * DAY - 1000, Some(old), 1).unwrap();
        assert!(new > old);
    }

    #[test]
    fn a_mad_client_cannot_use_up_the_scale() {
        let mut counter = Counter::default();
        let mad = Token::new((1 << 53) - 1);
        let (token, _) = counter.take(DAY, mad, 1).unwrap();
        assert_eq!(token.get(), DAY);
    }

    #[test]
    fn a_proposal_is_accepted_only_above_the_counter_and_near_the_clock() {
        let mut counter = Counter::default();
        let at = |n| Token::new(n).unwrap();
        assert!(counter.accept(100, at(50)));
        assert!(!counter.accept(100, at(50)), "an equal one is not above");
        assert!(counter.accept(100, at(51)));
        assert!(!counter.accept(100, at(100 + 3600 * 1_000_000 + 1)), "over an hour ahead");
        assert_eq!(counter.token(), Some(at(51)));
    }
}
