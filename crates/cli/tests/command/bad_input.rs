//! Bad input: an error that says what to type instead, exit 64 or 78, and nothing is run.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::stage::{Place, code, stderr};

/// Words before `-- touch ran` (or whole, if they start with `!`), the exit code, and parts of what is said.
const TABLE: &[(&str, i32, &[&str])] = &[
    ("run a --ttl 2", 64, &["error[LH0003]: --ttl 2: two what? write 2s, 2m or 2h\n"]),
    ("run a --wait 30", 64, &["error[LH0003]: --wait 30: 30 what? write 30s, 30m or 30h\n"]),
    ("run a --ttl -3s", 64, &["LH0003", "cannot be negative"]),
    ("run a --ttl 0", 64, &["LH0005", "at least 1s"]),
    ("run a --ttl 500ms", 64, &["LH0005", "at least 1s"]),
    ("run a --ttl forever", 64, &["LH0003", "not a duration"]),
    ("run a --ttl --grace 2s", 64, &["LH0005", "--ttl: its value is missing"]),
    ("run a --timeout 0", 64, &["LH0005", "never hear an answer"]),
    ("run a --ttl 9s --grace 4s", 64, &["LH0005", "a third of the ttl", "--grace 3s"]),
    ("run a --busy maybe", 64, &["LH0005", "--busy maybe", "write skip or fail"]),
    ("run a --store-down never", 64, &["LH0005", "write fail, skip or run"]),
    ("run a --scope world", 64, &["LH0005", "write host or fleet"]),
    ("run a --color pink", 64, &["LH0005", "auto, always or never"]),
    ("run a --graec 2s", 64, &["error[LH0001]: no flag --graec; did you mean --grace?\n"]),
    ("run a --no-more 1h", 64, &["LH0001", "no flag --no-more"]),
    ("run a --once dayly", 64, &["LH0005", "--once dayly: not a period", "hourly, daily"]),
    ("run a --once 15min", 64, &["LH0005", "not a period"]),
    ("run a --tz Mars/Olympus", 64, &["LH0005", "no time zone", "Europe/Berlin"]),
    ("run a --at-least 2", 64, &["LH0003", "two what?"]),
    ("run a --overdue 0", 64, &["LH0005", "0 would be overdue at once"]),
    ("run a --on-fail maybe", 64, &["LH0005", "write hold or release"]),
    ("run a --slots 3", 64, &["LH0001", "no flag --slots"]),
    ("run a -x", 64, &["LH0001", "-x"]),
    ("run a b", 64, &["LH0001", "no argument b"]),
    ("run", 64, &["LH0004", "which lock?"]),
    ("run -- --ttl", 64, &["LH0004", "which lock?"]),
    ("run a*", 64, &["LH0004", "'*' at position 2", "try      a\n"]),
    ("run lh:x", 64, &["LH0004", "starts with lh:"]),
    ("run -n", 64, &["LH0001", "-n"]),
    ("run a --note x\u{1b}[31m", 64, &["LH0005", "control character"]),
    ("run a --config /nonexistent.toml", 78, &["LH0080", "/nonexistent.toml"]),
    ("run a -s nowhere", 78, &["LH0080", "no store is called \"nowhere\""]),
    ("run a -s mongodb://h", 78, &["LH0102", "known: sqlite:"]),
    ("run a -s sqlite:x?mode=ro", 78, &["LH0102", "has no option \"mode\"", "known: group"]),
    ("run a -s mysql://h", 78, &["LH0102"]),
    (
        "!run report:daily --ttl 2m touch ran",
        64,
        &[
            "error[LH0002]: where does the command start?\n",
            "  you typed   leasehold run report:daily --ttl 2m touch ran\n",
            "  you mean    leasehold run report:daily --ttl 2m -- touch ran\n",
        ],
    ),
    ("!run a", 64, &["LH0002", "you mean    leasehold run a -- COMMAND"]),
    ("!run a --", 64, &["LH0002", "you mean    leasehold run a -- COMMAND"]),
    ("!runn a", 64, &["LH0001", "no command runn; did you mean run?"]),
    ("!lock a", 64, &["LH0001", "did you mean run or acquire?"]),
    ("!unlock a", 64, &["LH0001", "no command unlock", "release (yours) or break (somebody else's)?"]),
    ("run a --nested maybe", 64, &["LH0005", "write reuse or fail"]),
    ("!break a", 64, &["LH0001", "no terminal to ask at", "leasehold break a --token N --yes"]),
    ("!break a --yes", 64, &["LH0001", "--yes needs --token"]),
    ("!break a --token 0 --yes", 64, &["LH0005", "--token 0: a token is a number above 0"]),
    ("!break", 64, &["LH0004", "which lock?"]),
    ("!acquire", 64, &["LH0004", "which lock?"]),
    ("!acquire a --print csh", 64, &["LH0005", "write sh"]),
    ("!acquire a --ttl 2", 64, &["LH0003", "two what?"]),
    ("!acquire a --wait 5s --no-wait", 64, &["LH0001", "exclude each other"]),
    ("!acquire a --while-pid 0", 64, &["LH0005", "--while-pid 0: there is no such process"]),
    ("!acquire a --while-pid x", 64, &["LH0005", "--while-pid x: not a value"]),
    ("!try a --wait 5s", 64, &["LH0001", "no flag --wait"]),
    ("!check", 64, &["LH0005", "which lease? LEASE_NAME is not set", "eval"]),
    ("!check a --left 3", 64, &["LH0003", "three what?"]),
    ("!renew a", 64, &["LH0005", "LEASE_TOKEN is not set"]),
    ("!release a b", 64, &["LH0001", "no argument b"]),
    ("!status", 64, &["LH0004"]),
    ("!status a b", 64, &["LH0001", "no argument b"]),
    ("!run a --ttl -- touch ran", 64, &["LH0005", "--ttl: its value is missing"]),
    ("!explain nothing", 64, &["LH0005", "exit-codes"]),
];

