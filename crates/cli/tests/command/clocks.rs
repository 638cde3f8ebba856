//! Check 19 with clocks that differ: five hosts fire by their own, which takes as long as they are apart. Skipped, and
//! said so, where a process cannot be given a clock of its own.

use std::path::PathBuf;
use std::process::Command;

use leasehold::Clock;

use crate::points::is_proof;
use crate::stage::{Place, Running, code, has, stderr, stdout, until};
use crate::store;

/// By how many seconds each is ahead of the right time, the first to fire first. Where another store has waited for as
/// long already they are closer, unless it is a proof.
const AHEAD: [i64; 5] = [25, 8, 0, -3, -25];
const CLOSER: i64 = 10;
/// Until the first fires.
const SOON: i64 = 1;
/// How long after the full minute cron gets to it.
const LATE: i64 = 300_000;
const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

/// What shifts the clock of a program.
fn shim(place: &Place) -> Option<PathBuf> {
    if !has("cc") {
        return None;
    }
    let (source, library) = (place.write("shim.c", include_str!("clock_shim.c")), place.path("shim.so"));
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o"]).args([&library, &source]).arg("-ldl");
    let output = cc.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    Some(library)
}

fn shifted(command: &mut Command, shim: &PathBuf, micros: i64) {
    command.env("LD_PRELOAD", shim).env("CLOCK_SHIM_MS", (micros / 1000).to_string());
}

#[test]
fn check_19_five_hosts_that_fire_by_clocks_up_to_50_seconds_apart_run_it_once() {
    let place = Place::new();
    let Some(shim) = shim(&place) else { return };
    let closer = if store::CLOCKS_ARE_CLOSER && !is_proof() { CLOSER } else { 1 };
    let ahead = AHEAD.map(|seconds| seconds * SECOND / closer);
    let clock = Clock::system();
    let now = || i64::try_from(clock.wall_micros()).unwrap();
    // All fire at midnight, where a minute and a day begin; the right time is half a minute before it by now.
    let midnight = (now() / DAY + 1) * DAY;
    let base = midnight - (now() + ahead[0] + SOON * SECOND);
    let run = |words: &[&str], shift: i64, script: &str| {
        let mut run = place.leasehold(["run"].iter().chain(words).chain(&["--", "sh", "-c", script]));
        shifted(&mut run, &shim, shift);
        run
    };
    let probe = run(&["probe", "--once", "daily", "--dry-run"], base - DAY, "true").output().unwrap();
    if code(probe.status) == 99 {
        eprintln!("skipped: {}", stderr(&probe).trim());
        return;
    }
    let yesterday = jiff::Timestamp::from_microsecond(now() + base - DAY).unwrap().strftime("%F");
    assert!(stdout(&probe).contains(&format!("daily: {yesterday} ")), "the clock is not shifted: {probe:?}");

    let jobs = [["day", "--once", "daily"], ["minute", "--once", "1m"], ["short", "--at-least", "1m"]];
    for ahead in ahead {
        let shift = base + ahead;
        until("it is midnight there", || now() + shift >= midnight + LATE);
        let all = jobs.map(|job| {
            let script = format!("echo {ahead} >> {}; sleep 1", job[0]);
            Running::of(run(&job, shift, &script))
        });
        for one in all {
            let output = one.output();
            assert_eq!((code(output.status), output.stderr.len()), (0, 0), "{ahead}: {output:?}");
        }
    }
    for [name, ..] in jobs {
        assert_eq!(place.read(name), format!("{}\n", ahead[0]), "{name}: one run, by the host that is first");
    }
    // It is the clock of the host that decides: where it is not midnight yet, it is another day.
    let before = midnight - now() - 60 * SECOND;
    let output = run(&["day", "--once", "daily"], before, "echo before >> day").output().unwrap();
    assert_eq!(
        (code(output.status), place.read("day").as_str()),
        (0, format!("{}\nbefore\n", ahead[0]).as_str()),
        "{output:?}"
    );
}
