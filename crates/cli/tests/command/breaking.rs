//! Checks 13 and 24: somebody else's lease is ended by its token, and only by that.

use std::time::Duration;

use crate::stage::{BINARY, Place, Running, code, stderr, stdout, timed, until};
use crate::terminal::on_a_terminal;

fn token(place: &Place) -> u64 {
    place.status("demo")["token"].as_u64().unwrap()
}

fn end(place: &Place, token: u64, more: &[&str]) -> std::process::Output {
    let token = token.to_string();
    let words = ["break", "demo", "--token", &token, "--yes"];
    place.leasehold(words.iter().copied().chain(more.iter().copied())).output().unwrap()
}

#[test]
fn check_24_with_an_old_token_nothing_happens() {
    let place = Place::new();
    let output = end(&place, 4100, &[]);
    assert_eq!(code(output.status), 75, "{output:?}");
    let text = stderr(&output);
    assert!(
        text.starts_with(
            "error[LH0061]: token 4100 is not the holder's any more (nobody holds demo); nothing"
        )
    );

    let mut holder = place.start(&["--ttl", "6s"], "while [ ! -e done ]; do sleep 0.02; done");
    let current = token(&place);
    for old in [current - 1, current + 1, 1] {
        let output = end(&place, old, &[]);
        assert_eq!((code(output.status), output.stdout.len()), (75, 0), "{output:?}");
        let text = stderr(&output);
        let start = format!("error[LH0061]: token {old} is not the holder's any more (now {current}, ");
        assert!(text.starts_with(&start), "{text}");
        assert!(text.contains("; nothing was done\n"), "{text}");
    }
    place.until_renewed("demo");
    assert_eq!(token(&place), current);
    assert!(holder.is_running());
    place.write("done", "");
    assert_eq!(code(holder.output().status), 0);
}

#[test]
fn check_13_break_stops_the_command_within_a_third_of_its_ttl() {
    let place = Place::new();
    let script = "trap 'touch heard; exit 0' TERM; while :; do sleep 0.02; done";
    let holder = place.start(&["--ttl", "6s"], script);
    let broken = token(&place);
    let output = end(&place, broken, &["--note", "hung on NFS"]);
    assert_eq!(code(output.status), 0, "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    let text = stdout(&output);
    assert!(
        text.starts_with(&format!("broken. next token is {} or higher; recorded as broken by ", broken + 1))
    );
    assert!(text.ends_with(" (\"hung on NFS\")\n"), "{text}");
    let ((), took) = timed(|| until("TERM arrives", || place.path("heard").exists()));
    // A third of the ttl, and what a busy machine takes for its part.
    assert!(took < Duration::from_secs(3), "{took:?}");
    let output = holder.output();
    assert_eq!(code(output.status), 79, "{output:?}");
    assert!(stderr(&output).contains("error[LH0031]: lost demo (token "), "{output:?}");

    let records = place.store.records("demo");
    let (_, text) = records.iter().find(|(kind, _)| kind == "event").unwrap();
    let text: serde_json::Value = serde_json::from_str(text).unwrap();
    assert_eq!(
        (&text["event"], &text["token"], &text["note"]),
        (&"broken".into(), &broken.into(), &"hung on NFS".into())
    );
    assert!(text["user"].is_string() && text["host"].is_string(), "{text}");
}

#[test]
fn the_lease_of_a_script_is_broken_too_and_its_check_says_so() {
    let place = Place::new();
    let output = place.leasehold(["acquire", "demo"]).output().unwrap();
    let taken = stdout(&output);
    assert_eq!(code(end(&place, token(&place), &["--json"]).status), 0);
    let mut check = place.leasehold(["check"]);
    let output = check.env("LEASE_NAME", "demo").env("LEASE_TOKEN", taken.trim()).output().unwrap();
    assert_eq!(code(output.status), 79, "{output:?}");
    assert!(place.is_free("demo"));
}

#[test]
fn a_person_sees_the_holder_and_types_the_name() {
    if !crate::stage::has("script") {
        return;
    }
    let place = Place::new();
    let mut holder = place.start(&["--ttl", "1m"], "while :; do sleep 0.02; done");
    let ask = |typed: &str| {
        let mut running: Running = on_a_terminal(&place, &format!("exec {BINARY} break demo"));
        running.type_in(typed);
        running.output()
    };
    let output = ask("demi\n");
    let text = stdout(&output);
    assert_eq!(code(output.status), 64, "{text}");
    for part in [
        &format!("pid {}, sh) for ", holder.pid()),
        &format!(", token {}", token(&place)),
        "it is ALIVE: renewed ",
        "Breaking lets a second job start within seconds.",
        "Type the name to go on: ",
        "that is not its name; nothing was done",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert!(holder.is_running() && !place.is_free("demo"));
    let output = ask("demo\n");
    assert_eq!(code(output.status), 0, "{}", stdout(&output));
    assert!(stdout(&output).contains("broken. next token is "), "{}", stdout(&output));
    assert!(place.is_free("demo"));
}
