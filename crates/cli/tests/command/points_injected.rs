//! `run` and its guard are killed at chosen system calls between the fork of the command and the release: strace kills
//! right before the call. Skipped, and said so, where strace may not attach.

use std::collections::BTreeMap;
use std::fs::File;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::guard::{guard_of, living};
use crate::points::{Cleared, Victim, aftermath, all, first, in_a_namespace, is_proof, next, soon};
use crate::stage::{Place, Running, has, stdout, until};
use crate::store;

/// How many calls are tried with each victim: in the usual run, and in the long form.
const SHORT: usize = 5;
const LONG: usize = 50;
/// Runs differ by a few calls, and more on a busy machine. One that ended before it came to the call is tried again, each
/// time earlier.
const TRIES: u32 = 8;
/// How long the command's tree lives: beyond any ttl that is left when both are killed, where a lease lives on with it;
/// else not so long.
const OTHERS: Duration = Duration::from_millis(1800);
const OTHERS_LEFT_ALONE: Duration = Duration::from_millis(400);

fn others(victim: Victim) -> Duration {
    if victim == Victim::Both && !store::IS_ANCHORED { OTHERS_LEFT_ALONE } else { OTHERS }
}

/// Who makes a call: `run` has two threads or three, its guard one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Main,
    Engine,
    Store,
    Guard,
}

const RUN: &[Who] =
    if store::THREAD.is_some() { &[Who::Main, Who::Engine, Who::Store] } else { &[Who::Main, Who::Engine] };
const EVERYBODY: &[Who] = if store::THREAD.is_some() {
    &[Who::Main, Who::Engine, Who::Store, Who::Guard]
} else {
    &[Who::Main, Who::Engine, Who::Guard]
};
/// Who speaks to the store.
const SPEAKER: Who = if store::THREAD.is_some() { Who::Store } else { Who::Engine };

/// A system call, as strace counts them: for each thread and each call, from when it attached.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Call {
    who: Who,
    name: String,
    nth: u32,
}

/// When a kill came, by what the command had done until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Before,
    While,
    After,
}

/// A `run` that stands in line behind a lease of ours. Its guard is there, and waits as well, so both are held by strace
/// in good time.
struct Waiting<'a> {
    place: &'a Place,
    token: String,
    run: Running,
    guard: u32,
}

impl<'a> Waiting<'a> {
    fn new(place: &'a Place, others: Duration) -> Self {
        let held = place.leasehold(["acquire", "demo", "--ttl", "60s"]).output().unwrap();
        let token = stdout(&held).trim().to_owned();
        let run = first(place, &["-w30s"], others);
        let guard = soon("it has a guard", || guard_of(&run));
        until("it stands in line", || in_line(place) == 1);
        Self { place, token, run, guard }
    }

    fn thread(&self, who: Who) -> u32 {
        let run = self.run.pid();
        let called = |name: &str| {
            let threads = std::fs::read_dir(format!("/proc/{run}/task")).unwrap().flatten();
            let numbers = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
            let is = |tid: &u32| {
                let comm = std::fs::read_to_string(format!("/proc/{run}/task/{tid}/comm"));
                *tid != run && comm.is_ok_and(|comm| comm.trim_end() == name)
            };
            numbers.filter(is).last().unwrap_or_else(|| panic!("no thread is called {name}"))
        };
        match who {
            Who::Main => run,
            Who::Engine => called("leasehold"),
            Who::Store => called(store::THREAD.unwrap()),
            Who::Guard => self.guard,
        }
    }

    /// Has strace look at these from here on; `None` if it may not.
    fn traced(&self, whom: &[Who], inject: Option<String>) -> Option<Running> {
        let mut strace = Command::new("strace");
        for who in whom {
            strace.args(["-p", &self.thread(*who).to_string()]);
        }
        strace.arg("-o").arg(self.place.path("trace"));
        strace.args(inject.iter().flat_map(|inject| ["-e", inject]));
        strace.stderr(File::create(self.place.path("said")).unwrap());
        let mut strace = Running::of(strace);
        let attached = || self.place.read("said").matches(" attached").count() == whom.len();
        until("strace has it, or may not", || attached() || !strace.is_running());
        attached().then_some(strace)
    }

