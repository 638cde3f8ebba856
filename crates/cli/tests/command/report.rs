//! What a run tells of itself: `--report`, `--only-errors`, `--dry-run`; and `-c`.

use serde_json::Value;

use crate::stage::{BINARY, Place, code, has, stderr, stdout};

const KEYS: &[&str] = &[
    "asked_at",
    "ended_at",
    "error",
    "exit",
    "exit_code",
    "holder",
    "ms",
    "name",
    "once",
    "outcome",
    "reason",
    "shut_ms",
    "signal",
    "started_at",
    "store",
    "token",
    "v",
    "waited_ms",
];

/// Runs with these flags and this command, and reads the report.
fn report(place: &Place, flags: &[&str], command: &[&str]) -> Value {
    let words = ["run", "demo", "--report", "report.json"].iter().chain(flags).chain(&["--"]).chain(command);
    let output = place.leasehold(words).output().unwrap();
    let report: Value = serde_json::from_str(&place.read("report.json"))
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(report.as_object().unwrap().keys().collect::<Vec<_>>(), KEYS);
    assert_eq!(report["exit"], code(output.status));
    report
}

#[test]
fn each_end_has_its_report() {
    let place = Place::new();
    let ok = report(&place, &["--once", "k", "--at-least", "1s"], &["sleep", "0.05"]);
    assert_eq!((&ok["outcome"], &ok["exit_code"]), (&"ok".into(), &0.into()));
    assert!(ok["token"].as_u64().unwrap() > 0 && ok["ms"].as_u64().unwrap() >= 50, "{ok}");
    assert!(ok["shut_ms"].as_u64().unwrap() > 0, "{ok}");
    assert_eq!(ok["once"]["done"], true);
    for key in ["asked_at", "started_at", "ended_at"] {
        let _: jiff::Timestamp = ok[key].as_str().unwrap().parse().unwrap();
    }
    let done = report(&place, &["--once", "k"], &["true"]);
    assert_eq!((&done["outcome"], &done["reason"]), (&"skipped".into(), &"done".into()));
    assert_eq!((&done["token"], &done["exit_code"]), (&Value::Null, &Value::Null));
    let waited = report(&place, &["--wait", "30s"], &["sh", "-c", "exit 7"]);
    assert_eq!((&waited["outcome"], &waited["exit_code"]), (&"failed".into(), &7.into()));
    let killed = report(&place, &[], &["sh", "-c", "kill -9 $$"]);
    assert_eq!(
        (&killed["outcome"], &killed["signal"], &killed["exit"]),
        (&"failed".into(), &9.into(), &137.into())
    );
    let long = report(&place, &["--at-most", "100ms"], &["sleep", "60"]);
    assert_eq!(
        (&long["outcome"], &long["signal"], &long["exit"]),
        (&"at_most".into(), &15.into(), &124.into())
    );
    let missing = report(&place, &[], &["/nonexistent"]);
    assert_eq!((&missing["outcome"], &missing["error"]["code"]), (&"not_started".into(), &"LH0041".into()));

    let holder = place.start(&["--ttl", "60s"], "until [ -e done ]; do sleep 0.02; done");
    let busy = report(&place, &[], &["true"]);
    assert_eq!((&busy["outcome"], &busy["reason"]), (&"skipped".into(), &"busy".into()));
    let refused = report(&place, &["--busy", "fail"], &["true"]);
    assert_eq!((&refused["outcome"], &refused["error"]["code"]), (&"busy".into(), &"LH0011".into()));
    place.write("done", "");
    assert_eq!(code(holder.output().status), 0);

    let script = "sqlite=1; until [ -e gone ]; do sleep 0.02; done";
    let loser = place.start(&["--ttl", "60s", "--report", "lost.json"], script);
    place.store.take_away();
    place.write("gone", "");
    assert_eq!(code(loser.output().status), 79);
    let lost: Value = serde_json::from_str(&place.read("lost.json")).unwrap();
    assert_eq!((&lost["outcome"], &lost["error"]["code"]), (&"lost".into(), &"LH0031".into()));
}

