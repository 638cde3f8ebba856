//! The proofs `fight`, `handover` and `once`: programs of the harness, which has real processes.

use std::process::Command;

use super::Proof;
use crate::Result;

const HARNESS: &str = "leasehold-harness";

pub(super) fn fight(proof: &mut Proof) -> Result<bool> {
    program(proof, "fight", &["--processes", "200"], 60)
}

pub(super) fn handover(proof: &mut Proof) -> Result<bool> {
    program(proof, "handover", &[], 30)
}

pub(super) fn once(proof: &mut Proof) -> Result<bool> {
    program(proof, "once", &["--processes", "50"], 60)
}

fn program(proof: &mut Proof, name: &str, args: &[&str], seconds: u64) -> Result<bool> {
    let program = proof.build(HARNESS, name)?;
    let seconds = proof.seconds.unwrap_or(seconds).to_string();
    let seed = proof.seed.to_string();
    let mut command = Command::new(program);
    command.args(args).args(["--seconds", &seconds, "--seed", &seed]);
    proof.run(&mut command)
}
