//! Check 14: a store that cannot be used is told in time, with its own code, and nothing runs.

use std::time::Duration;

use crate::stage::{Place, code, stderr, timed};

/// What becomes of a command under a store with this URL.
pub(crate) fn run(place: &Place, store: &str, flags: &[&str]) -> std::process::Output {
    let words = ["run", "demo", "-s", store].into_iter().chain(flags.iter().copied());
    place.leasehold(words.chain(["--", "touch", "ran"])).output().unwrap()
}

#[test]
fn check_14_a_store_that_is_not_there_is_a_failure_unless_asked_otherwise() {
    let place = Place::bare();
    let store = place.store.absent_url();
    let (output, took) = timed(|| run(&place, &store, &["--timeout", "2s"]));
    assert_eq!(code(output.status), 69, "{output:?}");
    assert!(took < Duration::from_secs(4), "{took:?}");
    let text = stderr(&output);
    for part in ["error[LH0101]: ", "effect   the command was not run", "--store-down skip|run"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let output = run(&place, &store, &["--timeout", "1s", "--store-down", "skip"]);
    assert_eq!((code(output.status), output.stderr.len()), (0, 0), "{output:?}");
    assert!(!place.path("ran").exists());

    let words = [
        "run",
        "demo",
        "-s",
        &store,
        "--timeout",
        "1s",
        "--store-down",
        "run",
        "--",
        "sh",
        "-c",
        "env; exit 9",
    ];
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
    let url = place.url();
    let _blocked = place.store.block();
    let (output, took) = timed(|| run(&place, &url, &["--timeout", "1s"]));
    assert_eq!(code(output.status), 69, "{output:?}");
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert!(stderr(&output).starts_with("error[LH0101]: "), "{output:?}");
    assert!(!place.path("ran").exists());
}

#[test]
fn errors_can_be_read_by_programs() {
    let place = Place::bare();
    let output = run(&place, &place.store.absent_url(), &["--timeout", "1s", "--json"]);
    let error: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    let keys: Vec<_> = error["error"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["code", "hint", "kind", "message", "retryable"]);
    assert_eq!(error["v"], 1);
    assert_eq!(error["error"]["kind"], "unavailable");
}
