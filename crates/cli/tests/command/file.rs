//! What holds for a store in a file alone: it is made, it may be another's, it locks on one host, and it can hang.

use std::process::Command;

use crate::guard::living;
use crate::loss::{DEAF, was_dead_in_time};
use crate::stage::{Place, Running, code, has, stderr, until};
use crate::store_trouble::run;

#[test]
fn the_making_of_the_file_is_told_once() {
    let place = Place::bare();
    let output = place.leasehold(["run", "demo", "--", "true"]).output().unwrap();
    let text = stderr(&output);
    assert_eq!(code(output.status), 0);
    assert!(text.starts_with("leasehold: made ") && text.contains("this machine only"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    let output = place.leasehold(["run", "demo", "--", "true"]).output().unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_file_that_is_not_ours_is_left_alone() {
    let place = Place::bare();
    let path = place.write("foreign", &"this is somebody's diary\n".repeat(100));
    let before = std::fs::read(&path).unwrap();
    for flags in [&[][..], &["--store-down", "run"], &["--store-down", "skip"]] {
        let output = run(&place, &format!("sqlite:{}", path.display()), flags);
        assert_eq!(code(output.status), 76, "{output:?}");
        assert!(stderr(&output).starts_with("error[LH0120]: "), "{output:?}");
        assert!(stderr(&output).contains("effect   the command was not run"), "{output:?}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert!(!place.path("ran").exists());
}

#[test]
fn a_store_that_locks_too_narrowly_is_refused_and_not_made() {
    let place = Place::bare();
    let output = run(&place, &place.url(), &["--scope", "fleet"]);
    assert_eq!(code(output.status), 78, "{output:?}");
    let text = stderr(&output);
    assert!(text.starts_with("error[LH0130]: ") && text.contains("this machine only"), "{text}");
    assert!(!place.path("locks.db").exists());
    assert_eq!(code(run(&place, "memory:", &["--scope", "host"]).status), 78);
    assert!(!place.path("ran").exists());
}

/// A file has no network that could drop packets; what it can do is hang. Each call on the store's files is held up
/// before it reaches the system, for longer than the test takes: no answer, and no error either.
#[test]
fn check_12_a_store_that_swallows_calls_without_any_error_is_as_one_that_is_gone() {
    if !has("strace") {
        return;
    }
    let place = Place::new();
    let holder = place.start(&["--ttl", "3s"], DEAF);
    let mut strace = Command::new("strace");
    strace.args(["-f", "-p", &holder.pid().to_string(), "-o", place.path("trace").to_str().unwrap()]);
    for file in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        strace.arg("-P").arg(place.path(file));
    }
    strace
        .args(["-e", "inject=all:delay_enter=60s"])
        .stderr(std::fs::File::create(place.path("said")).unwrap());
    let mut strace = Running::of(strace);
    until("strace has it, or may not", || place.read("said").contains("attached") || !strace.is_running());
    if !strace.is_running() {
        eprintln!("skipped: strace may not attach here: {}", place.read("said").trim());
        return;
    }
    let expires = place.ends("demo").unwrap();
    until("the run has ended", || living(&[holder.pid()]).is_empty());
    // It sees the end of what it holds up, and does not pass it on.
    drop(strace);
    was_dead_in_time(&place, &holder.output(), expires);
    assert!(!place.read("trace").is_empty(), "no call on the store was held up");
}
