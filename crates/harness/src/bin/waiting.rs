//! Measures what it takes until the next has a lease of a Redis: for waiters who are told, and for those who poll.

use std::time::Duration;

use clap::Parser;
use leasehold_harness::handover::quantile;
use leasehold_harness::puppet::Trouble;
use leasehold_harness::servers::redis::Redis;
use leasehold_harness::waiting::{Manner, Plan, measure};

/// One holds it and so many wait, each a client of its own: both manners, one after the other, in one run.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many wait.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 128])]
    waiters: Vec<usize>,
    /// For how long each is measured, at the most.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// How many hand-offs, at the most.
    #[arg(long, default_value_t = 1000)]
    hand_offs: usize,
    /// How long each holds it, in microseconds.
    #[arg(long, default_value_t = 5000)]
    hold_us: u64,
    /// How often a poller asks, in milliseconds.
    #[arg(long, default_value_t = 50)]
    poll_ms: u64,
    /// What is measured hangs on no choice.
    #[arg(long, hide = true)]
    seed: Option<u64>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Trouble> {
    let Arguments { waiters, seconds, hand_offs, hold_us, poll_ms, seed: _ } = Arguments::parse();
    let server = Redis::default().start()?;
    let polls = Manner::Polls(Duration::from_millis(poll_ms));
    for waiters in waiters {
        let (hold, lasting) = (Duration::from_micros(hold_us), Duration::from_secs(seconds));
        let plan = Plan { waiters, hold, hand_offs, lasting };
        let told = measure(&server, Manner::Told, plan).await?;
        let polled = measure(&server, polls, plan).await?;
        println!("{waiters:>3} wait: told               {told}");
        println!("          polls every {poll_ms:>3} ms  {polled}");
        let times = |of: &[Duration], others: &[Duration], share| {
            quantile(others, share).as_secs_f64() / quantile(of, share).as_secs_f64()
        };
        println!(
            "          polling takes {:.1} times as long (p99 {:.1}), its waits last {:.1} times as long (p99 {:.1}), \
             and it sends {:.1} times the commands",
            times(&told.gaps, &polled.gaps, 0.5),
            times(&told.gaps, &polled.gaps, 0.99),
            times(&told.waits, &polled.waits, 0.5),
            times(&told.waits, &polled.waits, 0.99),
            polled.sent / told.sent,
        );
        if told.gaps.is_empty() || polled.gaps.is_empty() {
            return Err("nothing was handed over".into());
        }
    }
    Ok(())
}
