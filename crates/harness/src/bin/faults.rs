//! Lets each fault befall a real Redis server while clients fight for its locks, and judges what they saw.

use std::time::Duration;

use clap::Parser;
use leasehold_conformance::{Check, Failure};
use leasehold_harness::campaign::{CLUSTER, FAULTS, Fault, RECOVERY, TTL, Unfought, campaign, quorum, split};

/// Faults of a Redis server and of the ways to it, each with the checker.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only this fault; each in its turn by default.
    #[arg(long)]
    fault: Option<String>,
    /// What befalls five servers that are a quorum, instead.
    #[arg(long, conflicts_with = "fault")]
    quorum: bool,
    /// What befalls a network of five servers and their clients, instead.
    #[arg(long, conflicts_with_all = ["fault", "quorum"])]
    split: bool,
    /// What befalls a cluster, one after the other, instead.
    #[arg(long, conflicts_with_all = ["quorum", "split"])]
    cluster: bool,
    /// For how long each strikes.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// The seed of the first; each takes the next.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> Check {
    let Arguments { fault, quorum: of_quorum, split: of_network, cluster, seconds, seed } =
        Arguments::parse();
    if of_quorum || of_network {
        let lasting = Duration::from_secs(seconds);
        let fought = if of_quorum { quorum(lasting, seed) } else { split(lasting, seed) };
        println!("{}", fought.map_err(|error| Failure::new(error.to_string()))?);
        return Ok(());
    }
    let chosen: Vec<&'static Fault> = match &fault {
        None => if cluster { CLUSTER } else { FAULTS }.iter().collect(),
        Some(name) => {
            let names: Vec<_> = FAULTS.iter().chain(CLUSTER).map(|fault| fault.name).collect();
            let unknown = || Failure::new(format!("there is no fault {name}, but {}", names.join(", ")));
            vec![Fault::named(name).ok_or_else(unknown)?]
        }
    };
    println!("ttl {TTL:?}, {seconds} s of each fault; well again within {RECOVERY} ttl");
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
