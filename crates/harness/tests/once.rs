//! The tenth part of the great proof of `once`: 50 processes, killed and frozen at random points of what they do.

use std::time::Duration;

use leasehold_harness::once::{Plan, once};

const SECONDS: u64 = 6;

#[tokio::test]
async fn fifty_processes_that_are_killed_at_random_have_each_effect_once() {
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan {
        doer: env!("CARGO_BIN_EXE_doer").into(),
        processes: 50,
        lasting: Duration::from_secs(SECONDS),
        ttl: Duration::from_secs(1),
        seed: 1,
    };
    let outcome = once(&plan, folder.path()).await.unwrap();
    println!("{outcome}");
    outcome.judge(SECONDS).unwrap();
}
