//! Drops acquires after each of their polls, on a real Redis server, and looks for what they left.

use clap::Parser;
use leasehold_conformance::{Check, Failure};
use leasehold_harness::cancelled::{Dropped, cancelled};

/// Acquires whose futures are dropped after each of their polls leave nothing behind.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many.
    #[arg(long, default_value_t = 10_000)]
    tries: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> Check {
    let Arguments { tries, seed } = Arguments::parse();
    let Some(Dropped { dropped, done, looks }) = cancelled(tries, seed)? else {
        return Err(Failure::new("there is no redis-server here"));
    };
    println!(
        "{tries} acquires: {dropped} were dropped before they were done, {done} done by then; looked {looks} times, \
         and in the end at all keys: nothing was left; seed {seed}"
    );
    Ok(())
}
