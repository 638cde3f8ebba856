//! Checks 11 and 13: the command is dead before its lease ends, and told at once when it is gone.

use std::process::Output;
use std::time::Duration;

use crate::stage::{Place, code, is_renewed, stderr, timed, until};
use crate::store::{ANSWERS_WHILE_BLOCKED, HEARS_AT_ONCE};

/// It hears TERM and goes on: only KILL ends it.
pub(crate) const DEAF: &str =
    "trap 'echo term >> heard' TERM; while :; do date +%s%3N >> alive; sleep 0.02; done";

fn now() -> jiff::Timestamp {
    let micros = leasehold::Clock::system().wall_micros();
    jiff::Timestamp::from_microsecond(micros.try_into().unwrap()).unwrap()
}

/// What must be seen of a deaf command that was alone with a lease of 3 s which could not be renewed.
pub(crate) fn was_dead_in_time(place: &Place, output: &Output, expires: jiff::Timestamp) {
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

/// Has something befall the store right after a renewal, when what it said of the end of the lease is still true.
pub(crate) fn right_after_a_renewal<T>(place: &Place, mut befall: impl FnMut() -> T) -> (T, jiff::Timestamp) {
    loop {
        place.until_renewed("demo");
        let (expires, asked) = timed(|| place.ends("demo").unwrap());
        let (befallen, took) = timed(&mut befall);
        // The next renewal is a third of the ttl after the last.
        if asked + took < Duration::from_millis(500) {
            return (befallen, expires);
        }
        drop(befallen);
    }
}

#[test]
fn check_11_the_command_is_dead_before_its_lease_is() {
    let place = Place::new();
    let holder = place.start(&["--ttl", "3s"], DEAF);
    let (_blocked, expires) = right_after_a_renewal(&place, || place.store.block());
    was_dead_in_time(&place, &holder.output(), expires);
}

#[test]
fn a_command_that_listens_ends_in_its_grace_and_the_run_says_lost() {
    let place = Place::new();
    let holder = place.start(&["--ttl", "3s"], "trap 'exit 0' TERM; while :; do sleep 0.02; done");
    let _blocked = place.store.block();
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
    let (blocked, expires) = right_after_a_renewal(&place, || place.store.block());
    let half = expires - jiff::SignedDuration::from_secs(3);
    until("half of the lease is gone", || now() > half);
    if ANSWERS_WHILE_BLOCKED {
        until("everybody sees it", || place.status("demo")["state"] == "suspect");
    }
    drop(blocked);
    until("it is renewed", || is_renewed(Some(expires), place.ends("demo")));
    place.write("done", "");
    let output = holder.output();
    assert_eq!(code(output.status), 8, "{output:?}");
}

#[test]
fn check_13_a_lease_that_is_gone_stops_the_command_at_once() {
    let place = Place::new();
    let script = "trap 'echo term >> heard' TERM; while :; do sleep 0.02; done";
    let holder = place.start(&["--ttl", "6s"], script);
    place.store.take_away();
    let output = holder.output();
    assert_eq!(code(output.status), 79, "{output:?}");
    assert!(stderr(&output).contains("error[LH0031]"), "{output:?}");
    assert_eq!(place.read("heard"), "term\n");
}

#[test]
fn what_the_command_says_of_itself_stays_first() {
    let place = Place::new();
    // It ends right after its lease was taken away, before any renewal could tell.
    for (ends, expected) in [(7, 7), (0, 79)] {
        let _ = std::fs::remove_file(place.path("done"));
        let holder =
            place.start(&["--ttl", "60s"], &format!("until [ -e done ]; do sleep 0.02; done; exit {ends}"));
        place.store.take_away();
        place.write("done", "");
        let output = holder.output();
        let stopped = HEARS_AT_ONCE && code(output.status) == 79;
        assert!(stopped || code(output.status) == expected, "{output:?}");
        assert!(stderr(&output).contains("lost"), "{output:?}");
    }
}

/// The lease is lost, and the command is to go on.
#[test]
fn a_loss_that_is_to_be_ignored_is_only_told() {
    let place = Place::new();
    let script = "until [ -e done ]; do sleep 0.02; done; exit 5";
    let holder = place.start(&["--ttl", "2s", "--on-lost", "ignore"], script);
    place.store.take_away();
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
    place.store.take_away();
    let output = holder.output();
    assert_eq!(code(output.status), 79, "{output:?}");
    assert_eq!(place.read("heard"), "");
}
