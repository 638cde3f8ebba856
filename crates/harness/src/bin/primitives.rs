//! Runs random programs against every primitive on each store, and checks each history.

use clap::Parser;
use leasehold_conformance::Check;
use leasehold_harness::primitives::{
    NAMES, Site, cluster, etcd, etcd_with_faults, memory_with_faults, prove_from, quorum, quorum_with_faults,
    redis, redis_with_faults, sqlite, zookeeper, zookeeper_with_faults,
};

/// Random programs against every primitive; each history must be linearizable.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many histories on memory with faults.
    #[arg(long, default_value_t = 10_000)]
    memory: u64,
    /// How many on SQLite.
    #[arg(long, default_value_t = 100)]
    sqlite: u64,
    /// How many on a Redis, and again as many with faults.
    #[arg(long, default_value_t = 1000)]
    redis: u64,
    /// How many on a quorum of five Redis, and again as many with faults.
    #[arg(long, default_value_t = 300)]
    quorum: u64,
    /// How many on an etcd, and again as many with faults.
    #[arg(long, default_value_t = 300)]
    etcd: u64,
    /// How many on a ZooKeeper, and again as many with faults.
    #[arg(long, default_value_t = 300)]
    zookeeper: u64,
    /// The seed of the first run; each run takes the next.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> Check {
    let Arguments {
        memory,
        sqlite: on_sqlite,
        redis: on_redis,
        quorum: on_quorum,
        etcd: on_etcd,
        zookeeper: on_zookeeper,
        seed,
    } = Arguments::parse();
    say(&memory_with_faults(), seed, memory, true)?;
    say(&sqlite(), seed, on_sqlite, false)?;
    if on_redis > 0 {
        say(&redis()?, seed, on_redis, false)?;
        say(&redis_with_faults()?, seed, on_redis, true)?;
        say(&cluster()?, seed, on_redis, false)?;
    }
    if on_quorum > 0 {
        say(&quorum()?, seed, on_quorum, false)?;
        say(&quorum_with_faults()?, seed, on_quorum, true)?;
    }
    if on_etcd > 0 {
        say(&etcd()?, seed, on_etcd, false)?;
        say(&etcd_with_faults()?, seed, on_etcd, true)?;
    }
    if on_zookeeper > 0 {
        say(&zookeeper()?, seed, on_zookeeper, false)?;
        say(&zookeeper_with_faults()?, seed, on_zookeeper, true)?;
    }
    Ok(())
}

fn say(site: &impl Site, seed: u64, histories: u64, faults: bool) -> Check {
    if histories == 0 {
        return Ok(());
    }
    let traffic = prove_from(site, seed, histories.div_ceil(NAMES as u64))?;
    println!("{}, from seed {seed}: {traffic}", site.name());
    traffic.judge(faults)
}
