//! Lets many processes fight for one lock while holders are killed and frozen, and checks what happened.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use leasehold_conformance::check_history;
use leasehold_harness::fight::{Fight, fight};
use leasehold_harness::handover::{handovers, quantile};
use leasehold_harness::puppet::Trouble;
use leasehold_harness::servers::elected::{Elected, Maker};

/// Many processes fight for one lock, of SQLite unless told otherwise; holders and waiters are killed and frozen at random.
#[derive(Debug, Parser)]
struct Arguments {
    /// Of an etcd instead: its leases last two seconds at least.
    #[arg(long)]
    etcd: bool,
    /// Of a ZooKeeper instead.
    #[arg(long, conflicts_with = "etcd")]
    zookeeper: bool,
    /// How many processes at once.
    #[arg(long, default_value_t = 200)]
    processes: u32,
    /// For how long.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The ttl, in milliseconds.
    #[arg(long, default_value_t = 1000)]
    ttl_ms: u64,
    /// How long each holds it at the most, in microseconds.
    #[arg(long, default_value_t = 2000)]
    hold_us: u64,
    /// Keep strict order.
    #[arg(long)]
    fair: bool,
    /// Where to leave the database and the histories, in a new folder.
    #[arg(long)]
    keep: Option<PathBuf>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Trouble> {
    let Arguments { etcd, zookeeper, processes, seconds, ttl_ms, hold_us, fair, keep, seed } =
        Arguments::parse();
    let folder = tempfile::tempdir()?;
    let place = keep.as_deref().unwrap_or(folder.path());
    std::fs::create_dir_all(place)?;
    let maker = etcd.then_some(Maker::Etcd).or(zookeeper.then_some(Maker::ZooKeeper));
    let server = maker.map(|maker| Elected::start(maker, 1)).transpose()?;
    let plan = Fight {
        store: server.as_ref().map(Elected::url),
        contender: leasehold_harness::beside("contender")?,
        processes,
        lasting: Duration::from_secs(seconds),
        ttl: Duration::from_millis(ttl_ms),
        hold: Duration::from_micros(hold_us),
        rest: if maker.is_some() { Duration::from_millis(400) } else { Duration::ZERO },
        fair,
        disturbed: true,
        calm: Duration::from_millis(if maker.is_some() { 6000 } else { 500 }),
        seed,
    };
    let fought = fight(&plan, place).await?;
    let report = check_history(&fought.history);
    println!("{report}");
    println!("{:.0} grants a second", report.grants as f64 / plan.lasting.as_secs_f64());
    let times = handovers(&fought.history);
    println!(
        "killed {}, frozen {}; {} changes of process: p50 {:.2?}, p99 {:.2?}; left in the store: {}; the watcher \
         missed its time by {:.0?} at the most",
        fought.kills,
        fought.freezes,
        times.len(),
        quantile(&times, 0.5),
        quantile(&times, 0.99),
        fought.orphans,
        fought.starved,
    );
    fought.judge(&report, &plan)
}
