//! Searches the models: `leasehold-models zookeeper --states 200000 --steps 1000000`; all of them if none is named.
//!
//! Exits with 1 if something was found that must never happen, if a mutant was not found, or if less happened than a
//! model says must happen somewhere.

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use leasehold_models::etcd::{self, Etcd};
use leasehold_models::quorum::{self, Quorum, WON_AGAIN, WON_HIGHER, WON_TWICE};
use leasehold_models::search::Effort;
use leasehold_models::zookeeper::{
    self, ADOPTED, EXPIRED, MOVED, REAPED, RENEWED, WON_BY_WAITING, ZooKeeper,
};

/// Searches the models, and for their mutants.
#[derive(Debug, Parser)]
struct Args {
    /// Which models; all if none is named.
    models: Vec<Which>,
    #[command(flatten)]
    effort: Effort,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    Quorum,
    #[value(name = "zookeeper")]
    ZooKeeper,
    Etcd,
}

fn main() -> ExitCode {
    let Args { models, effort } = Args::parse();
    let mut sound = true;
    for which in Which::value_variants() {
        if models.is_empty() || models.contains(which) {
            sound &= match which {
                Which::Quorum => of_quorum(&effort),
                Which::ZooKeeper => of_zookeeper(&effort),
                Which::Etcd => of_etcd(&effort),
            };
        }
    }
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn of_quorum(effort: &Effort) -> bool {
    let mut sound = effort.search("quorum", "three nodes, two clients", Quorum::small(None));
    let large = "five nodes, three clients, at random";
    sound &= effort.walk("quorum", large, Quorum::large(None), &[WON_TWICE, WON_HIGHER]);
    let again = "three nodes, two clients that ask again, at random";
    sound &= effort.as_for_a_mutant().walk("quorum", again, Quorum::asks_again(), &[WON_AGAIN]);
    for mutant in quorum::Mutant::ALL {
        sound &= effort.finds(mutant, Quorum::for_mutant(mutant));
    }
    sound
}

fn of_zookeeper(effort: &Effort) -> bool {
    let mut sound = effort.search("zookeeper", "two servers, two clients", ZooKeeper::small(None));
    let must_see = [WON_BY_WAITING, ADOPTED, RENEWED, MOVED, EXPIRED, REAPED];
    let large = "three servers, three clients, at random";
    sound &= effort.walk("zookeeper", large, ZooKeeper::large(None), &must_see);
    for mutant in zookeeper::Mutant::ALL {
        sound &= effort.finds(mutant, ZooKeeper::for_mutant(mutant));
    }
    sound
}

fn of_etcd(effort: &Effort) -> bool {
    let mut sound = effort.search("etcd", "two clients", Etcd::small(None));
    let must_see = [etcd::WON_BY_WAITING, etcd::RENEWED, etcd::DOUBTED];
    sound &= effort.walk("etcd", "three clients, at random", Etcd::large(None), &must_see);
    let betrayed = "a leader that ends what its successor keeps, at random";
    sound &= effort.walk("etcd", betrayed, Etcd::betrayed(), &[etcd::BETRAYED]);
    for mutant in etcd::Mutant::ALL {
        sound &= effort.finds(mutant, Etcd::for_mutant(mutant));
    }
    sound
}
