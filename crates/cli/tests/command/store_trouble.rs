//! Check 14 on files: a store that cannot be used is told in time, with its own code, and nothing runs.

use std::time::Duration;

use crate::stage::{Place, code, stderr, timed};

/// A store URL with its trouble, for the file `locks.db` of a place.
fn run(place: &Place, store: &str, flags: &[&str]) -> std::process::Output {
    let words = ["run", "demo", "-s", store].into_iter().chain(flags.iter().copied());
    place.leasehold(words.chain(["--", "touch", "ran"])).output().unwrap()
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
fn check_14_a_store_that_is_not_there_is_a_failure_unless_asked_otherwise() {
    let place = Place::bare();
    let store = format!("sqlite:{}/none/locks.db", place.path("").display());
    let (output, took) = timed(|| run(&place, &store, &["--timeout", "2s"]));
    assert_eq!(code(output.status), 69, "{output:?}");
    assert!(took < Duration::from_secs(4), "{took:?}");
    let text = stderr(&output);
    for part in ["error[LH0101]: ", "effect   the command was not run", "--store-down skip|run"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let output = run(&place, &store, &["--store-down", "skip"]);
    assert_eq!((code(output.status), output.stderr.len()), (0, 0), "{output:?}");
    assert!(!place.path("ran").exists());

    let words = ["run", "demo", "-s", &store, "--store-down", "run", "--", "sh", "-c", "env; exit 9"];
    let mut command = place.leasehold(words);
    command.env("LEASE_TOKEN", "of an outer run");
    let output = command.output().unwrap();
    assert_eq!(code(output.status), 9, "{output:?}");
    assert!(stderr(&output).contains("WITHOUT A LOCK"), "{output:?}");
    assert!(
        !String::from_utf8_lossy(&output.stdout).contains("LEASE_TOKEN"),
        "there is no lease: {output:?}"
    );
}

#[test]
fn check_14_a_store_that_does_not_answer_is_told_within_the_timeout() {
    let place = Place::new();
    let connection = rusqlite::Connection::open(place.path("locks.db")).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (output, took) = timed(|| run(&place, &place.store(), &["--timeout", "1s"]));
    assert_eq!(code(output.status), 69, "{output:?}");
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert!(stderr(&output).starts_with("error[LH0101]: "), "{output:?}");
    assert!(!place.path("ran").exists());
}

#[test]
fn check_14_a_server_that_refuses_is_told_of_by_its_own_words_within_the_timeout() {
    let place = Place::bare();
    // Nobody listens on this port of the loopback device.
    let (output, took) = timed(|| run(&place, "redis://127.0.0.1:1", &["--timeout", "1s"]));
    assert_eq!(code(output.status), 69, "{output:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(stderr(&output).contains("Connection refused"), "{output:?}");
    assert!(!place.path("ran").exists());
}

#[test]
fn a_store_that_locks_too_narrowly_is_refused_and_not_made() {
    let place = Place::bare();
    let output = run(&place, &place.store(), &["--scope", "fleet"]);
    assert_eq!(code(output.status), 78, "{output:?}");
    let text = stderr(&output);
    assert!(text.starts_with("error[LH0130]: ") && text.contains("this machine only"), "{text}");
    assert!(!place.path("locks.db").exists());
    assert_eq!(code(run(&place, "memory:", &["--scope", "host"]).status), 78);
    assert!(!place.path("ran").exists());
}

#[test]
fn errors_can_be_read_by_programs() {
    let place = Place::bare();
    let output = run(&place, "sqlite:/nonexistent/folder/locks.db", &["--json"]);
    let error: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    let keys: Vec<_> = error["error"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["code", "hint", "kind", "message", "retryable"]);
    assert_eq!(error["v"], 1);
    assert_eq!(error["error"]["kind"], "unavailable");
}
