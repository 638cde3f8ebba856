//! The steps of a random run, and how they are made from a seed: each stands on its own, so that any of them can
//! be left out.

use std::time::Duration;

use leasehold_core::{Aftermath, Capabilities, Queueing, Share, Shares, Turn};

/// How many claims a run plays with at a time.
pub(crate) const SLOTS: usize = 7;

/// Time passes in multiples of this. It is chosen so that no multiple comes within 3 ms of any life time of the
/// law or of a claim here: stores keep whole milliseconds, and may differ from the model by one.
const TICK: Duration = Duration::from_millis(149);

const NAMES: [&str; 3] = ["a", "a:b", "c"];

/// Delays after the end of a lease, and times from its grant.
const AFTERMATHS: [[u64; 3]; 2] = [[0, 800, 4000], [0, 1200, 10_000]];

/// What a new claim asks for.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) name: &'static str,
    pub(crate) turn: Turn,
    pub(crate) share: Share,
    pub(crate) ttl: Duration,
    pub(crate) tokens: u32,
    pub(crate) late: bool,
    pub(crate) aftermath: Aftermath,
}

/// One step.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// A new claim takes the slot.
    State { slot: usize, asked: Asked },
    /// A new claim takes the slot, and takes over from the claim that was there: with its share, or with another.
    Succeed { slot: usize, asked: Asked, as_it_is: bool },
    /// The claim of the slot is stated again.
    Again(usize),
    /// The claim of the slot is stated with another share: as a newer statement or, if not, as one that was under
    /// way for long and so leaves no trace in what the claim says next.
    Reshape { slot: usize, share: Share, turn: Turn, newer: bool },
    /// New claims take the slots from this one on, in one step.
    Together { slot: usize, asked: Vec<Asked> },
    /// The claims of these slots are stated in one step.
    AgainTogether(Vec<usize>),
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
        0..15 => Step::State { slot, asked: asked(dice, may) },
        15..19 if may.succession => {
            Step::Succeed { slot, asked: asked(dice, may), as_it_is: dice.u8(..4) > 0 }
        }
        19..24 if may.together => {
            let names = dice.usize(1..=NAMES.len());
            let mut asked: Vec<Asked> = (0..names).map(|_| asked(dice, may)).collect();
            // Now and then one name is there twice.
            if dice.u8(..8) > 0 {
                asked.iter_mut().zip(NAMES).for_each(|(asked, name)| asked.name = name);
            }
            Step::Together { slot, asked }
        }
        24..26 if may.together => {
            Step::AgainTogether((0..dice.usize(1..4)).map(|_| dice.usize(..SLOTS)).collect())
        }
        26..36 if may.reshaping => {
            let turn = if dice.u8(..4) == 0 { Turn::Now } else { Turn::Any };
            Step::Reshape { slot, share: some_share(dice, may), turn, newer: dice.u8(..5) > 0 }
        }
        // Also what a store cannot do.
        15..50 => Step::Again(slot),
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

fn some_share(dice: &mut fastrand::Rng, may: &Capabilities) -> Share {
    let shares =
        if may.shares == Shares::Any { crate::random::some_shares().unwrap_or_default() } else { vec![] };
    dice.choice(shares).unwrap_or(Share::EXCLUSIVE)
}

fn some_aftermath(dice: &mut fastrand::Rng, may: &Capabilities) -> Aftermath {
    if !may.aftermath || dice.u8(..3) > 0 {
        return Aftermath::NONE;
    }
    let [delay, at_least] = AFTERMATHS.map(|times| Duration::from_millis(times[dice.usize(..times.len())]));
    Aftermath { delay, at_least }
}

fn asked(dice: &mut fastrand::Rng, may: &Capabilities) -> Asked {
    let queues = may.queueing != Queueing::Never;
    let turns = if queues { &[Turn::Now, Turn::Any, Turn::Any, Turn::Fifo][..] } else { &[Turn::Now][..] };
    let ttl = Duration::from_millis([500, 1000, 5000, 30_000][dice.usize(..4)]);
    Asked {
        name: NAMES[dice.usize(..NAMES.len())],
        turn: turns[dice.usize(..turns.len())],
        share: some_share(dice, may),
        ttl: ttl.clamp(*may.ttl.start(), *may.ttl.end()),
        tokens: dice.u32(1..4),
        late: dice.u8(..40) == 0,
        aftermath: some_aftermath(dice, may),
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
        let [delays, least] = AFTERMATHS.map(|times| times.map(Duration::from_millis));
        // A delay begins at an end, which no step comes near; but the sum may.
        let ends = ttls.into_iter().chain([SHORT_GRANT]);
        let shut = ends.flat_map(|ttl| delays.map(|delay| ttl + delay));
        let shut: Vec<_> = shut.chain(least.into_iter().filter(|least| !least.is_zero())).collect();
        for life in ttls.into_iter().chain(tombs).chain(of_grants).chain(lives).chain(shut) {
            let after = life.as_millis() % TICK.as_millis();
            assert!(after >= 3 && after <= TICK.as_millis() - 3, "{life:?}");
        }
    }
}
