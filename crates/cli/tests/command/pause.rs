//! `pause` and `resume`: nobody starts, whoever runs may finish, and everybody can see why.

use crate::stage::{Place, Running, code, stderr, stdout, until};

fn said(place: &Place, words: &[&str]) -> String {
    let output = place.leasehold(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    stdout(&output)
}

#[test]
fn nobody_starts_and_whoever_runs_may_finish() {
    let place = Place::new();
    let holder = place.start(&[], "until [ -e done ]; do sleep 0.02; done");
    let text = said(&place, &["pause", "de*", "--for", "2h", "--note", "ledger migration"]);
    assert!(text.starts_with("paused de* until 2") && text.contains("Z\n"), "{text}");
    assert!(text.contains("  demo is held by ") && text.contains("it may finish"), "{text}");
    assert_eq!(place.status("demo")["state"], "held");
    for flags in [&[][..], &["--busy", "fail"], &["--wait", "10s"], &["--once", "daily"]] {
        let words = ["run", "demo"].iter().chain(flags).chain(&["--", "touch", "ran"]).copied();
        let output = place.leasehold(words).output().unwrap();
        assert_eq!((code(output.status), output.stderr.len()), (0, 0), "{output:?}");
    }
    place.write("done", "");
    assert_eq!(code(holder.output().status), 0, "it was let finish");

    let output = place.leasehold(["status", "demo"]).output().unwrap();
    assert_eq!(code(output.status), 2, "{output:?}");
    let text = stdout(&output);
    assert!(text.contains(" PAUSED") && text.contains("paused   paused until "), "{text}");
    assert!(text.contains("(\"ledger migration\")"), "{text}");
    assert_eq!(place.status("demo")["state"], "paused");
    let output = place.leasehold(["run", "demo", "-v", "--", "touch", "ran"]).output().unwrap();
    assert!(stderr(&output).contains("skipped, demo is paused until "), "{output:?}");
    assert!(!place.path("ran").exists());
    assert_eq!(code(place.leasehold(["run", "other", "--", "touch", "ran"]).output().unwrap().status), 0);
    assert!(place.path("ran").exists(), "only what matches is paused");
}

#[test]
fn a_pause_ends_by_itself_or_by_resume() {
    let place = Place::new();
    let ran = |name: &str| {
        let file = format!("ran-{name}");
        let output = place.leasehold(["run", name, "--", "touch", &file]).output().unwrap();
        assert_eq!(code(output.status), 0, "{output:?}");
        place.path(&file).exists()
    };
    said(&place, &["pause", "one", "--for", "1h"]);
    said(&place, &["pause", "o*", "--for", "1h"]);
    assert!(!ran("one"));
    let text = said(&place, &["resume", "one"]);
    assert!(text.starts_with("resumed one\n") && text.contains("  o* is still paused until "), "{text}");
    assert!(!ran("one"), "the other pause stands");
    assert!(said(&place, &["resume", "one"]).starts_with("one was not paused"));
    said(&place, &["resume", "o*"]);
    assert!(ran("one"));
    // The later word counts.
    said(&place, &["pause", "two", "--for", "1h"]);
    said(&place, &["pause", "two", "--for", "300ms"]);
    until("the pause is over", || ran("two"));
    let output = place.leasehold(["pause", "two", "--for", "0"]).output().unwrap();
    assert_eq!(code(output.status), 64, "{output:?}");
    let output = place.leasehold(["pause", "two"]).output().unwrap();
    assert_eq!(code(output.status), 64, "a pause has an end: {output:?}");
}

#[test]
fn who_waits_when_a_pause_begins_does_not_start() {
    let place = Place::new();
    let holder = place.start(&[], "until [ -e done ]; do sleep 0.02; done");
    let waiter = Running::of(place.leasehold(["run", "demo", "-w30s", "--", "touch", "ran"]));
    until("the waiter stands in line", || place.status("demo")["waiters"].as_array().unwrap().len() == 1);
    said(&place, &["pause", "demo", "--for", "1h"]);
    place.write("done", "");
    assert_eq!(code(holder.output().status), 0);
    assert_eq!(code(waiter.output().status), 0);
    assert!(!place.path("ran").exists());
}

#[test]
fn namespaces_are_paused_apart() {
    let place = Place::new();
    said(&place, &["pause", "demo", "--for", "1h", "--namespace", "prod"]);
    let run = |space: &str, file: &str| {
        let words = ["run", "demo", "--namespace", space, "--", "touch", file];
        assert_eq!(code(place.leasehold(words).output().unwrap().status), 0);
        place.path(file).exists()
    };
    assert!(!run("prod", "in-prod"));
    assert!(run("test", "in-test"));
}
