//! A lease in a file is anchored: the kernel keeps it as long as a process of the command lives, though whoever could
//! kill that is dead.

use std::time::Duration;

use leasehold::Clock;

use crate::freeze::{in_line, stands_for, wait_for};
use crate::guard::{guard_of, guard_under, living, watch, within};
use crate::stage::{BINARY, Place, Running, code, has, signal, until};
use crate::terminal::on_a_terminal;

/// Nothing is left that could kill the command, so its lease must outlive its ttl.
#[test]
fn nobody_enters_while_the_tree_lives_although_run_and_guard_are_killed() {
    within(Duration::from_secs(2), Duration::from_secs(1), || {
        let place = Place::new();
        let running =
            place.start(&["--ttl", "1s"], "setsid sleep 600 & echo $! > pids; echo $$ >> pids; sleep 600");
        until("it is there", || place.read("pids").lines().count() == 2);
        let pids: Vec<u32> = place.read("pids").lines().map(|line| line.parse().unwrap()).collect();
        let guard = guard_of(&running).expect("it has a guard");
        // At once: neither may find out what became of the other.
        signal(running.pid(), "STOP");
        signal(guard, "KILL");
        signal(running.pid(), "KILL");
        let waiter = Running::of(place.leasehold(["run", "demo", "-w30s", "--", "touch", "in"]));
        until("it stands in line", || place.status("demo")["waiters"].as_array().unwrap().len() == 1);
        let clock = Clock::system();
        let start = clock.now();
        // Well beyond the ttl.
        until("three seconds have passed", || clock.now().since(start) > Duration::from_secs(3));
        assert_eq!(living(&pids), pids);
        assert!(!place.path("in").exists(), "another holder came in while the tree lived");
        // One of two: the rest of the tree still counts.
        signal(pids[1], "KILL");
        until("it is dead", || living(&pids).len() == 1);
        let start = clock.now();
        until("half a second has passed", || clock.now().since(start) > Duration::from_millis(500));
        assert!(!place.path("in").exists(), "another holder came in while a part of the tree lived");
        let orphans = children_of(&place);
        for pid in pids.iter().chain(&orphans) {
            let _ = std::process::Command::new("kill")
                .args(["-9", &pid.to_string()])
                .stderr(std::process::Stdio::null())
                .status();
        }
        let seen = watch("the next one is in", || place.path("in").exists());
        assert_eq!(code(waiter.output().status), 0);
        seen
    });
}

/// The `sleep 600` that a killed shell of this place left behind.
fn children_of(place: &Place) -> Vec<u32> {
    let here = std::fs::canonicalize(place.path("")).unwrap();
    let numbers = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_ours = |pid: &u32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name == "sleep\n" && std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == here)
    };
    numbers.filter(is_ours).collect()
}

/// The lease was granted to another process than the one that runs the command, and lives on with the latter's tree.
#[test]
fn a_lease_that_was_handed_over_is_held_as_long_as_the_tree_lives() {
    if !has("script") || !has("bash") {
        return;
    }
    let place = Place::new();
    let holder = place.start(&[], "until [ -e done ]; do sleep 0.02; done");
    let mut shell = on_a_terminal(&place, "exec bash --norc --noprofile -i");
    shell.type_in(&format!("{BINARY} run demo -w60s --ttl 1s -- sh -c 'echo $$ > pid; exec sleep 600'\n"));
    until("it stands in line", || in_line(&place) == 1);
    place.write("done", "");
    assert_eq!(code(holder.output().status), 0);
    until("the command has started", || place.read("pid").ends_with('\n'));
    let command: u32 = place.read("pid").trim().parse().unwrap();
    let second = Running::of(place.leasehold(["run", "demo", "-w60s", "--", "touch", "in"]));
    until("the second stands in line", || in_line(&place) == 1);
    let id = place.status("demo")["holders"][0]["id"].as_str().unwrap().to_owned();
    let run: u32 = id.split('/').nth(1).unwrap().parse().unwrap();
    assert!(stands_for(run).is_empty(), "who stood in line is still there");
    wait_for(Duration::from_secs(2));
    assert!(!place.path("in").exists(), "the lease ended with who stood in line");
    // At once: neither may find out what became of the other.
    signal(run, "STOP");
    signal(guard_under(run).unwrap(), "KILL");
    signal(run, "KILL");
    wait_for(Duration::from_secs(3));
    assert_eq!(living(&[command]), [command]);
    assert!(!place.path("in").exists(), "another holder came in while the command lived");
    signal(command, "KILL");
    until("the second is in", || place.path("in").exists());
    drop(second.output());
}
