//! Measures how long it takes from a release until a waiter in another process has the lease.

use std::time::Duration;

use clap::Parser;
use leasehold_harness::fight::{Fight, fight};
use leasehold_harness::handover::{handovers, quantile};
use leasehold_harness::puppet::Trouble;

/// Several processes pass one SQLite lock round; nobody is disturbed.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many processes.
    #[arg(long, default_value_t = 2)]
    processes: u32,
    /// For how long.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// How long each holds it at the most, in microseconds.
    #[arg(long, default_value_t = 10_000)]
    hold_us: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Trouble> {
    let Arguments { processes, seconds, hold_us, seed } = Arguments::parse();
    let folder = tempfile::tempdir()?;
    let plan = Fight {
        store: None,
        contender: leasehold_harness::beside("contender")?,
        processes,
        lasting: Duration::from_secs(seconds),
        ttl: Duration::from_secs(30),
        hold: Duration::from_micros(hold_us),
        rest: Duration::ZERO,
        fair: true,
        disturbed: false,
        calm: Duration::from_millis(500),
        seed,
    };
    let fought = fight(&plan, folder.path()).await?;
    let times = handovers(&fought.history);
    let at = |share| quantile(&times, share);
    println!(
        "{} hand-overs between {processes} processes: p50 {:.2?}  p90 {:.2?}  p99 {:.2?}  max {:.2?}",
        times.len(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0)
    );
    if times.is_empty() { Err("nothing was handed over".into()) } else { Ok(()) }
}
