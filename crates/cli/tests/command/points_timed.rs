//! `run` and its guard are killed at many moments from the fork of the command to the release: nobody enters while
//! a process of the command lives, wherever that is.

use std::path::Path;
use std::time::Duration;

use leasehold::Clock;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use crate::guard::guard_of;
use crate::points::{
    Cleared, ITSELF, Victim, aftermath, all, first, in_a_namespace, is_proof, kill, next, soon,
};
use crate::stage::Place;

/// How many moments are tried with each victim: in the usual run, and in the long form.
const SHORT: usize = 18;
const LONG: usize = 100;
/// How long the command's tree lives, if longer than itself, and if shorter.
const OTHERS: Duration = Duration::from_millis(600);
const SOON: Duration = Duration::from_millis(100);

/// From when the time to a kill is counted.
#[derive(Debug, Clone, Copy)]
enum From {
    /// The guard has forked.
    Fork,
    /// The command is a zombie.
    End,
}

/// Where a kill fell, as seen just before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The child of the guard had not become the command yet.
    Before,
    /// The command ran.
    While,
    /// The command had ended, and the lease was still there.
    Between,
    /// The lease was given back already.
    After,
}

const PHASES: [(Phase, &str); 4] = [
    (Phase::Before, "before the command"),
    (Phase::While, "while it ran"),
    (Phase::Between, "between its end and the release"),
    (Phase::After, "after the release"),
];

/// One kill.
#[derive(Debug, Clone, Copy)]
struct Point {
    victim: Victim,
    from: From,
    micros: u64,
    /// The command's tree outlives it.
    lingers: bool,
    /// The next holder stands in line before the kill, or starts after it.
    early: bool,
    /// `run` is frozen when the fork is seen, until it is killed.
    frozen: bool,
    /// Of two victims, the guard is killed first.
    guard_first: bool,
}

/// Numbers that look random, and are the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }

    fn flip(&mut self) -> bool {
        self.below(2) == 1
    }
}

/// The same moments for each victim: a third soon after the fork, a third anywhere in the life of the command, and a
/// third after its end. Spread evenly, and each a little off.
fn points(count: usize, seed: u64) -> Vec<Point> {
    let mut dice = Dice(seed);
    let count = count as u64;
    let each = count.div_ceil(3);
    let mut points = Vec::new();
    for number in 0..count {
        let (step, kind) = (number / 3, number % 3);
        let lingers = if kind == 2 { step % 2 == 0 } else { dice.flip() };
        let (from, most) = match (kind, lingers) {
            (0, _) => (From::Fork, 1_500),
            (1, _) => (From::Fork, ITSELF.as_micros() as u64),
            (_, true) => (From::End, (OTHERS - ITSELF).as_micros() as u64),
            (_, false) => (From::End, 2_500),
        };
        let mut micros = (step * most + dice.below(most)) / each;
        if kind == 0 {
            // Most are close to the fork: the child becomes the command soon.
            micros = micros * micros / most;
        }
        for victim in [Victim::Run, Victim::Guard, Victim::Both] {
            let early = kind != 0 && dice.flip();
            let frozen = kind == 0 && step % 2 == 0 && victim != Victim::Guard;
            points.push(Point { victim, frozen, from, micros, lingers, early, guard_first: dice.flip() });
        }
    }
    points
}

fn spin(micros: u64) {
    let clock = Clock::system();
    let start = clock.now();
    while clock.now().since(start) < Duration::from_micros(micros) {
        std::thread::yield_now();
    }
}

fn child_of(pid: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Whether a process has ended, seen or not.
fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// Kills at one moment, and tells where it fell; or what is wrong.
fn strike(point: Point) -> Result<Phase, String> {
    let place = Place::new();
    let _cleared = Cleared(&place);
    let mut holder = place.store.holder();
    let running = first(&place, &[], if point.lingers { OTHERS } else { SOON });
    let guard = soon("it has a guard", || guard_of(&running));
    // Its number may be somebody else's once it has ended.
    let held = pidfd_open(Pid::from_raw(guard as i32).unwrap(), PidfdFlags::empty()).unwrap();
    let kill_guard = || _ = pidfd_send_signal(&held, Signal::KILL);
    let command = soon("the guard has forked", || child_of(guard));
    if point.frozen {
        // It has no more to say, so a child that waits for its word goes on to wait.
        let _ = kill_process(Pid::from_raw(running.pid() as i32).unwrap(), Signal::STOP);
    }
    let waiter = point.early.then(|| next(&place));
    if matches!(point.from, From::End) {
        soon("the command has ended", || has_ended(command).then_some(()));
    }
    spin(point.micros);
    // The shortest of them is asked for first, and in the shortest way.
    let phase = if is_ours(command) {
        Phase::Before
    } else if !has_ended(command) {
        Phase::While
    } else if holder.is(running.pid()) {
        Phase::Between
    } else {
        Phase::After
    };
    match point.victim {
        Victim::Run => kill(running.pid()),
        Victim::Guard => kill_guard(),
        Victim::Both if point.guard_first => {
            kill_guard();
            kill(running.pid());
        }
        Victim::Both => {
            kill(running.pid());
            kill_guard();
        }
    }
    let waiter = waiter.unwrap_or_else(|| next(&place));
    aftermath(&place, point.victim, running, waiter)
        .map(|()| phase)
        .map_err(|wrong| format!("{point:?}, {phase:?}: {wrong}"))
}

/// Whether a process is still the program under test.
fn is_ours(pid: u32) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == Path::new(crate::stage::BINARY))
}

#[test]
fn no_child_without_a_lease_wherever_run_and_guard_are_killed() {
    in_a_namespace(
        "points_timed::no_child_without_a_lease_wherever_run_and_guard_are_killed",
        strike_at_all_points,
    );
}

fn strike_at_all_points() {
    let told = std::env::var("LEASEHOLD_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = told.unwrap_or(1);
    let points = points(if is_proof() { LONG } else { SHORT }, seed);
    let struck = all(&points, |point| (point.victim, strike(*point)));
    println!("{} kills, seed {seed}:", struck.len());
    for (phase, name) in PHASES {
        let of = |victim| struck.iter().filter(|one| **one == (victim, Ok(phase))).count();
        let [run, guard, both] = [Victim::Run, Victim::Guard, Victim::Both].map(of);
        println!("  {name}: run {run}, guard {guard}, both {both}");
    }
    let wrong: Vec<_> = struck.iter().filter_map(|(_, end)| end.as_ref().err()).collect();
    assert!(wrong.is_empty(), "LEASEHOLD_SEED={seed}: {} of {}: {wrong:#?}", wrong.len(), struck.len());
    for phase in [Phase::Before, Phase::While, Phase::Between] {
        assert!(struck.iter().any(|(_, end)| *end == Ok(phase)), "no kill fell in {phase:?}");
    }
}
