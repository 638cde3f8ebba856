//! The proof `points`: `run` and its guard are killed at many more moments than the usual tests have time for.

use std::process::Command;

use super::Proof;
use crate::Result;

/// Right before 50 system calls of each victim; and at 100 moments of each, chosen by time.
const TESTS: [&str; 2] = [
    "points_injected::no_child_without_a_lease_at_whatever_call_run_and_guard_are_killed",
    "points_timed::no_child_without_a_lease_wherever_run_and_guard_are_killed",
];

pub(super) fn run(proof: &mut Proof) -> Result<bool> {
    let mut good = true;
    for test in TESTS {
        let mut command = Command::new("cargo");
        command.args(["test", "--quiet", "-p", "leasehold-cli", "--test", "command", "--", "--exact", test]);
        // A test that passes is heard, too: it says where its kills fell.
        command.arg("--nocapture");
        command.env("LEASEHOLD_PROVE", "1").env("LEASEHOLD_SEED", proof.seed.to_string());
        good &= proof.run(&mut command)?;
    }
    Ok(good)
}
