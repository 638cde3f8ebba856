//! Checks 11 to 13 on a file: the command is dead before its lease ends, and told at once when it is gone.

use std::process::{Command, Output};
use std::time::Duration;

use crate::guard::living;
use crate::stage::{Place, Running, code, has, stderr, until};

/// Keeps everybody from writing until it is dropped, as a store that does not answer.
fn block(place: &Place) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(place.path("locks.db")).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    connection
}

/// It hears TERM and goes on: only KILL ends it.
const DEAF: &str = "trap 'echo term >> heard' TERM; while :; do date +%s%3N >> alive; sleep 0.02; done";

/// When the lease ends, unless it is renewed.
fn expires(place: &Place) -> jiff::Timestamp {
    place.status("demo")["holders"][0]["expires_at"].as_str().unwrap().parse().unwrap()
}

/// What must be seen of a deaf command that was alone with a lease of 3 s which could not be renewed.
fn was_dead_in_time(place: &Place, output: &Output, expires: jiff::Timestamp) {
    assert_eq!(code(output.status), 79, "{output:?}");
    // It may have been killed in the middle of a line, but not of a whole one.
    let alive = place.read("alive");
    let whole = alive.rsplit_once('\n').unwrap().0;
    let last: i64 = whole.lines().next_back().unwrap().parse().unwrap();
    assert!(last < expires.as_millisecond(), "alive at {last}, the lease ended at {expires}");
    // TERM comes the whole grace before, which is a third of so short a ttl: not only at the end.
    assert_eq!(place.read("heard").lines().count(), 1, "{output:?}");
    let text = stderr(output);
    for part in
        ["warning: demo: ", "stopping the command, the lease ends in ", "error[LH0031]: lost demo (token "]
    {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

#[test]
fn check_11_the_command_is_dead_before_its_lease_is() {
    let place = Place::new();
    let holder = place.start(&["--ttl", "3s"], DEAF);
    let _blocked = block(&place);
    let expires = expires(&place);
    was_dead_in_time(&place, &holder.output(), expires);
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
    let expires = expires(&place);
    until("the run has ended", || living(&[holder.pid()]).is_empty());
    // It sees the end of what it holds up, and does not pass it on.
    drop(strace);
    was_dead_in_time(&place, &holder.output(), expires);
    assert!(!place.read("trace").is_empty(), "no call on the store was held up");
}

#[test]
fn a_command_that_listens_ends_in_its_grace_and_the_run_says_lost() {
    let place = Place::new();
    let holder = place.start(&["--ttl", "3s"], "trap 'exit 0' TERM; while :; do sleep 0.02; done");
    let _blocked = block(&place);
    let output = holder.output();
    assert_eq!(code(output.status), 79, "stopped for its lease, whatever it says itself: {output:?}");
    assert!(stderr(&output).contains("command  ended "), "{output:?}");
}

#[test]
fn a_store_that_comes_back_in_time_changes_nothing() {
    let place = Place::new();
    // Between half of the lease and TERM there is time to come back in.
    let flags = ["--ttl", "6s", "--grace", "500ms"];
    let holder = place.start(&flags, "until [ -e done ]; do sleep 0.02; done; exit 8");
    let before = place.status("demo")["holders"][0]["renewals"].as_u64().unwrap();
    let blocked = block(&place);
    until("half of the lease is gone", || place.status("demo")["state"] == "suspect");
    drop(blocked);
    until("it is renewed", || place.status("demo")["holders"][0]["renewals"].as_u64() > Some(before));
    place.write("done", "");
    let output = holder.output();
    assert_eq!(code(output.status), 8, "{output:?}");
}

#[test]
fn check_13_a_lease_that_is_gone_stops_the_command_at_once() {
    let place = Place::new();
    let script = "trap 'echo term >> heard' TERM; while :; do sleep 0.02; done";
    let holder = place.start(&["--ttl", "6s"], script);
    let connection = rusqlite::Connection::open(place.path("locks.db")).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    connection.execute_batch("DELETE FROM member").unwrap();
    let output = holder.output();
    assert_eq!(code(output.status), 79, "{output:?}");
    assert!(stderr(&output).contains("error[LH0031]"), "{output:?}");
    assert_eq!(place.read("heard"), "term\n");
}

#[test]
fn what_the_command_says_of_itself_stays_first() {
    let place = Place::new();
    let connection = rusqlite::Connection::open(place.path("locks.db")).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    // It ends right after its lease was taken away, before any renewal could tell.
    for (ends, expected) in [(7, 7), (0, 79)] {
        let _ = std::fs::remove_file(place.path("done"));
        let holder =
            place.start(&["--ttl", "60s"], &format!("until [ -e done ]; do sleep 0.02; done; exit {ends}"));
        connection.execute_batch("DELETE FROM member").unwrap();
        place.write("done", "");
        let output = holder.output();
        assert_eq!(code(output.status), expected, "{output:?}");
        assert!(stderr(&output).contains("lost"), "{output:?}");
    }
}

/// The lease is lost, and the command is to go on.
#[test]
fn a_loss_that_is_to_be_ignored_is_only_told() {
    let place = Place::new();
    let script = "until [ -e done ]; do sleep 0.02; done; exit 5";
    let holder = place.start(&["--ttl", "2s", "--on-lost", "ignore"], script);
    let connection = rusqlite::Connection::open(place.path("locks.db")).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    connection.execute_batch("DELETE FROM member").unwrap();
    let clock = leasehold::Clock::system();
    let start = clock.now();
    until("more than its ttl has passed", || clock.now().since(start) > Duration::from_secs(3));
    place.write("done", "");
    let output = holder.output();
    assert_eq!(code(output.status), 5, "{output:?}");
    assert!(stderr(&output).contains("the command goes on (--on-lost ignore)"), "{output:?}");
}

#[test]
fn a_loss_that_is_to_kill_kills_without_asking() {
    let place = Place::new();
    let script = "trap 'echo term >> heard' TERM; while :; do sleep 0.02; done";
    let holder = place.start(&["--ttl", "3s", "--on-lost", "kill"], script);
    let connection = rusqlite::Connection::open(place.path("locks.db")).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    connection.execute_batch("DELETE FROM member").unwrap();
    let output = holder.output();
    assert_eq!(code(output.status), 79, "{output:?}");
    assert_eq!(place.read("heard"), "");
}
