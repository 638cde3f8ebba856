//! The clock counts on while the machine sleeps. A test cannot put the machine to sleep; but in a time namespace
//! of its own the boot clock is ahead of the monotonic one, as it is after a sleep.
#![cfg(target_os = "linux")]

use std::process::Command;

use leasehold_core::Clock;

/// How long the machine of the namespace has slept.
const SLEPT: &str = "100000";
/// Set where the test runs again, inside the namespace.
const INSIDE: &str = "LEASEHOLD_TEST_INSIDE";

/// Seconds since boot, sleep included, by the kernel's own account.
fn uptime() -> f64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let first = text.split(' ').next().and_then(|seconds| seconds.parse().ok());
    first.unwrap_or_else(|| panic!("/proc/uptime begins with no number: {text:?}"))
}

#[test]
fn time_counts_on_while_the_machine_sleeps() {
    if std::env::var_os(INSIDE).is_some() {
        return counts_like_the_kernel();
    }
    counts_like_the_kernel();
    for rights in [&[][..], &["--user", "--map-root-user"]] {
        if let Some(passed) = inside(rights) {
            assert!(passed, "the clock stood still while the machine slept");
            return;
        }
    }
    eprintln!("skipped: no time namespace can be made here, so no sleep can be played");
}

/// Between two looks at what the kernel says; it says it in hundredths of a second.
fn counts_like_the_kernel() {
    let before = uptime();
    let now = Clock::system().now().as_nanos() as f64 / 1e9;
    let after = uptime();
    assert!(before - 0.01 <= now && now <= after + 0.02, "{now} is not between {before} and {after}");
}

/// Runs this test in a namespace, and says whether it passed; `None` where none can be made.
fn inside(rights: &[&str]) -> Option<bool> {
    let test = std::env::current_exe().ok()?;
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(rights).args(["--time", "--boottime", SLEPT]);
        command
    };
    if !unshare().arg("true").status().ok()?.success() {
        return None;
    }
    let again = ["--exact", "time_counts_on_while_the_machine_sleeps", "--nocapture"];
    let status = unshare().arg(test).args(again).env(INSIDE, "1").status().ok()?;
    Some(status.success())
}
