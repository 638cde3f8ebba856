//! Lets many processes do one thing after the other, each once, while they are killed and frozen, and checks the books.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use leasehold_harness::once::{Plan, once};
use leasehold_harness::puppet::Trouble;

/// Many processes do each of many things once; they are killed and frozen at random points.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many processes at once.
    #[arg(long, default_value_t = 50)]
    processes: u32,
    /// For how long.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The ttl, in milliseconds.
    #[arg(long, default_value_t = 1000)]
    ttl_ms: u64,
    /// Where to leave the databases, in a new folder.
    #[arg(long)]
    keep: Option<PathBuf>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Trouble> {
    let Arguments { processes, seconds, ttl_ms, keep, seed } = Arguments::parse();
    let folder = tempfile::tempdir()?;
    let place = keep.as_deref().unwrap_or(folder.path());
    std::fs::create_dir_all(place)?;
    let doer = leasehold_harness::beside("doer")?;
    let (lasting, ttl) = (Duration::from_secs(seconds), Duration::from_millis(ttl_ms));
    let outcome = once(&Plan { doer, processes, lasting, ttl, seed }, place).await?;
    println!("{outcome}");
    outcome.judge(seconds)
}
