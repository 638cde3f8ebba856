//! The proof `points`: `run` and its guard are killed at many more moments than the usual tests have time for, on each
//! store.

use std::process::Command;

use super::Proof;
use crate::Result;

/// On which stores.
const TARGETS: [&str; 3] = ["command", "command_redis", "command_etcd"];
/// Right before 50 system calls of each victim; and at 100 moments of each, chosen by time. Clocks that differ, as much as
/// they may.
const TESTS: [&str; 3] = [
    "points_injected::no_child_without_a_lease_at_whatever_call_run_and_guard_are_killed",
    "points_timed::no_child_without_a_lease_wherever_run_and_guard_are_killed",
    "clocks::check_19_five_hosts_that_fire_by_clocks_up_to_50_seconds_apart_run_it_once",
];

pub(super) fn run(proof: &mut Proof) -> Result<bool> {
    let mut good = true;
    for (target, test) in TARGETS.iter().flat_map(|target| TESTS.map(|test| (target, test))) {
        let mut command = Command::new("cargo");
        command.args(["test", "--quiet", "-p", "leasehold-cli", "--test", target, "--", "--exact", test]);
        // A test that passes is heard, too: it says where its kills fell.
        command.arg("--nocapture");
        command.env("LEASEHOLD_PROVE", "1").env("LEASEHOLD_SEED", proof.seed.to_string());
        good &= proof.run(&mut command)?;
    }
    Ok(good)
}
