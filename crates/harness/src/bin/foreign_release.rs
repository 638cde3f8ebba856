//! Measures how late it is noticed that a client of another kind has given a lock back, and what the waiting costs.

use std::time::Duration;

use clap::Parser;
use leasehold_harness::foreign_release::{BOUND, Manner, measure};
use leasehold_harness::handover::quantile;
use leasehold_harness::puppet::Trouble;
use leasehold_harness::servers::NoServer;

/// Waiters for a lock that a foreign client holds, with keyspace events and without, beside those who poll blindly.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many wait at once.
    #[arg(long, value_delimiter = ',', default_value = "1,16,128")]
    waiters: Vec<usize>,
    /// For how long, in all.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Trouble> {
    let Arguments { waiters, seconds, seed } = Arguments::parse();
    fastrand::seed(seed);
    let parts = u32::try_from(waiters.len() * Manner::ALL.len())?;
    let lasting = Duration::from_secs(seconds) / parts.max(1);
    println!(
        "waiters  manner                rounds  noticed after: p50      p99      max   requests/s while waiting"
    );
    let mut late = None;
    for count in waiters {
        for manner in Manner::ALL {
            let measured = match measure(manner, count, lasting).await {
                Err(error) if error.downcast_ref::<NoServer>().is_some() => {
                    println!("skipped: {error}");
                    return Ok(());
                }
                measured => measured?,
            };
            let at = |share| quantile(&measured.delays, share);
            println!(
                "{count:>7}  {:20} {:>7} {:>20.1?} {:>8.1?} {:>8.1?} {:>10.0}",
                manner.word(),
                measured.delays.len(),
                at(0.5),
                at(0.99),
                at(1.0),
                measured.requests_per_second
            );
            if manner != Manner::Blind && at(1.0) > BOUND {
                late = Some(at(1.0));
            }
        }
    }
    match late {
        Some(late) => {
            Err(format!("noticed after {late:?}, later than the {BOUND:?} that are promised").into())
        }
        None => Ok(()),
    }
}
