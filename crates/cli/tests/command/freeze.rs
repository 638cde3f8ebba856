//! Checks 3 and 4: Ctrl-Z, `fg`, and a terminal that is closed. Skipped, and said so, where there is no `script`.

use std::time::Duration;

use leasehold::Clock;

use crate::guard::{living, watch};
use crate::stage::{BINARY, Place, Running, has, until};
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

fn wait_for(duration: Duration) {
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
    let connection = rusqlite::Connection::open(place.path("locks.db")).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    connection.execute_batch("DELETE FROM member").unwrap();
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
    let connection = rusqlite::Connection::open(place.path("locks.db")).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let seen = watch("the command is dead", || living(&pids).is_empty());
    assert!(seen.after < Duration::from_secs(2), "{:?}, with a gap of {:?}", seen.after, seen.gap);
    drop(connection);
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
