//! Checks 3 and 4: Ctrl-Z, `fg`, and a terminal that is closed. Skipped, and said so, where there is no `script`.

use std::time::Duration;

use leasehold::Clock;

use crate::guard::{living, watch};
use crate::stage::{BINARY, Place, Running, code, has, signal, timed, until};
use crate::terminal::on_a_terminal;

/// A shell with job control, in which a command was started and stopped by Ctrl-Z. The command forks nothing: a
/// shell that is stopped in the middle of a fork is not seen as stopped.
fn stopped(place: &Place, flags: &str) -> (Running, Vec<u32>) {
    let mut shell = on_a_terminal(place, "exec bash --norc --noprofile -i");
    shell.type_in(&format!(
        "{BINARY} run demo {flags} -- sh -c 'echo $$ > up; until [ -e done ]; do :; done; echo end > end'\n"
    ));
    until("the command has started", || place.read("up").ends_with('\n'));
    let pid = place.read("up").trim().parse().unwrap();
    shell.type_in("\u{1a}");
    shell.type_until("echo prompt > prompt\n", "the shell has its prompt", || {
        place.read("prompt") == "prompt\n"
    });
    (shell, vec![pid])
}

/// What `fg` ended with.
fn foreground(place: &Place, mut shell: Running) -> String {
    shell.type_in("fg\n");
    shell.type_in("echo code $? > code\nexit\n");
    drop(shell.output());
    place.read("code")
}

pub(crate) fn wait_for(duration: Duration) {
    let clock = Clock::system();
    let start = clock.now();
    until("that time has passed", || clock.now().since(start) >= duration);
}

#[test]
fn check_03_ctrl_z_keeps_the_lease_for_more_than_three_ttl_and_fg_goes_on() {
    if !has("script") || !has("bash") {
        return;
    }
    let place = Place::new();
    let (shell, pids) = stopped(&place, "--ttl 3s");
    let token = place.status("demo")["token"].clone();
    wait_for(Duration::from_secs(10));
    assert!(!place.is_free("demo"));
    assert_eq!(place.status("demo")["token"], token, "it is the same lease");
    assert_eq!(living(&pids), pids);
    place.write("done", "");
    assert!(!place.path("end").exists(), "a stopped command does nothing");
    assert_eq!(foreground(&place, shell), "code 0\n");
    assert_eq!(place.read("end"), "end\n");
    let said = place.read("typescript");
    assert!(said.contains("still holding demo while stopped"), "{said}");
    assert!(place.is_free("demo"));
}

#[test]
fn check_03_a_stopped_command_whose_lease_is_gone_does_not_go_on() {
    if !has("script") || !has("bash") {
        return;
    }
    let place = Place::new();
    let (shell, _) = stopped(&place, "--ttl 3s");
    place.store.take_away();
    place.write("done", "");
    assert_eq!(foreground(&place, shell), "code 79\n");
    assert!(!place.path("end").exists(), "it went on without a lease");
}

#[test]
fn check_03_a_stopped_command_is_dead_before_its_lease_is() {
    if !has("script") || !has("bash") {
        return;
    }
    let place = Place::new();
    let (shell, pids) = stopped(&place, "-q --ttl 2s");
    let blocked = place.store.block();
    let seen = watch("the command is dead", || living(&pids).is_empty());
    assert!(seen.after < Duration::from_secs(2), "{:?}, with a gap of {:?}", seen.after, seen.gap);
    drop(blocked);
    place.write("done", "");
    assert_eq!(foreground(&place, shell), "code 79\n");
    assert!(!place.path("end").exists(), "it went on without a lease");
}

#[test]
fn check_04_a_closed_terminal_hangs_up_on_the_command_and_frees_the_lock() {
    if !has("script") || !has("bash") {
        return;
    }
    let place = Place::new();
    let mut shell = on_a_terminal(&place, "exec bash --norc --noprofile -i");
    shell.type_in(&format!(
        "{BINARY} run demo -- sh -c 'trap \"echo hup >> heard; exit 0\" HUP; echo $$ > up; while :; do sleep 0.05; done'\n"
    ));
    until("the command has started", || place.read("up").ends_with('\n'));
    let pid: u32 = place.read("up").trim().parse().unwrap();
    shell.signal("KILL");
    until("the command is dead", || living(&[pid]).is_empty());
    until("the lock is free", || place.is_free("demo"));
    assert_eq!(place.read("heard").lines().next(), Some("hup"));
}

/// A shell with job control in which a command waits in line, and was stopped by Ctrl-Z there.
fn stopped_in_line(place: &Place) -> Running {
    let mut shell = on_a_terminal(place, "exec bash --norc --noprofile -i");
    shell.type_in(&format!("{BINARY} run demo -w60s -- sh -c 'echo first >> order'\n"));
    until("it stands in line", || in_line(place) == 1);
    shell.type_in("\u{1a}");
    shell.type_until("echo prompt > prompt\n", "the shell has its prompt", || {
        place.read("prompt") == "prompt\n"
    });
    shell
}

pub(crate) fn in_line(place: &Place) -> usize {
    place.status("demo")["waiters"].as_array().unwrap().len()
}

