//! The one rule: when a claim is admitted, and what it waits for when not.

use crate::Share;

/// What the rule says of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It fits.
    Admit,
    /// The nearest claim ahead (its index) that excludes this one on its own. It must go first, so watching it
    /// alone is exact and wakes nobody else.
    Behind(usize),
    /// No single claim ahead is to blame (permits): any departure may admit this one, so the set is watched.
    Crowded,
}

/// Says whether a claim is admitted, given the shares of the claims ahead of it, oldest first.
///
/// *Ahead* are the holders, and the claims that were queued before this one: no claim overtakes a queued one.
/// For a mutex [`Verdict::Behind`] is the predecessor, for a reader the last writer ahead, for a writer the
/// last claim ahead: the three ZooKeeper recipes fall out of one function.
///
/// ```
/// use leasehold_core::{Share, Verdict, admit};
///
/// let line = [Share::SHARED, Share::EXCLUSIVE, Share::SHARED];
/// assert_eq!(admit(&line[..0], line[0]), Verdict::Admit);
/// assert_eq!(admit(&line[..1], line[1]), Verdict::Behind(0));
/// assert_eq!(admit(&line[..2], line[2]), Verdict::Behind(1));
/// ```
#[must_use]
pub fn admit(ahead: &[Share], mine: Share) -> Verdict {
    // Each share ahead was admitted under its own limit, which may be the smaller one: five readers beside one
    // of five permits must not let a sixth taker in. So the tightest limit of all counts.
    let taken: u64 = ahead.iter().map(|share| u64::from(share.take())).sum();
    let limit = ahead.iter().map(|share| share.of()).fold(mine.of(), u32::min);
    if taken + u64::from(mine.take()) <= u64::from(limit) {
        return Verdict::Admit;
    }
    match ahead.iter().rposition(|share| share.excludes(mine)) {
        Some(nearest) => Verdict::Behind(nearest),
        None => Verdict::Crowded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: [(u32, u32); 6] = [(1, 1), (1, 2), (2, 2), (1, 3), (2, 3), (3, 3)];

    fn shares() -> Vec<Share> {
        let permits = SOME.iter().map(|(take, of)| Share::permits(*take, *of).unwrap());
        permits.chain([Share::EXCLUSIVE, Share::SHARED]).collect()
    }

    fn lines(of: usize) -> Vec<Vec<Share>> {
        (0..of).fold(vec![Vec::new()], |lines, _| {
            lines.iter().flat_map(|line| shares().into_iter().map(|s| [&line[..], &[s]].concat())).collect()
        })
    }

    #[test]
    fn behind_names_a_claim_that_must_go_first() {
        for line in (0..=4).flat_map(lines) {
            for mine in shares() {
                let Verdict::Behind(at) = admit(&line, mine) else { continue };
                assert_ne!(admit(&line[at..=at], mine), Verdict::Admit, "{line:?} {mine:?}");
                // Nothing after it excludes this claim on its own: watching it alone is exact.
                assert!(line[at + 1..].iter().all(|later| !later.excludes(mine)));
            }
        }
    }

    #[test]
    fn crowded_has_no_single_culprit() {
        for line in (0..=4).flat_map(lines) {
            for mine in shares() {
                if admit(&line, mine) == Verdict::Crowded {
                    assert!(line.iter().all(|one| !one.excludes(mine)), "{line:?} {mine:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_admitted_fits_every_limit() {
        for line in (0..=4).flat_map(lines) {
            for mine in shares() {
                if admit(&line, mine) == Verdict::Admit {
                    let all: u64 = line.iter().chain([&mine]).map(|s| u64::from(s.take())).sum();
                    assert!(line.iter().chain([&mine]).all(|s| all <= u64::from(s.of())));
                }
            }
        }
    }
}