    /// Gives our own lease back, so that it is its turn.
    fn go(&self) {
        let mut release = self.place.leasehold(["release"]);
        release.env("LEASE_NAME", "demo").env("LEASE_TOKEN", &self.token);
        let output = release.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

fn in_line(place: &Place) -> usize {
    place.status("demo")["waiters"].as_array().unwrap().len()
}

/// The calls of one undisturbed run, from the fork of the command to the release, in their order; `None` where strace may
/// not attach.
fn calls() -> Option<Vec<Call>> {
    let place = Place::new();
    let _cleared = Cleared(&place);
    let waiting = Waiting::new(&place, OTHERS);
    let tids: BTreeMap<u32, Who> = EVERYBODY.iter().map(|who| (waiting.thread(*who), *who)).collect();
    let mut strace = waiting.traced(EVERYBODY, None)?;
    waiting.go();
    until("it has ended", || living(&[waiting.run.pid(), waiting.guard]).is_empty());
    until("strace has seen it", || !strace.is_running());
    let trace = place.read("trace");
    let lines: Vec<(Who, &str)> = trace
        .lines()
        .filter_map(|line| {
            let (tid, call) = line.split_once(' ')?;
            Some((*tids.get(&tid.parse().ok()?)?, call.trim_start()))
        })
        .collect();
    let mut counts: BTreeMap<(Who, &str), u32> = BTreeMap::new();
    let calls: Vec<Option<Call>> = lines
        .iter()
        .map(|(who, line)| {
            let (name, _) = line.split_once('(')?;
            // What is resumed was counted when it began.
            let is_call = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            let nth = counts.entry((*who, name)).or_default();
            *nth += u32::from(is_call);
            is_call.then(|| Call { who: *who, name: name.to_owned(), nth: *nth })
        })
        .collect();
    let is_fork = |(who, line): &(Who, &str)| {
        *who == Who::Guard
            && ["clone(", "clone3(", "vfork(", "fork("].iter().any(|name| line.starts_with(name))
    };
    let fork = lines.iter().position(is_fork).unwrap();
    // The last of the tree has ended, then the store is written to: that is the release.
    let ended =
        lines.iter().rposition(|(who, line)| *who == Who::Guard && line.contains("CLD_EXITED, si_pid"));
    let from = |start: usize, wanted: &str| {
        let there = |(who, line): &(Who, &str)| *who == SPEAKER && line.contains(wanted);
        start + lines[start..].iter().position(there).unwrap_or_else(|| panic!("no {wanted} in {trace}"))
    };
    let [writes, done] = store::RELEASE;
    let released = from(from(ended.unwrap(), writes), done);
    Some(calls[fork..=released].iter().flatten().cloned().collect())
}

/// So many of these, evenly spread.
fn spread<'a>(calls: impl Iterator<Item = &'a Call>, count: usize) -> impl Iterator<Item = Call> {
    let calls: Vec<Call> = calls.cloned().collect();
    assert!(calls.len() >= count, "only {} calls", calls.len());
    (0..count).map(move |number| calls[number * calls.len() / count].clone())
}

/// One kill.
#[derive(Debug, Clone)]
struct Point {
    victim: Victim,
    /// Right before this.
    call: Call,
    /// The next holder stands in line before the kill, or starts after it.
    early: bool,
}

/// Kills at one call, and tells when that was; or what is wrong.
fn strike(point: &Point) -> Result<Phase, String> {
    let Point { victim, call: Call { who, name, nth }, early } = point;
    let mut nth = *nth;
    for _ in 0..TRIES {
        let place = Place::new();
        let _cleared = Cleared(&place);
        let waiting = Waiting::new(&place, others(*victim));
        let waiter = early.then(|| next(&place));
        if *early {
            until("the next one stands in line", || in_line(&place) == 2);
        }
        // Frozen there, until both are killed: neither shall find out what became of the other.
        let signal = if *victim == Victim::Both { "STOP" } else { "KILL" };
        let inject = format!("inject={name}:signal={signal}:when={nth}");
        let mut strace = waiting.traced(&[*who], Some(inject)).ok_or("strace may not attach any more")?;
        // Their numbers may be somebody else's once they have ended.
        let held = |pid: u32| pidfd_open(Pid::from_raw(pid as i32).unwrap(), PidfdFlags::empty()).unwrap();
        let (run, guard) = (held(waiting.run.pid()), held(waiting.guard));
        waiting.go();
        let hit = || {
            let trace = place.read("trace");
            let hit = trace.contains("+++ killed by SIGKILL") || trace.contains("--- stopped by SIGSTOP");
            hit.then_some(true)
        };
        let hit = soon("it is killed, or has ended", || hit().or((!strace.is_running()).then_some(false)));
        if !hit {
            nth = nth.saturating_sub(nth.div_ceil(5)).max(1);
            continue;
        }
        let phase = match (place.path("began").exists(), place.path("ended").exists()) {
            (false, _) => Phase::Before,
            (true, false) => Phase::While,
            (true, true) => Phase::After,
        };
        if *victim == Victim::Both {
            // Whoever goes on is killed first.
            let both = if *who == Who::Guard { [&run, &guard] } else { [&guard, &run] };
            both.into_iter().for_each(|one| _ = pidfd_send_signal(one, Signal::KILL));
        }
        drop(strace);
        let waiter = waiter.unwrap_or_else(|| next(&place));
        return aftermath(&place, *victim, waiting.run, waiter)
            .map(|()| phase)
            .map_err(|wrong| format!("{point:?}, {phase:?}: {wrong}"));
    }
    Err(format!("{point:?}: it ended before it came to that call, {TRIES} times"))
}

#[test]
fn no_child_without_a_lease_at_whatever_call_run_and_guard_are_killed() {
    if has("strace") {
        in_a_namespace(
            "points_injected::no_child_without_a_lease_at_whatever_call_run_and_guard_are_killed",
            strike_at_all_points,
        );
    }
}

fn strike_at_all_points() {
    let Some(calls) = calls() else {
        eprintln!("skipped: strace may not attach here");
        return;
    };
    let count = if is_proof() { LONG } else { SHORT };
    let of = |whom: &'static [Who]| calls.iter().filter(move |call| whom.contains(&call.who));
    let victims: [(Victim, &[Who]); 3] =
        [(Victim::Run, RUN), (Victim::Guard, &[Who::Guard]), (Victim::Both, EVERYBODY)];
    let chosen = victims.into_iter().flat_map(|(victim, whom)| {
        spread(of(whom), count).enumerate().map(move |(number, call)| Point {
            victim,
            call,
            early: number % 2 == 1,
        })
    });
    let points: Vec<Point> = chosen.collect();
    let struck = all(&points, |point| (point.victim, strike(point)));
    println!("{} kills, each right before one of {} system calls:", struck.len(), calls.len());
    for (phase, name) in [
        (Phase::Before, "before the command began"),
        (Phase::While, "while it ran"),
        (Phase::After, "between its end and the release"),
    ] {
        let of = |victim| struck.iter().filter(|one| **one == (victim, Ok(phase))).count();
        let [run, guard, both] = [Victim::Run, Victim::Guard, Victim::Both].map(of);
        println!("  {name}: run {run}, guard {guard}, both {both}");
    }
    let wrong: Vec<_> = struck.iter().filter_map(|(_, end)| end.as_ref().err()).collect();
    assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), struck.len());
}
