//! Check 19 and case 75, `--at-least`: a short job is not run again by a host whose clock is a bit behind.

use std::time::Duration;

use crate::stage::{Place, Running, code, stderr, timed, until};
use crate::store::SOON_FREE;

#[test]
fn check_19_a_short_job_runs_on_one_host_of_five() {
    let place = Place::new();
    // By their clocks they start together; by ours, one after the other.
    for offset in [0, 3, 8, -3, -8] {
        let script = format!("echo {offset} >> ran");
        let output =
            place.leasehold(["run", "demo", "--at-least", "1h", "--", "sh", "-c", &script]).output().unwrap();
        assert_eq!((code(output.status), output.stderr.len()), (0, 0), "{output:?}");
    }
    assert_eq!(place.read("ran"), "0\n");
    let status = place.status("demo");
    assert_eq!(status["state"], "cooling");
    let output = place.leasehold(["run", "demo", "-v", "--", "true"]).output().unwrap();
    assert!(stderr(&output).contains("(at-least 1h)"), "{output:?}");
    let output = place.leasehold(["run", "demo", "--busy", "fail", "--", "true"]).output().unwrap();
    assert_eq!(code(output.status), 75, "{output:?}");
}

#[test]
fn the_hold_counts_from_the_start_and_ends() {
    let place = Place::new();
    let run = || place.leasehold(["run", "demo", "--at-least", "1s", "--wait", "30s", "--", "true"]);
    let (_, took) = timed(|| {
        assert_eq!(code(run().output().unwrap().status), 0);
        let (output, _) = timed(|| run().output().unwrap());
        assert_eq!(code(output.status), 0);
    });
    assert!(took >= Duration::from_secs(1), "the second came after {took:?}");
    // A command that takes longer leaves it free at once.
    let words = ["run", "other", "--at-least", "100ms", "--", "sleep", "0.2"];
    assert_eq!(code(place.leasehold(words).output().unwrap().status), 0);
    assert!(place.is_free("other"));
}

#[test]
fn the_hold_does_not_need_its_process_and_holds_for_failures_too() {
    let place = Place::new();
    let output =
        place.leasehold(["run", "demo", "--at-least", "1h", "--", "sh", "-c", "exit 3"]).output().unwrap();
    assert_eq!(code(output.status), 3);
    assert_eq!(place.status("demo")["state"], "cooling");
    let words = ["run", "other", "--at-least", "1h", "--on-fail", "release", "--", "sh", "-c", "exit 3"];
    assert_eq!(code(place.leasehold(words).output().unwrap().status), 3);
    assert!(place.is_free("other"), "another host may try now");
}

#[test]
fn what_could_not_be_started_keeps_nobody_out() {
    let place = Place::new();
    let script = place.write("script", "#!/bin/sh\n");
    for (program, exit) in [("/nonexistent", 127), (script.to_str().unwrap(), 126)] {
        let output = place.leasehold(["run", "demo", "--at-least", "1h", "--", program]).output().unwrap();
        assert_eq!(code(output.status), exit, "{output:?}");
        assert!(place.is_free("demo"));
    }
}

#[test]
fn a_waiter_gets_in_after_the_hold() {
    let place = Place::new();
    let holder = place.start(&["--at-least", "700ms"], "until [ -e done ]; do sleep 0.02; done");
    let waiter = Running::of(place.leasehold(["run", "demo", "-w30s", "--", "touch", "second"]));
    until("the waiter stands in line", || place.status("demo")["waiters"].as_array().unwrap().len() == 1);
    place.write("done", "");
    assert_eq!(code(holder.output().status), 0);
    assert_eq!(code(waiter.output().status), 0);
    assert!(place.path("second").exists());
}

/// Starts a run that holds for this long, and kills it.
fn killed(place: &Place, name: &str, flags: &[&str]) {
    let _ = std::fs::remove_file(place.path("up"));
    let mut words = vec!["run", name];
    words.extend(SOON_FREE.iter().chain(flags));
    words.extend(["--", "sh", "-c", "echo up > up; exec sleep 60"]);
    let holder = Running::of(place.leasehold(words));
    until("the command has started", || place.read("up") == "up\n");
    holder.signal("KILL");
}

#[test]
fn a_killed_run_keeps_others_out_as_long() {
    let place = Place::new();
    killed(&place, "demo", &["--at-least", "1h"]);
    until("its lease has ended", || place.status("demo")["holders"].as_array().unwrap().is_empty());
    assert_eq!(place.status("demo")["state"], "cooling");
    let output = place.leasehold(["run", "demo", "--busy", "fail", "--", "true"]).output().unwrap();
    assert_eq!(code(output.status), 75, "{output:?}");
    // And no longer.
    let (output, took) = timed(|| {
        killed(&place, "short", &["--at-least", "2s"]);
        place.leasehold(["run", "short", "--wait", "30s", "--", "true"]).output().unwrap()
    });
    assert_eq!(code(output.status), 0, "{output:?}");
    assert!(took >= Duration::from_secs(2), "the next one came after {took:?}");
    // Who lets another host try after a failure lets it try after this one too.
    killed(&place, "other", &["--at-least", "1h", "--on-fail", "release"]);
    let output = place.leasehold(["run", "other", "--wait", "30s", "--", "true"]).output().unwrap();
    assert_eq!(code(output.status), 0, "{output:?}");
}
