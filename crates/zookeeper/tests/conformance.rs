//! The store, held to the contract in real time, since servers have clocks of their own which no test can set: on one
//! server, and on three members of an ensemble.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_conformance::{Check, Fixture, Suite};
use leasehold_harness::servers::NoServer;
use leasehold_harness::servers::zookeeper::{Ensemble, ZooKeeper, jar};
use leasehold_zookeeper::ZooKeeperStore;

/// Started by the first case that needs it, and ended by `main`: what is static is never dropped.
type Shared = Arc<Mutex<Option<Ensemble>>>;

fn main() -> ExitCode {
    let (one, three) = (Shared::default(), Shared::default());
    let ended = Suite::all([
        suite("zookeeper", 1, &one).as_one(),
        suite("three members of zookeeper", 3, &three).called("members").a_tenth().as_one(),
    ]);
    for shared in [one, three] {
        shared.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
    ended
}

fn suite(name: &str, members: usize, shared: &Shared) -> Suite {
    let missing = (!jar().is_file()).then(|| "there is no zookeeper here".to_owned());
    let shared = shared.clone();
    let subject = move || {
        let shared = shared.clone();
        async move { fixture(&shared, members) }
    };
    Suite::new(name, subject)
        .unless(missing)
        .known_broken("c01_a_released_id_is_spent", SPENT)
        .known_broken("c01_a_withdrawn_id_is_spent", SPENT)
}

/// Each client remembers what it let go. For others a sign is left only where an id was not found, or every release would
/// write two nodes, of which one stays.
const SPENT: &str = "another client, which nobody asked to state that id, would take it for new";

/// Two clients of nodes that nobody else has.
fn fixture(shared: &Shared, members: usize) -> Check<Fixture> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let servers = match &mut *shared {
        Some(servers) => servers,
        none => none.insert(start(members)?),
    };
    let url = servers.url(&format!("/case{}", NEXT.fetch_add(1, Ordering::Relaxed))).parse().unwrap();
    Ok(Fixture::new(ZooKeeperStore::open(&url)?).second(ZooKeeperStore::open(&url)?))
}

fn start(members: usize) -> Result<Ensemble, NoServer> {
    let servers = Ensemble::start(members, &ZooKeeper::default().line("maxSessionTimeout=60000"))?;
    servers.settled()?;
    Ok(servers)
}
