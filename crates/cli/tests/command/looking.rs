//! Check 25 and the read commands: what they print, and that everything has its text.

use crate::stage::{Place, Running, code, stderr, stdout, until};
use crate::store::SCOPE;

const KEYS: &[&str] = &[
    "holders",
    "kind",
    "last_ok",
    "name",
    "once",
    "scope",
    "skips_since_ok",
    "state",
    "store",
    "token",
    "v",
    "waiters",
];
const HOLDER_KEYS: &[&str] = &[
    "acquired_at",
    "at_most_at",
    "command",
    "expires_at",
    "host",
    "id",
    "left_ms",
    "note",
    "pid",
    "renewals",
    "renewed_at",
    "ttl_ms",
    "user",
];
const WAITER_KEYS: &[&str] = &["gives_up_at", "host", "id", "position", "since"];

fn keys(value: &serde_json::Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn status_says_who_since_when_and_who_waits() {
    let place = Place::new();
    let output = place.leasehold(["status", "demo"]).output().unwrap();
    assert_eq!(code(output.status), 1);
    assert!(stdout(&output).lines().next().unwrap().ends_with(" FREE"), "{output:?}");
    let free = place.status("demo");
    assert_eq!(keys(&free), KEYS);
    assert_eq!((&free["state"], &free["token"], &free["kind"]), (&"free".into(), &().into(), &().into()));

    let holder = place.start(&["--note", "hotfix", "--ttl", "2m"], "sleep 60");
    let _waiter = Running::of(place.leasehold(["run", "demo", "-w", "1m", "--", "true"]));
    until("the waiter stands in line", || place.status("demo")["waiters"].as_array().unwrap().len() == 1);
    let held = place.status("demo");
    assert_eq!(keys(&held), KEYS);
    assert_eq!(keys(&held["holders"][0]), HOLDER_KEYS);
    assert_eq!(keys(&held["waiters"][0]), WAITER_KEYS);
    assert_eq!(held["state"], "held");
    assert_eq!(held["kind"], "mutex");
    assert_eq!(held["scope"], SCOPE);
    assert!(held["token"].as_u64().unwrap() < 1 << 53);
    let first = &held["holders"][0];
    assert_eq!(first["pid"], holder.pid());
    assert_eq!(first["command"], "sh");
    assert_eq!(first["note"], "hotfix");
    assert_eq!(first["ttl_ms"], 120_000);
    for key in ["acquired_at", "renewed_at", "expires_at"] {
        let time: jiff::Timestamp = first[key].as_str().unwrap().parse().unwrap();
        let apart = jiff::Timestamp::from_microsecond(
            i64::try_from(leasehold::Clock::system().wall_micros()).unwrap(),
        );
        let apart = apart.unwrap().duration_since(time).abs();
        assert!(apart < jiff::SignedDuration::from_secs(180), "{key}: {time}");
    }

    let output = place.leasehold(["status", "demo"]).output().unwrap();
    let text = stdout(&output);
    assert_eq!(code(output.status), 0);
    for part in [" HELD   token ", "holder   ", "lease    2m, taken ", "waiting  1     1. ", "store    "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let output = place.leasehold(["status", "demo", "-q"]).output().unwrap();
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(code(output.status), 0);
}

#[test]
fn list_prints_one_line_each_and_knows_patterns() {
    let place = Place::new();
    let output = place.leasehold(["list"]).output().unwrap();
    assert_eq!((code(output.status), output.stdout.len(), output.stderr.len()), (0, 0, 0), "{output:?}");
    let names = ["order:1", "order:2", "stock"];
    let holders: Vec<Running> =
        names.iter().map(|name| Running::of(place.leasehold(["run", name, "--", "sleep", "60"]))).collect();
    for name in names {
        until("it is held", || !place.is_free(name));
    }
    let listed = |words: &[&str]| {
        let output = place.leasehold(words.iter().copied().chain(["--json"])).output().unwrap();
        let text = stdout(&output);
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        lines.iter().for_each(|line| assert_eq!(keys(line), KEYS));
        lines.iter().map(|line| line["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed(&["list"]), names);
    assert_eq!(listed(&["ls", "order:*"]), ["order:1", "order:2"]);
    assert_eq!(listed(&["ps", "*:2", "stock"]), ["order:2", "stock"]);
    assert_eq!(listed(&["list", "none*"]), [""; 0]);
    let text = stdout(&place.leasehold(["list"]).output().unwrap());
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("NAME     STATE  HOLDER"), "{text}");
    assert!(lines[1].starts_with("order:1  held   "), "{text}");
    assert_eq!(lines.len(), 4, "{text}");
    drop(holders);
}

#[test]
fn check_25_every_code_and_topic_is_explained() {
    let place = Place::bare();
    let index = stdout(&place.leasehold(["explain"]).output().unwrap());
    for code in leasehold::Code::ALL {
        let code = code.to_string();
        assert!(index.contains(&code), "{code}");
        let output = place.leasehold(["explain", &code]).output().unwrap();
        assert!(output.status.success() && stdout(&output).starts_with(&format!("{code}: ")), "{output:?}");
    }
    for topic in ["exit-codes", "stores", "fencing", "config"] {
        assert!(index.contains(topic));
        assert!(stdout(&place.leasehold(["explain", topic]).output().unwrap()).len() > 300, "{topic}");
    }
    assert!(stdout(&place.leasehold(["explain", "lh31"]).output().unwrap()).starts_with("LH0031: "));
}

#[test]
fn the_first_screen_the_help_and_the_version_need_nothing() {
    let place = Place::bare();
    let mut first = place.leasehold([] as [&str; 0]);
    let text = stdout(&first.env_remove("LEASEHOLD_STORE").output().unwrap());
    assert!(
        text.starts_with("leasehold · one of N servers runs it\n") && text.contains("this machine only"),
        "{text}"
    );
    assert!(text.lines().count() < 20, "{text}");
    let commands =
        ["run", "acquire", "try", "check", "renew", "release", "list", "status", "break", "explain"];
    for command in [None].into_iter().chain(commands.map(Some)) {
        let words: Vec<_> = command.into_iter().chain(["-h"]).collect();
        let output = place.leasehold(&words).output().unwrap();
        assert!(output.status.success() && stderr(&output).is_empty(), "{words:?}: {output:?}");
        assert!(stdout(&output).lines().count() <= 50, "{words:?} is one screen");
    }
    assert!(stdout(&place.leasehold(["run", "-h"]).output().unwrap()).contains("Examples:"));
    assert!(stdout(&place.leasehold(["--version"]).output().unwrap()).starts_with("leasehold "));
    assert!(!place.path("locks.db").exists(), "no store is made for what needs none");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let place = Place::new();
    let script = format!("{} explain | head -1", crate::stage::BINARY);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script]);
    place.settle(&mut command);
    let output = command.output().unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
}
