//! Check 23: an empty environment is enough, and nothing in the current directory is opened.

use std::process::Command;

use crate::stage::{BINARY, Place, code, has, stderr, stdout};

#[test]
fn check_23_an_empty_environment_is_enough() {
    let place = Place::bare();
    let mut command = place.leasehold(["run", "demo", "-s", &place.url(), "--", "env"]);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", place.path(""));
    // Without it the socket lies in the state directory, which for root is the machine's own.
    command.env("XDG_RUNTIME_DIR", place.path(""));
    let output = command.output().unwrap();
    assert_eq!(code(output.status), 0, "{output:?}");
    assert!(stdout(&output).contains("LEASE_TOKEN="), "{output:?}");
}

/// As a job of cron's on a machine that somebody has set up: skipped, and said so, where the machine's folder cannot be
/// another for one process.
#[test]
fn check_23_the_configuration_of_the_machine_is_enough() {
    let place = Place::new();
    let url = place.url();
    place.write("etc/leasehold/config.toml", &format!("store = 'main'\n[stores.main]\nurl = '{url}'\n"));
    let mut command = Command::new("unshare");
    let script = "mount --bind etc /etc || exit 99; exec env -i PATH=/usr/bin:/bin HOME=\"$HOME\" \
                  XDG_RUNTIME_DIR=\"$HOME\" \"$LH\" run demo -- sh -c 'echo $LEASE_TOKEN'";
    command.args(["--mount", "sh", "-c", script]);
    place.settle(&mut command);
    let output = command.env_remove("LEASEHOLD_STORE").env("LH", BINARY).output().unwrap();
    let text = stderr(&output);
    if text.starts_with("unshare: ") || code(output.status) == 99 {
        eprintln!("skipped: nothing may be mounted here: {}", text.trim());
        return;
    }
    assert_eq!((code(output.status), text.as_str()), (0, ""), "{output:?}");
    assert!(stdout(&output).trim().parse::<u64>().is_ok(), "{output:?}");
    assert!(!place.store.records("demo").is_empty(), "it was run under another store");
}

#[test]
fn check_23_nothing_in_the_current_directory_is_opened() {
    if !has("strace") {
        return;
    }
    let place = Place::new();
    let here = place.path("here");
    for bait in
        ["config.toml", "leasehold.toml", ".leasehold.toml", ".env", "leasehold/config.toml", ".leaseholdrc"]
    {
        place.write(&format!("here/{bait}"), "store = 'sqlite:/stolen.db'\n[run]\nttl = '7s'\n");
    }
    let trace = place.path("trace");
    let mut command = Command::new("strace");
    // Only leasehold itself, until its command starts: what that opens is its own affair.
    command.args([
        "-f",
        "-e",
        "trace=%file",
        "-o",
        trace.to_str().unwrap(),
        BINARY,
        "run",
        "demo",
        "--",
        "/bin/true",
    ]);
    place.settle(&mut command);
    let output = command.current_dir(&here).output().unwrap();
    assert_eq!(code(output.status), 0, "{output:?}");
    let trace = place.read("trace");
    assert!(trace.contains("/bin/true"), "{trace}");
    // A path after a number is below a folder that is open already, and so is not of the current directory.
    let below = |line: &str| {
        let arguments = line.split_once('(').map_or("", |(_, arguments)| arguments);
        arguments.starts_with(|c: char| c.is_ascii_digit())
    };
    // The second half of a call that was interrupted by another thread's shows what came back, not what was asked.
    let is_call = |line: &&str| !line.contains("execve(") && !line.contains(" resumed>") && !below(line);
    let opened = trace.lines().filter(is_call);
    let paths = opened.filter_map(|line| line.split('"').nth(1));
    for path in paths {
        assert!(path.starts_with('/') || path.is_empty(), "{path} is relative to the current directory");
        assert!(!path.starts_with(here.to_str().unwrap()), "{path} was touched");
    }
    assert!(!trace.contains("getcwd"), "the current directory was asked for");
}
