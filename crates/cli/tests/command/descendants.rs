//! Check 18: what a command leaves behind.

use std::time::Duration;

use crate::guard::{guard_of, living};
use crate::stage::{Place, Running, code, signal, stderr, timed, until};

/// Leaves a process in a session of its own, which lives until `end` is called.
const LEAVES: &str = "mkfifo pipe; setsid sh -c 'echo $$ > left; read line < pipe' > /dev/null 2>&1 & \
    until [ -s left ]; do sleep 0.01; done; exit 4";

fn end(place: &Place) {
    std::fs::write(place.path("pipe"), "end\n").unwrap();
}

fn left(place: &Place) -> Vec<u32> {
    until("it is left", || place.read("left").ends_with('\n'));
    vec![place.read("left").trim().parse().unwrap()]
}

#[test]
fn check_18_the_lock_is_held_for_what_was_left_and_says_so() {
    let place = Place::new();
    let mut running = place.start(&["--ttl", "5s"], LEAVES);
    let left = left(&place);
    place.until_renewed("demo");
    place.until_renewed("demo");
    assert!(running.is_running());
    assert_eq!(living(&left), left);
    end(&place);
    let output = running.output();
    assert_eq!(code(output.status), 4, "{output:?}");
    let line = format!(
        "leasehold: command ended (4) but left 1 process: sh ({}); still holding demo. \
         --descendants release|kill to change\n",
        left[0]
    );
    assert_eq!(stderr(&output), line);
    assert!(place.is_free("demo"));
}

#[test]
fn check_18_release_leaves_it_alone() {
    let place = Place::new();
    let running = place.start(&["--descendants", "release"], LEAVES);
    let left = left(&place);
    let output = running.output();
    assert_eq!((code(output.status), stderr(&output).as_str()), (4, ""));
    assert_eq!(living(&left), left);
    assert!(place.is_free("demo"));
    end(&place);
    until("it ends", || living(&left).is_empty());
}

#[test]
fn check_18_kill_kills_it() {
    let place = Place::new();
    let running = place.start(&["--descendants", "kill"], LEAVES);
    let left = left(&place);
    let output = running.output();
    assert_eq!((code(output.status), stderr(&output).as_str()), (4, ""));
    assert!(living(&left).is_empty());
    assert!(place.is_free("demo"));
}

#[test]
fn signals_reach_what_was_left() {
    let place = Place::new();
    for (signals, flags) in [(vec!["TERM"], ["--grace", "10s"]), (vec!["INT", "TERM"], ["--grace", "10s"])] {
        for file in ["left", "pipe"] {
            let _ = std::fs::remove_file(place.path(file));
        }
        let running = place.start(&flags, LEAVES);
        let left = left(&place);
        let command = guard_of(&running).unwrap();
        let children = || {
            std::fs::read_to_string(format!("/proc/{command}/task/{command}/children")).unwrap_or_default()
        };
        let pids = || children().split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>();
        until("the command itself has ended", || living(&pids()) == left);
        let (output, took) = timed(|| {
            for name in &signals {
                running.signal(name);
            }
            running.output()
        });
        assert_eq!(code(output.status), 4, "{output:?}");
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert!(living(&left).is_empty());
    }
}

#[test]
fn what_was_left_is_watched_over_although_the_guard_is_killed() {
    let place = Place::new();
    let running = place.start(&[], LEAVES);
    let left = left(&place);
    let guard = guard_of(&running).unwrap();
    signal(guard, "KILL");
    until("there is a new guard", || guard_of(&running).is_some_and(|new| new != guard));
    assert!(!place.is_free("demo"));
    assert_eq!(living(&left), left);
    end(&place);
    let output = running.output();
    assert_eq!(code(output.status), 4, "{output:?}");
    assert!(place.is_free("demo"));
}

#[test]
fn what_was_left_is_dead_before_its_lease_is() {
    let place = Place::new();
    let running = place.start(&["--ttl", "3s"], LEAVES);
    let left = left(&place);
    place.store.take_away();
    let output = running.output();
    assert_eq!(code(output.status), 79, "{output:?}");
    assert!(living(&left).is_empty());
}

/// As in a container: process number 1 adopts and reaps what is orphaned, and passes signals on.
#[test]
fn as_process_1_it_reaps_and_passes_signals_on() {
    let place = Place::new();
    let script = "trap 'echo term > heard; exit 3' TERM; for i in 1 2 3 4 5; do (setsid sleep 0.01 &); done; \
        sleep 0.1; ps -e -o stat= > stats; echo up > up; while :; do sleep 0.02; done";
    let mut command = std::process::Command::new("unshare");
    let words = ["--pid", "--fork", "--mount-proc", "--kill-child", crate::stage::BINARY];
    command.args(words).args(["run", "demo", "--", "sh", "-c", script]);
    place.settle(&mut command);
    let mut running = Running::of(command);
    let mut refused = false;
    until("it is up", || {
        refused = !running.is_running();
        refused || place.read("up") == "up\n"
    });
    if refused {
        let output = running.output();
        eprintln!("skipped: no namespace of its own for a process number 1 here: {}", stderr(&output));
        return;
    }
    assert!(!place.read("stats").contains('Z'), "{}", place.read("stats"));
    let unshare = running.pid();
    let inside = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).unwrap();
    signal(inside.trim().parse().unwrap(), "TERM");
    assert_eq!(code(running.output().status), 3);
    assert_eq!(place.read("heard"), "term\n");
}
