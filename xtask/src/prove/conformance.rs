//! The proof `conformance`: the suite with ten times as many random operations.

use std::process::Command;

use super::Proof;
use crate::Result;

/// By how much the suite multiplies its random operations.
const TIMES: &str = "10";

pub(super) fn run(proof: &mut Proof) -> Result<bool> {
    let mut command = Command::new("cargo");
    // Through cargo test: nextest would end what takes minutes.
    command.args([
        "test",
        "--quiet",
        "--workspace",
        "--all-features",
        "--no-fail-fast",
        "--test",
        "conformance",
    ]);
    command.env("LEASEHOLD_PROVE", TIMES).env("LEASEHOLD_SEED", proof.seed.to_string());
    proof.run(&mut command)
}
