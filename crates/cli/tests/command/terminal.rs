//! The second part of check 2, and what is said at a terminal. Skipped, and said so, where there is no `script`.

use std::process::{Command, Stdio};

use crate::stage::{BINARY, Place, Running, code, has, stdout, until};
use crate::store::SHOWN;

/// A shell line on a terminal of its own; what is typed comes by `type_in`.
pub(crate) fn on_a_terminal(place: &Place, line: &str) -> Running {
    let mut command = Command::new("script");
    let typescript = place.path("typescript");
    command.args(["-qefc", line, typescript.to_str().unwrap()]);
    place.settle(&mut command);
    command.env("TERM", "xterm").env("SHELL", "/bin/sh").env("NO_COLOR", "1").stdin(Stdio::piped());
    Running::of(command)
}

/// `exec`, so that leasehold itself is the leader of the terminal's session, as a login shell's job is of its group.
fn run(flags: &str, script: &str) -> String {
    format!("exec {BINARY} run demo {flags} -- sh -c '{script}'")
}

#[test]
fn a_person_is_told_what_is_held_and_what_to_do() {
    if !has("script") {
        return;
    }
    let place = Place::new();
    let output = on_a_terminal(&place, &run("", "test -t 0 && test -t 1 && test -t 2; exit $?")).output();
    let text = stdout(&output);
    assert_eq!(code(output.status), 0, "{text}");
    assert!(text.contains("leasehold: demo held (token ") && text.contains(SHOWN), "{text}");
    assert!(text.contains("leasehold: demo released after 0."), "{text}");

    let _holder = place.start(&["--note", "hotfix"], "sleep 60");
    let output = on_a_terminal(&place, &run("", "touch ran")).output();
    let text = stdout(&output);
    assert_eq!(code(output.status), 0, "{text}");
    assert!(text.contains("leasehold: skipped, demo is held by "), "{text}");
    for part in [
        "  ends     within ",
        "  wait     leasehold run demo --wait 10m -- sh -c ",
        "  look     leasehold status demo",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!place.path("ran").exists());

    let output = on_a_terminal(&place, &run("--wait 1500ms", "touch ran")).output();
    let text = stdout(&output);
    assert_eq!(code(output.status), 75, "{text}");
    assert!(text.contains("waiting for demo  0:0") && text.contains("hotfix"), "{text}");
    assert!(text.contains("error[LH0012]"), "{text}");
}

#[test]
fn check_02_the_command_reads_the_terminal() {
    if !has("script") {
        return;
    }
    let place = Place::new();
    let mut running = on_a_terminal(&place, &run("-q", "echo up > up; read line; echo $line > heard"));
    until("the command reads", || place.read("up") == "up\n");
    running.type_in("typed here\n");
    let output = running.output();
    assert_eq!(code(output.status), 0, "{output:?}");
    assert_eq!(place.read("heard"), "typed here\n");
}

#[test]
fn check_02_ctrl_c_reaches_the_command_once_and_its_trap_runs_to_the_end() {
    if !has("script") {
        return;
    }
    let place = Place::new();
    let trap = "trap \"echo int >> heard; sleep 0.3; echo cleaned >> heard; exit 5\" INT";
    let script = format!("{trap}; echo up > up; while :; do sleep 0.05; done");
    let mut running = on_a_terminal(&place, &run("-q", &script));
    until("the command has started", || place.read("up") == "up\n");
    running.type_in("\u{3}");
    let output = running.output();
    assert_eq!(code(output.status), 5, "{output:?}");
    assert_eq!(place.read("heard"), "int\ncleaned\n");
    assert!(place.is_free("demo"));
}

// The commands here wait without starting anything: a shell that is just starting a program (vfork) when Ctrl-Z comes
// cannot stop, since its half-started child has, and any shell above it would hang.

#[test]
fn ctrl_z_gives_the_prompt_back_and_fg_goes_on() {
    if !has("script") || !has("bash") {
        return;
    }
    let place = Place::new();
    let mut shell = on_a_terminal(&place, "exec bash --norc --noprofile -i");
    shell.type_in(&format!(
        "{BINARY} run demo -q -- sh -c 'echo up > up; until [ -e done ]; do :; done; echo end > end'\n"
    ));
    until("the command has started", || place.read("up") == "up\n");
    shell.type_in("\u{1a}");
    shell.type_until("echo prompt > prompt\n", "the shell has its prompt", || {
        place.read("prompt") == "prompt\n"
    });
    assert!(!place.is_free("demo"));
    place.write("done", "");
    shell.type_in("fg\n");
    until("the command goes on", || place.read("end") == "end\n");
    shell.type_in("echo code $? > code\nexit\n");
    drop(shell.output());
    assert_eq!(place.read("code"), "code 0\n");
}
