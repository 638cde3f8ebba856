//! Lets each fault befall real servers while clients fight for its locks, and judges what they saw.

use std::time::Duration;

use clap::Parser;
use leasehold_conformance::{Check, Failure};
use leasehold_harness::campaign::{
    CLUSTER, ETCD, FAULTS, Fault, QUORUM, RECOVERY, SENTINEL, SPLIT, TTL, Unfought, ZOOKEEPER, campaign,
};

/// Faults of servers and of the ways to them, each with the checker.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only this fault, of whichever servers.
    #[arg(long)]
    fault: Option<String>,
    /// What befalls five servers that are a quorum, instead of one server.
    #[arg(long, conflicts_with_all = ["fault", "split", "cluster"])]
    quorum: bool,
    /// What befalls the network of several servers and their clients.
    #[arg(long, conflicts_with_all = ["fault", "cluster"])]
    split: bool,
    /// What befalls a cluster.
    #[arg(long, conflicts_with = "fault")]
    cluster: bool,
    /// Servers that sentinels have take over from each other.
    #[arg(long, conflicts_with_all = ["fault", "quorum", "split", "cluster"])]
    sentinel: bool,
    /// What befalls etcd.
    #[arg(long, conflicts_with_all = ["fault", "quorum", "split", "cluster", "sentinel"])]
    etcd: bool,
    /// What befalls ZooKeeper.
    #[arg(long, conflicts_with_all = ["fault", "quorum", "split", "cluster", "sentinel", "etcd"])]
    zookeeper: bool,
    /// For how long each strikes.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// The seed of the first; each takes the next.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> Check {
    let Arguments { fault, quorum, split, cluster, sentinel, etcd, zookeeper, seconds, seed } =
        Arguments::parse();
    let chosen: Vec<&'static Fault> = match &fault {
        None if quorum => QUORUM.iter().collect(),
        None if split => SPLIT.iter().collect(),
        None if sentinel => SENTINEL.iter().collect(),
        None if cluster => CLUSTER.iter().collect(),
        None if etcd => ETCD.iter().collect(),
        None if zookeeper => ZOOKEEPER.iter().collect(),
        None => FAULTS.iter().collect(),
        Some(name) => {
            let names: Vec<_> = Fault::all().map(|fault| fault.name).collect();
            let unknown = || Failure::new(format!("there is no fault {name}, but {}", names.join(", ")));
            vec![Fault::named(name).ok_or_else(unknown)?]
        }
    };
    let ttl = chosen.first().map_or(TTL, |fault| fault.ttl);
    println!("ttl {ttl:?}, {seconds} s of each fault; well again within {RECOVERY} ttl");
    let mut bad = 0;
    for (number, fault) in chosen.into_iter().enumerate() {
        // One fault by itself is played again by the seed that was told.
        match campaign(fault, Duration::from_secs(seconds), seed.wrapping_add(number as u64)) {
            Ok(fought) => println!("good {fought}"),
            Err(Unfought::Missing(tool)) => return Err(Failure::new(format!("there is no {tool} here"))),
            Err(Unfought::Broken(failure)) => {
                bad += 1;
                println!("BAD  {failure}");
            }
        }
    }
    if bad == 0 { Ok(()) } else { Err(Failure::new(format!("{bad} faults broke a promise"))) }
}
