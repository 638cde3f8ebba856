//! Checks 6, 7 and 15: signals reach the command, end a wait, and never start a command.

use std::time::Duration;

use crate::stage::{BINARY, Place, Running, code, stderr, timed, until};

/// Waits by `read`-free sleeping in short steps, so that the shell runs its traps soon.
const LINGER: &str = "while :; do sleep 0.05; done";

#[test]
fn check_06_term_lets_the_command_clean_up_and_then_frees_the_lock() {
    let place = Place::new();
    let script = format!("trap 'sleep 0.3; echo cleaned > cleaned; exit 4' TERM; {LINGER}");
    let holder = place.start(&["--grace", "10s"], &script);
    let waiter = Running::of(place.leasehold(["run", "demo", "-w30s", "--", "cat", "cleaned"]));
    until("the waiter stands in line", || place.status("demo")["waiters"].as_array().unwrap().len() == 1);
    holder.signal("TERM");
    let output = waiter.output();
    // Had it entered earlier, there would have been nothing to read.
    assert_eq!((code(output.status), output.stdout.as_slice()), (0, b"cleaned\n".as_slice()), "{output:?}");
    assert_eq!(code(holder.output().status), 4);
}

#[test]
fn a_command_that_does_not_listen_is_killed_after_its_grace() {
    let place = Place::new();
    let holder = place.start(&["--grace", "500ms"], &format!("trap '' TERM; {LINGER}"));
    let (output, took) = timed(|| {
        holder.signal("TERM");
        holder.output()
    });
    assert_eq!(code(output.status), 137, "{output:?}");
    assert!(took >= Duration::from_millis(500), "{took:?}");
    assert!(place.is_free("demo"));
}

#[test]
fn a_second_signal_kills() {
    let place = Place::new();
    for (first, second) in [("TERM", "TERM"), ("INT", "INT"), ("TERM", "INT")] {
        let script = format!("trap 'echo {first} >> heard' TERM INT; {LINGER}");
        let _ = std::fs::remove_file(place.path("heard"));
        let holder = place.start(&["--grace", "10s"], &script);
        holder.signal(first);
        until("the first is heard", || !place.read("heard").is_empty());
        let (output, took) = timed(|| {
            holder.signal(second);
            holder.output()
        });
        assert_eq!(code(output.status), 137, "{first} {second}: {output:?}");
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert!(place.is_free("demo"));
    }
}

#[test]
fn check_07_every_signal_is_passed_on_once() {
    let place = Place::new();
    let names = ["HUP", "QUIT", "USR1", "USR2", "INT", "WINCH", "CONT"];
    let traps: String = names.iter().map(|name| format!("trap 'echo {name} >> heard' {name}; ")).collect();
    let holder = place.start(&[], &format!("{traps} until [ -e done ]; do sleep 0.05; done; exit 3"));
    for (index, name) in names.into_iter().enumerate() {
        holder.signal(name);
        until(name, || place.read("heard").lines().count() > index);
    }
    place.write("done", "");
    assert_eq!(code(holder.output().status), 3);
    assert_eq!(place.read("heard"), names.map(|name| format!("{name}\n")).concat());
}

#[test]
fn what_was_ignored_at_the_start_stays_ignored_and_is_inherited() {
    let place = Place::new();
    let script = "echo up > up; kill -HUP $$; until [ -e done ]; do sleep 0.05; done; exit 6";
    let line = format!("trap '' HUP; exec {BINARY} run demo -- sh -c '{script}'");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &line]);
    place.settle(&mut command);
    let mut running = Running::of(command);
    until("the command has started", || place.read("up") == "up\n");
    running.signal("HUP");
    assert!(running.is_running());
    place.write("done", "");
    assert_eq!(code(running.output().status), 6);
}

#[test]
fn check_15_signals_end_a_wait_at_once_and_leave_no_place_behind() {
    let place = Place::new();
    let _holder = place.start(&[], "sleep 60");
    for (name, expected) in [("TERM", 143), ("HUP", 129), ("INT", 130)] {
        // The bound is promised; who watches may be kept waiting himself, but not three times.
        let mut tries = 0;
        loop {
            tries += 1;
            let waiter = Running::of(place.leasehold(["run", "demo", "-w", "forever", "--", "touch", "ran"]));
            until("it stands in line", || place.status("demo")["waiters"].as_array().unwrap().len() == 1);
            let (output, took) = timed(|| {
                waiter.signal(name);
                waiter.output()
            });
            assert_eq!(code(output.status), expected, "{name}: {output:?}");
            if took < Duration::from_millis(200) {
                break;
            }
            assert!(tries < 3, "{name} took {took:?}");
        }
        assert_eq!(place.status("demo")["waiters"].as_array().unwrap().len(), 0, "{name}");
    }
    assert!(!place.path("ran").exists());
}

#[test]
fn no_command_starts_after_the_signal() {
    for round in 0..20 {
        let place = Place::new();
        let holder = place.start(&[], &format!("trap 'exit 0' TERM; {LINGER}"));
        let waiter = Running::of(place.leasehold(["run", "demo", "-w30s", "--", "touch", "ran"]));
        until("it stands in line", || place.status("demo")["waiters"].as_array().unwrap().len() == 1);
        // One command, so that both signals are sent in the same millisecond: the waiter's first.
        let status = std::process::Command::new("kill")
            .args(["-s", "TERM", &waiter.pid().to_string(), &holder.pid().to_string()])
            .status()
            .unwrap();
        assert!(status.success());
        let output = waiter.output();
        assert_eq!(code(output.status), 143, "round {round}: {}", stderr(&output));
        assert!(!place.path("ran").exists(), "round {round}: the command ran");
        assert_eq!(code(holder.output().status), 0);
    }
}
