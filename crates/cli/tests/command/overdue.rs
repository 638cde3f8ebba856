//! Check 22, `--overdue`: silent before the limit, one message per host and hour after.

use std::time::Duration;

use crate::stage::{Place, code, stderr, until};
use crate::store::AGES_ARE_TOLD_TO;

#[test]
fn check_22_one_message_per_host_and_hour_and_none_before_the_limit() {
    let place = Place::new();
    let run = |name: &str, limit: &str, shell: &str| {
        let words = ["run", name, "--overdue", limit, "--", "sh", "-c", shell];
        let output = place.leasehold(words).output().unwrap();
        (code(output.status), stderr(&output))
    };
    assert_eq!(run("demo", "1h", "exit 0"), (0, String::new()));
    let _holder = place.start(&["--ttl", "60s"], "sleep 60");
    assert_eq!(run("demo", "1h", "true"), (0, String::new()), "long before the limit");
    std::thread::sleep(Duration::from_millis(20) + AGES_ARE_TOLD_TO);
    let mut told = Vec::new();
    for _ in 0..4 {
        let (code, text) = run("demo", "10ms", "true");
        assert_eq!(code, 0);
        told.push(text);
    }
    assert!(told[1..].iter().all(String::is_empty), "once in an hour: {told:?}");
    for part in [
        "leasehold: demo is overdue: last good run ended ",
        " ago (limit 10ms)",
        "  holder   ",
        "usual 0.",
        "  skipped  2 times since then on 1 host",
        "hangs: its lease is renewed, so it is alive",
        "leasehold break demo --token ",
        "leasehold explain LH0051",
    ] {
        assert!(told[0].contains(part), "{part}: {}", told[0]);
    }

    // One that fails, and that never went well.
    assert_eq!(run("other", "1h", "exit 3"), (3, String::new()));
    let mut text = String::new();
    until("it is overdue", || {
        text = run("other", "100ms", "exit 3").1;
        !text.is_empty()
    });
    assert!(text.contains("no good run since it was first heard of"), "{text}");
    assert!(text.contains("likely   it fails: the last run (") && text.contains("failed with 3"), "{text}");
    assert_eq!(run("other", "100ms", "exit 3"), (3, String::new()));
}

#[test]
fn a_good_run_is_the_end_of_it() {
    let place = Place::new();
    let run = |shell: &str, limit: &str| {
        let words = ["run", "demo", "--overdue", limit, "--", "sh", "-c", shell];
        stderr(&place.leasehold(words).output().unwrap())
    };
    assert_eq!(run("exit 3", "1h"), "");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(run("exit 0", "10ms"), "", "it has just gone well");
    let status = place.status("demo");
    assert_eq!((&status["skips_since_ok"], &status["last_ok"]["exit_code"]), (&0.into(), &0.into()));
}
