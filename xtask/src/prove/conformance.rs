//! The proof `conformance`: many more random operations on each store, each go from seeds of its own.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::Proof;
use crate::Result;
use crate::stopwatch::Stopwatch;
use crate::tally::Tally;

/// How many goes, unless it is told for how long.
const GOES: u64 = 10;
/// How many rounds a go has: as many as the usual tests, since the suite takes what lasts minutes for hung.
const ROUNDS: u64 = 60;
/// Part of the names of the cases that choose their operations at random.
const RANDOM: &str = "random";

pub(super) fn run(proof: &mut Proof) -> Result<bool> {
    let watch = Stopwatch::start();
    let mut go = 0;
    while match proof.seconds {
        Some(seconds) => go == 0 || watch.elapsed() < Duration::from_secs(seconds),
        None => go < GOES,
    } {
        // Round `n` of a go takes the seed `n` above the first.
        if !one_go(proof, proof.seed.wrapping_add(go * ROUNDS))? {
            return Ok(false);
        }
        go += 1;
    }
    proof.say(&format!("rounds     {} on each store", go * ROUNDS))?;
    Ok(true)
}

fn one_go(proof: &mut Proof, seed: u64) -> Result<bool> {
    let mut command = Command::new("cargo");
    // Through cargo test: what the suite says of its rounds is shown there.
    command.args([
        "test",
        "--quiet",
        "--workspace",
        "--all-features",
        "--no-fail-fast",
        "--test",
        "conformance",
    ]);
    command.args(["--", RANDOM]).current_dir(proof.root()).stdin(Stdio::null());
    command.env("LEASEHOLD_ROUNDS", ROUNDS.to_string()).env("LEASEHOLD_SEED", seed.to_string());
    let output = command.output()?;
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let tally = Tally::of(&said);
    proof.say(&format!("from seed {seed}: {tally}"))?;
    if output.status.success() && tally.passed > 0 {
        return Ok(true);
    }
    proof.say(&said)?;
    Ok(false)
}
