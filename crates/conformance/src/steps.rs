//! The steps of a random run, and how they are made from a seed: each stands on its own, so that any of them can
//! be left out.

use std::time::Duration;

use leasehold_core::{Capabilities, Queueing, Share, Shares, Turn};

/// How many claims a run plays with at a time.
pub(crate) const SLOTS: usize = 7;

/// Time passes in multiples of this. It is chosen so that no multiple comes within 3 ms of any life time of the
/// law or of a claim here: stores keep whole milliseconds, and may differ from the model by one.
const TICK: Duration = Duration::from_millis(149);

const NAMES: [&str; 3] = ["a", "a:b", "c"];

/// One step.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// A new claim takes the slot.
    State {
        slot: usize,
        name: &'static str,
        turn: Turn,
        share: Share,
        ttl: Duration,
        tokens: u32,
        late: bool,
    },
    /// The claim of the slot is stated again.
    Again(usize),
    /// These are renewed in one batch.
    Renew(Vec<usize>),
    /// The claim of the slot is released, and the name perhaps shut.
    Release { slot: usize, shut: Option<Duration> },
    /// The claim of the slot waits, if the model says that the wait is over.
    Wait(usize),
    /// Time passes.
    Pass(Duration),
    /// The wall clock steps.
    Wall(i64),
    /// Names are listed.
    List(&'static str),
}

/// The steps of a seed, such as a store of these capabilities may be asked.
pub(crate) fn generate(seed: u64, steps: usize, may: &Capabilities) -> Vec<Step> {
    let mut dice = fastrand::Rng::with_seed(seed);
    // A run of long tenures and one of short ones meet different corners.
    let hurry = dice.u32(1..30);
    (0..steps).map(|_| step(&mut dice, may, hurry)).collect()
}

fn step(dice: &mut fastrand::Rng, may: &Capabilities, hurry: u32) -> Step {
    let slot = dice.usize(..SLOTS);
    match dice.u8(..100) {
        0..25 => state(dice, may, slot),
        25..50 => Step::Again(slot),
        50..60 => Step::Renew((0..dice.usize(1..4)).map(|_| dice.usize(..SLOTS)).collect()),
        60..72 => {
            let shuts = may.closing && dice.u8(..6) == 0;
            Step::Release { slot, shut: shuts.then(|| Duration::from_secs(3)) }
        }
        72..80 => Step::Wait(slot),
        80..96 => Step::Pass(TICK * dice.u32(1..=hurry)),
        96..98 => Step::Wall(dice.i64(-5_000_000..5_000_000)),
        _ => Step::List(["", "a", "a:", "b"][dice.usize(..4)]),
    }
}

fn state(dice: &mut fastrand::Rng, may: &Capabilities, slot: usize) -> Step {
    let queues = may.queueing != Queueing::Never;
    let turns = if queues { &[Turn::Now, Turn::Any, Turn::Any, Turn::Fifo][..] } else { &[Turn::Now][..] };
    let shares =
        if may.shares == Shares::Any { crate::random::some_shares().unwrap_or_default() } else { vec![] };
    let ttl = Duration::from_millis([500, 1000, 5000, 30_000][dice.usize(..4)]);
    Step::State {
        slot,
        name: NAMES[dice.usize(..NAMES.len())],
        turn: turns[dice.usize(..turns.len())],
        share: dice.choice(shares).unwrap_or(Share::EXCLUSIVE),
        ttl: ttl.clamp(*may.ttl.start(), *may.ttl.end()),
        tokens: dice.u32(1..4),
        late: dice.u8(..40) == 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::{LONG_WAIT, PLACE_LIFE, SHORT_GRANT, TOMBSTONE_LIFE};

    #[test]
    fn no_step_of_time_comes_near_an_end() {
        let ttls = [500, 1000, 5000, 30_000].map(Duration::from_millis);
        // An id is remembered for so long after the end of its lease, which has a full ttl or a short one.
        let tombs = ttls.map(|ttl| ttl + TOMBSTONE_LIFE);
        let of_grants = ttls.iter().flat_map(|ttl| [2 * *ttl, *ttl + SHORT_GRANT.min(*ttl)]);
        let of_grants = of_grants.map(|life| life + TOMBSTONE_LIFE);
        let lives = [LONG_WAIT, PLACE_LIFE, SHORT_GRANT, TOMBSTONE_LIFE, Duration::from_secs(3)];
        for life in ttls.into_iter().chain(tombs).chain(of_grants).chain(lives) {
            let after = life.as_millis() % TICK.as_millis();
            assert!(after >= 3 && after <= TICK.as_millis() - 3, "{life:?}");
        }
    }
}
