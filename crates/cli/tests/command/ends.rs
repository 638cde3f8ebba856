//! Check 1 and the first part of check 2: how a command starts and ends, and what it is given.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Stdio;

use crate::stage::{Place, Running, code, stderr, stdout};

#[test]
fn check_01_it_ends_like_the_command() {
    let place = Place::new();
    for (script, expected) in
        [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -KILL $$", 137), ("kill -TERM $$", 143)]
    {
        let output = place.leasehold(["run", "demo", "--", "sh", "-c", script]).output().unwrap();
        assert_eq!(code(output.status), expected, "{script}: {output:?}");
        assert!(output.stderr.is_empty() && output.stdout.is_empty(), "{script}: {output:?}");
        assert!(place.is_free("demo"), "{script}");
    }
}

#[test]
fn check_01_a_command_that_cannot_be_started_gives_the_lock_back_at_once() {
    let place = Place::new();
    let plain = place.write("plain", "echo hi\n");
    let orphan = place.write("orphan", "#!/nonexistent/interpreter\n");
    std::fs::set_permissions(&orphan, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    for (command, expected, said) in [
        ("/nonexistent/command", 127, "not found"),
        ("no-such-command-anywhere", 127, "not found"),
        (plain.to_str().unwrap(), 126, "chmod +x"),
        (orphan.to_str().unwrap(), 127, "interpreter"),
    ] {
        let output = place.leasehold(["run", "demo", "--", command]).output().unwrap();
        assert_eq!(code(output.status), expected, "{command}: {output:?}");
        let text = stderr(&output);
        assert!(text.starts_with("error[LH0041]: ") && text.contains(said), "{command}: {text}");
        assert!(place.is_free("demo"), "{command}");
    }
}

#[test]
fn words_arrive_byte_for_byte_and_no_shell_sees_them() {
    let place = Place::new();
    let wild: &[&[u8]] =
        &[b"-v", b"--help", b"--", b"a b", b"", b"$(id)", b"*", b"\n", b"\xff\xfe", b"--ttl"];
    let words = ["run", "demo", "--", "printf", "<%s>"].map(OsString::from);
    let words = words.into_iter().chain(wild.iter().map(|word| OsString::from_vec(word.to_vec())));
    let output = place.leasehold(words).output().unwrap();
    let expected: Vec<u8> = wild.iter().flat_map(|word| [b"<", *word, b">"].concat()).collect();
    assert_eq!(OsStr::from_bytes(&output.stdout), OsStr::from_bytes(&expected));
    assert_eq!(code(output.status), 0);
}

#[test]
fn the_command_sees_its_lease_and_the_configuration_and_no_secret() {
    let place = Place::new();
    let mut command = place.leasehold(["run", "demo", "--ttl", "2m", "--", "env"]);
    command.env("LEASE_TOKEN", "of an outer run").env("LEASEHOLD_NAMESPACE", "prod").env("OTHER", "kept");
    let text = stdout(&command.output().unwrap());
    let value = |name: &str| {
        let mut values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        let value = values.next().unwrap_or_else(|| panic!("{name} is missing in {text}"));
        assert_eq!(values.next(), None, "{name} twice");
        value.to_owned()
    };
    assert_eq!(value("LEASE_NAME"), "demo");
    assert!(value("LEASE_TOKEN").parse::<u64>().unwrap() > 0);
    assert_eq!(value("LEASE_HOLDER").split('/').count(), 3);
    assert_eq!(value("LEASE_TTL_MS"), "120000");
    assert_eq!(value("LEASE_AT_MOST_AT"), "", "there, so that a script may read it under set -u");
    assert_eq!(value("LEASEHOLD_STORE"), place.url());
    assert_eq!(value("OTHER"), "kept");
    // A claim id is 128 bits: as hex, it would be the only word of 32 digits.
    let long = text.split(|c: char| !c.is_ascii_hexdigit()).any(|word| word.len() >= 32);
    assert!(!long, "something as long as a claim id: {text}");
}

#[test]
fn the_command_sees_when_its_own_time_is_over() {
    let place = Place::new();
    let words = ["run", "demo", "--at-most", "1h", "--", "sh", "-c", "echo $LEASE_AT_MOST_AT"];
    let now = || leasehold::Clock::system().wall_micros() / 1_000_000;
    let before = now();
    let text = stdout(&place.leasehold(words).output().unwrap());
    let ends: jiff::Timestamp = text.trim().parse().unwrap();
    let ends = u64::try_from(ends.as_second()).unwrap();
    assert!((before + 3600..=now() + 3600).contains(&ends), "{text}, from {before}");
}

#[test]
fn tokens_rise_from_run_to_run() {
    let place = Place::new();
    let token = || {
        let output =
            place.leasehold(["run", "demo", "--", "sh", "-c", "echo $LEASE_TOKEN"]).output().unwrap();
        stdout(&output).trim().parse::<u64>().unwrap()
    };
    let tokens: Vec<u64> = (0..5).map(|_| token()).collect();
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{tokens:?}");
}

#[test]
fn check_02_stdin_stdout_and_stderr_are_handed_over_untouched() {
    let place = Place::new();
    let mut command = place.leasehold(["run", "demo", "--", "sh", "-c", "cat; echo to-stderr >&2"]);
    command.stdin(Stdio::piped());
    let mut running = Running::of(command);
    running.type_in("piped in\0\u{1}\n");
    let output = running.output();
    assert_eq!(stdout(&output), "piped in\0\u{1}\n");
    assert_eq!(stderr(&output), "to-stderr\n");
    for descriptor in ["0", "1", "2"] {
        let output = place.leasehold(["run", "demo", "--", "test", "-t", descriptor]).output().unwrap();
        assert_eq!(code(output.status), 1, "{descriptor} must not look like a terminal");
    }
}

#[test]
fn a_closed_stderr_changes_nothing() {
    let place = Place::new();
    let script = format!("exec {} -v run demo -- sh -c 'exit 5' 2>&-", crate::stage::BINARY);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script]);
    place.settle(&mut command);
    assert_eq!(code(command.output().unwrap().status), 5);
}
