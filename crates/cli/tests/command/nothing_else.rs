//! Check 23: an empty environment is enough, and nothing in the current directory is opened.

use std::process::Command;

use crate::stage::{BINARY, Place, code, has, stdout};

#[test]
fn check_23_an_empty_environment_is_enough() {
    let place = Place::bare();
    let mut command = place.leasehold(["run", "demo", "-s", &place.store(), "--", "env"]);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", place.path(""));
    // Without it the socket lies in the state directory, which for root is the machine's own.
    command.env("XDG_RUNTIME_DIR", place.path(""));
    let output = command.output().unwrap();
    assert_eq!(code(output.status), 0, "{output:?}");
    assert!(stdout(&output).contains("LEASE_TOKEN="), "{output:?}");
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
