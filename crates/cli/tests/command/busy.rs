//! Check 5, and the wait: what happens when somebody else has it.

use std::time::Duration;

use crate::stage::{Place, Running, code, stderr, stdout, timed, until};
use crate::store::DEAD_WAITER_COSTS;

#[test]
fn check_05_busy_without_a_terminal_is_silent_and_good() {
    let place = Place::new();
    let _holder = place.start(&[], "sleep 60");
    let output = place.leasehold(["run", "demo", "--", "touch", "ran"]).output().unwrap();
    assert_eq!(code(output.status), 0);
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    assert!(!place.path("ran").exists());

    let output = place.leasehold(["run", "demo", "-v", "--", "touch", "ran"]).output().unwrap();
    assert_eq!(code(output.status), 0);
    assert!(stderr(&output).contains("skipped, demo is held by"), "{output:?}");
}

#[test]
fn check_05_busy_can_be_a_failure_that_names_the_holder_and_what_to_type() {
    let place = Place::new();
    let holder = place.start(&["--note", "job #5512"], "sleep 60");
    let output = place.leasehold(["run", "demo", "--busy", "fail", "--", "touch", "ran"]).output().unwrap();
    assert_eq!(code(output.status), 75);
    let text = stderr(&output);
    assert!(text.starts_with("error[LH0011]: demo is held by "), "{text}");
    for part in
        [&format!("pid {}", holder.pid()), "job #5512", "leasehold status demo", "--wait 10m -- touch ran"]
    {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let output = place.leasehold(["run", "demo", "--busy", "fail", "-qq", "--", "true"]).output().unwrap();
    assert_eq!((code(output.status), output.stderr.len()), (75, 0));
    let output = place.leasehold(["run", "demo", "--busy", "fail", "--json", "--", "true"]).output().unwrap();
    let error: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(error["error"]["code"], "LH0011");
    assert_eq!(error["error"]["kind"], "busy");
    assert_eq!(error["error"]["retryable"], true);
    assert!(!place.path("ran").exists());
}

#[test]
fn a_wait_ends_with_the_lease_or_with_its_time() {
    let place = Place::new();
    let holder = place.start(&[], "while [ ! -e done ]; do sleep 0.05; done");
    let (output, took) =
        timed(|| place.leasehold(["run", "demo", "--wait", "300ms", "--", "true"]).output().unwrap());
    assert_eq!(code(output.status), 75, "{output:?}");
    assert!(stderr(&output).starts_with("error[LH0012]: still busy after 300ms: demo\n"), "{output:?}");
    assert!(took >= Duration::from_millis(300), "{took:?}");
    let output = place.leasehold(["run", "demo", "--wait", "0", "--", "true"]).output().unwrap();
    assert_eq!(code(output.status), 75, "no time to wait is one try that fails: {output:?}");

    let waiter =
        Running::of(place.leasehold(["run", "demo", "--wait", "forever", "--fair", "--", "echo", "my turn"]));
    until("the waiter stands in line", || place.status("demo")["waiters"].as_array().unwrap().len() == 1);
    place.write("done", "");
    assert_eq!(code(holder.output().status), 0);
    let output = waiter.output();
    assert_eq!((code(output.status), stdout(&output).as_str()), (0, "my turn\n"), "{output:?}");
}

#[test]
fn check_16_twenty_waiters_keep_their_order_and_a_killed_one_costs_at_most_two_seconds() {
    let place = Place::new();
    let holder = place.start(&["--ttl", "60s"], "while [ ! -e done ]; do sleep 0.05; done");
    let mut waiters: Vec<Running> = (0..20)
        .map(|number| {
            let script = format!("echo {number} $(date +%s%3N) >> order");
            let flags = ["run", "demo", "--ttl", "60s", "-w60s", "--fair", "--", "sh", "-c", &script];
            let waiter = Running::of(place.leasehold(flags));
            until("it stands in line", || {
                place.status("demo")["waiters"].as_array().unwrap().len() == number + 1
            });
            waiter
        })
        .collect();
    let killed = waiters.remove(7);
    killed.signal("KILL");
    drop(killed.output());
    place.write("done", "");
    drop(holder.output());
    for waiter in waiters {
        assert_eq!(code(waiter.output().status), 0);
    }
    let order = place.read("order");
    let served: Vec<(usize, i64)> = order
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(number, at)| (number.parse().unwrap(), at.parse().unwrap()))
        .collect();
    let expected: Vec<usize> = (0..20).filter(|number| *number != 7).collect();
    assert_eq!(served.iter().map(|(number, _)| *number).collect::<Vec<_>>(), expected);
    let behind = served[7].1 - served[6].1;
    assert!(
        behind < DEAD_WAITER_COSTS,
        "the one behind the killed waiter came {behind} ms after the one before"
    );
}

#[test]
fn never_two_at_once() {
    // A command that finds another's folder fails.
    let script = "mkdir inside || exit 99; sleep 0.02; rmdir inside";
    for attempt in 1..=3 {
        let place = Place::new();
        let all: Vec<Running> = (0..12)
            .map(|_| Running::of(place.leasehold(["run", "demo", "-w30s", "--", "sh", "-c", script])))
            .collect();
        let ends: Vec<_> = all.into_iter().map(Running::output).collect();
        // A grant to one who has waited is short, and where the machine has no time it is lost before it is renewed; then
        // the command was killed, and its folder is still there.
        if attempt == 3 || ends.iter().all(|end| code(end.status) != 79) {
            return assert!(ends.iter().all(|end| code(end.status) == 0), "{ends:?}");
        }
    }
}