#[test]
fn each_is_told_what_to_type_and_nothing_is_run() {
    let place = Place::bare();
    for (line, expected, parts) in TABLE {
        let words = line.strip_prefix('!').unwrap_or(line).split(' ');
        let command: &[&str] = if line.starts_with('!') { &[] } else { &["--", "touch", "ran"] };
        let output = place.leasehold(words.chain(command.iter().copied())).output().unwrap();
        let text = stderr(&output);
        assert_eq!(code(output.status), *expected, "{line}: {text}");
        for part in *parts {
            assert!(text.contains(part), "{line}: {part:?} is missing in {text}");
        }
        assert!(text.starts_with("error[LH"), "{line}: {text}");
        assert!(output.stdout.is_empty(), "{line}: {output:?}");
        assert!(!place.path("ran").exists(), "{line} ran the command");
    }
    assert!(!place.path("locks.db").exists(), "no store is made for a line that is refused");
}

#[test]
fn blanks_and_bytes_in_a_name_are_refused() {
    let place = Place::bare();
    let output = place.leasehold(["run", "daily report", "--", "touch", "ran"]).output().unwrap();
    let text = stderr(&output);
    assert!(
        text.starts_with("error[LH0004]: \"daily report\" is not a lock name: blank at position 6\n"),
        "{text}"
    );
    assert!(text.contains("try      daily-report   or   daily:report"), "{text}");
    let words =
        ["run".as_ref(), OsStr::from_bytes(b"a\xff"), "--".as_ref(), "touch".as_ref(), "ran".as_ref()];
    let output = place.leasehold(words).output().unwrap();
    assert!(stderr(&output).starts_with("error[LH0004]: "), "{output:?}");
    let output =
        place.leasehold(["run", "daily report", "--raw-name", "--", "touch", "ran"]).output().unwrap();
    assert_eq!(code(output.status), 0, "{output:?}");
    assert!(place.path("ran").exists());
}

#[test]
fn variables_are_checked_like_flags() {
    let place = Place::bare();
    for (name, value, expected, part) in [
        ("LEASEHOLD_TIMEOUT", "5", 64, "error[LH0003]: LEASEHOLD_TIMEOUT: five what?"),
        ("LEASEHOLD_SCOPE", "world", 64, "error[LH0005]: LEASEHOLD_SCOPE: "),
        ("LEASEHOLD_STORE", "nowhere", 78, "(from environment LEASEHOLD_STORE)"),
        ("LEASEHOLD_CONFIG", "/nonexistent.toml", 78, "/nonexistent.toml"),
    ] {
        let mut command = place.leasehold(["run", "a", "--", "touch", "ran"]);
        let output = command.env(name, value).output().unwrap();
        assert_eq!(code(output.status), expected, "{output:?}");
        assert!(stderr(&output).contains(part), "{output:?}");
    }
    let mut command = place.leasehold(["run", "a", "--ttl", "2", "--", "touch", "ran"]);
    let output = command.env("LEASEHOLD_JSON", "1").output().unwrap();
    assert!(stderr(&output).starts_with(r#"{"error":"#), "{output:?}");
    assert!(!place.path("ran").exists());
}

#[test]
fn no_password_is_ever_shown() {
    let place = Place::bare();
    for store in
        ["redis://me:hunter2@h", "redis://me:hunter2@h?x=1", "nope://me:hunter2@h", "redis:me:hunter2@h"]
    {
        for words in [&["run", "a", "--", "true"][..], &["config", "show", "--origin"], &[]] {
            let mut command = place.leasehold(words);
            let output = command.args([] as [&str; 0]).env("LEASEHOLD_STORE", store).output().unwrap();
            assert!(!format!("{output:?}").contains("hunter2"), "{words:?} {store}: {output:?}");
        }
    }
}