/// One more, without a terminal.
fn second(place: &Place) -> Running {
    let waiter =
        Running::of(place.leasehold(["run", "demo", "-w60s", "--", "sh", "-c", "echo second >> order"]));
    until("the second stands in line", || in_line(place) == 2);
    waiter
}

#[test]
fn ctrl_z_in_line_costs_no_place() {
    if !has("script") || !has("bash") {
        return;
    }
    let place = Place::new();
    let holder = place.start(&[], "until [ -e done ]; do sleep 0.02; done");
    let shell = stopped_in_line(&place);
    let second = second(&place);
    // More than twice as long as a place lives that nobody keeps.
    wait_for(Duration::from_millis(4500));
    let status = place.status("demo");
    assert_eq!(status["waiters"].as_array().unwrap().len(), 2, "{status}");
    let waits = status["waiters"][0]["id"].as_str().unwrap().split('/').nth(1).unwrap().to_owned();
    let stat = std::fs::read_to_string(format!("/proc/{waits}/stat")).unwrap();
    assert!(stat.contains("(leasehold) T "), "who is shown in line is not who was stopped: {stat}");
    let mut shell = shell;
    shell.type_in("fg\n");
    until("it goes on", || {
        std::fs::read_to_string(format!("/proc/{waits}/stat")).unwrap().contains("(leasehold) S ")
    });
    place.write("done", "");
    assert_eq!(code(holder.output().status), 0);
    assert_eq!(code(second.output().status), 0);
    assert_eq!(place.read("order"), "first\nsecond\n");
    shell.type_in("echo code $? > code\nexit\n");
    drop(shell.output());
    assert_eq!(place.read("code"), "code 0\n");
    assert!(place.is_free("demo"));
}

#[test]
fn whoever_is_stopped_in_line_lets_others_go_first_and_comes_back() {
    if !has("script") || !has("bash") {
        return;
    }
    let place = Place::new();
    let holder = place.start(&[], "until [ -e done ]; do sleep 0.02; done");
    let shell = stopped_in_line(&place);
    let second = second(&place);
    place.write("done", "");
    assert_eq!(code(holder.output().status), 0);
    let (output, took) = timed(|| second.output());
    assert_eq!(code(output.status), 0);
    assert!(took < Duration::from_secs(2), "one who is stopped cost the next {took:?}");
    until("the lock is free", || place.is_free("demo"));
    assert_eq!(place.read("order"), "second\n");
    assert_eq!(foreground(&place, shell), "code 0\n");
    assert_eq!(place.read("order"), "second\nfirst\n");
    assert!(
        place.read("typescript").contains("its turn came while it was stopped"),
        "{}",
        place.read("typescript")
    );
}

#[test]
fn who_leaves_the_line_at_a_terminal_leaves_no_place_and_no_process() {
    if !has("script") || !has("bash") {
        return;
    }
    for how in ["\u{3}", "KILL"] {
        let place = Place::new();
        let _holder = place.start(&[], "sleep 60");
        let mut shell = on_a_terminal(&place, "exec bash --norc --noprofile -i");
        shell.type_in(&format!("{BINARY} run demo -w60s -- touch ran\n"));
        until("it stands in line", || in_line(&place) == 1);
        let id = place.status("demo")["waiters"][0]["id"].as_str().unwrap().to_owned();
        let pid = id.split('/').nth(1).unwrap().parse().unwrap();
        let stands = stands_for(pid);
        assert_eq!(stands.len(), 1, "a process stands in line for it");
        if how == "KILL" {
            signal(pid, how);
        } else {
            shell.type_in(how);
        }
        until("its place is gone", || in_line(&place) == 0);
        until("nobody stands there any more", || living(&stands).is_empty());
        shell.type_in("echo code $? > code\nexit\n");
        drop(shell.output());
        assert_eq!(place.read("code"), if how == "KILL" { "code 137\n" } else { "code 130\n" });
        assert!(!place.path("ran").exists());
    }
}

#[test]
fn whose_stand_in_is_killed_waits_himself() {
    if !has("script") || !has("bash") {
        return;
    }
    let place = Place::new();
    let holder = place.start(&[], "until [ -e done ]; do sleep 0.02; done");
    let mut shell = on_a_terminal(&place, "exec bash --norc --noprofile -i");
    shell.type_in(&format!("{BINARY} run demo -w60s -- sh -c 'echo first >> order'\n"));
    until("it stands in line", || in_line(&place) == 1);
    let id = place.status("demo")["waiters"][0]["id"].as_str().unwrap().to_owned();
    let [stands] = stands_for(id.split('/').nth(1).unwrap().parse().unwrap())[..] else {
        panic!("one stands")
    };
    signal(stands, "KILL");
    until("it stands in line by itself", || living(&[stands]).is_empty() && in_line(&place) == 1);
    place.write("done", "");
    assert_eq!(code(holder.output().status), 0);
    shell.type_in("echo code $? > code\nexit\n");
    drop(shell.output());
    assert_eq!((place.read("code"), place.read("order")), ("code 0\n".into(), "first\n".into()));
}

/// Who stands in line for a `run`.
pub(crate) fn stands_for(run: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{run}/task/{run}/children")).unwrap_or_default();
    let name = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    children.filter(|pid| name(pid) == "leasehold-queue\n").collect()
}