#[test]
fn a_report_goes_where_it_is_sent_or_nothing_runs() {
    let place = Place::new();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &format!("{BINARY} run demo --report fd:7 -- sh -c 'echo mine' 7>report.json")]);
    place.settle(&mut shell);
    let output = shell.output().unwrap();
    assert_eq!(stdout(&output), "mine\n", "{output:?}");
    let report: Value = serde_json::from_str(&place.read("report.json")).unwrap();
    assert_eq!(report["outcome"], "ok");
    for bad in ["fd:7", "fd:3", "fd:5", "fd:x", "fd:-1", "missing/report.json", "/"] {
        let output =
            place.leasehold(["run", "demo", "--report", bad, "--", "touch", "ran"]).output().unwrap();
        assert_eq!(code(output.status), 64, "{bad}: {output:?}");
        assert!(stderr(&output).starts_with("error[LH0005]: --report "), "{bad}: {output:?}");
    }
    assert!(!place.path("ran").exists());
}

#[test]
fn output_is_kept_back_unless_it_fails() {
    let place = Place::new();
    let run = |shell: &str| {
        place.leasehold(["run", "demo", "--only-errors", "--", "sh", "-c", shell]).output().unwrap()
    };
    let output = run("echo out; echo err >&2");
    assert_eq!((code(output.status), output.stdout.len(), output.stderr.len()), (0, 0, 0), "{output:?}");
    let output = run("echo out; echo err >&2; exit 3");
    assert_eq!((code(output.status), stdout(&output), stderr(&output)), (3, "out\n".into(), "err\n".into()));
    // More than any pipe or sensible buffer holds.
    let output = run("head -c 3000000 /dev/zero; exit 1");
    assert_eq!((code(output.status), output.stdout.len()), (1, 3_000_000));
    // What went to one place comes out in its order, as cron mails it.
    let mut shell = std::process::Command::new("sh");
    let script = "for i in 1 2 3; do echo out$i; echo err$i >&2; done; exit 1";
    shell.args(["-c", &format!("{BINARY} run demo --only-errors -- sh -c '{script}' 2>&1")]);
    place.settle(&mut shell);
    assert_eq!(stdout(&shell.output().unwrap()), "out1\nerr1\nout2\nerr2\nout3\nerr3\n");
    // Leasehold's own words are not kept back.
    let output = place.leasehold(["run", "demo", "--only-errors", "-v", "--", "true"]).output().unwrap();
    assert!(stderr(&output).contains("demo held (token "), "{output:?}");
}

#[test]
fn a_dry_run_shows_and_does_nothing() {
    let place = Place::new();
    let words = ["run", "demo", "--dry-run", "--ttl", "2m", "--at-least", "10s", "--once", "daily"];
    let more = ["--at-most", "1h", "--", "touch", "ran"];
    let output = place.leasehold(words.iter().chain(&more)).output().unwrap();
    let text = stdout(&output);
    assert_eq!((code(output.status), output.stderr.len()), (0, 0), "{output:?}");
    for part in [
        "store    ",
        "key      demo",
        "state    free",
        "once     daily: 2",
        "not done yet",
        "command  touch ran",
        "would    run",
        "40.0s 80.0s ..",
        "+40.0s  first failure",
        "+59.4s  half of the lease is gone",
        "+108.7s  SIGTERM",
        "+118.7s  SIGKILL",
        "+120.0s  the lease ends",
        "--ttl 2m --grace 10s --at-least 10s --at-most 1h\n",
        "10s  earliest that others may enter",
        "1h  SIGTERM, SIGKILL 10s later, exit 124",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!place.path("ran").exists());
    let _holder = place.start(&[], "sleep 60");
    let output = place.leasehold(["run", "demo", "--dry-run", "--json", "--", "true"]).output().unwrap();
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&object["would"], &object["state"]), (&"skip: busy".into(), &"held".into()));
}

#[test]
fn a_line_for_the_shell_needs_no_dashes() {
    let place = Place::new();
    let output = place.leasehold(["run", "demo", "-c", "echo a | tr a b; exit 5"]).output().unwrap();
    assert_eq!((code(output.status), stdout(&output).as_str()), (5, "b\n"), "{output:?}");
    let output = place.leasehold(["run", "-c", "echo $LEASE_NAME", "demo", "--ttl", "9s"]).output().unwrap();
    assert_eq!(stdout(&output), "demo\n", "{output:?}");
    let output = place.leasehold(["run", "demo", "-c", "echo a", "--", "touch", "ran"]).output().unwrap();
    assert_eq!(code(output.status), 64, "{output:?}");
    assert!(!place.path("ran").exists());
    if has("bash") {
        let _holder = place.start(&[], "sleep 60");
        let output = place.leasehold(["run", "demo", "-v", "-c", "echo a"]).output().unwrap();
        assert!(stderr(&output).contains("leasehold run demo -v -c 'echo a' --wait 10m\n"), "{output:?}");
    }
}
