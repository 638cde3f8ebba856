//! The store, held to the contract in real time, since etcd has a clock of its own which no test can set: on one server,
//! on three members, and on the version that comes in a Python package.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use leasehold_conformance::{Check, Fixture, Suite};
use leasehold_etcd::EtcdStore;
use leasehold_harness::servers::etcd::{Etcd, Members, NEWER, url};
use leasehold_harness::servers::{NoServer, Server, find};

/// What the cases of one suite share: each has a prefix of its own.
struct Cluster {
    url: String,
    _server: Option<Server>,
    _members: Option<Members>,
}

impl Cluster {
    fn one(etcd: Etcd) -> Result<Self, NoServer> {
        let server = etcd.start()?;
        Ok(Self { url: url(&server), _server: Some(server), _members: None })
    }

    fn three() -> Result<Self, NoServer> {
        let members = Members::start(3, &Etcd::default())?;
        members.settled()?;
        Ok(Self { url: members.url(""), _server: None, _members: Some(members) })
    }
}

/// Started by the first case that needs it, and ended by `main`: what is static is never dropped.
type Shared = Arc<Mutex<Option<Cluster>>>;

fn main() -> ExitCode {
    let all: [Shared; 3] = std::array::from_fn(|_| Shared::default());
    let newer = || Cluster::one(Etcd::default().program(NEWER));
    let ended = Suite::all([
        suite("etcd", "etcd", &all[0], || Cluster::one(Etcd::default())).as_one(),
        suite("three members of etcd", "etcd", &all[1], Cluster::three).called("members").a_tenth().as_one(),
        suite("etcd 3.5", NEWER, &all[2], newer).called("newer").a_tenth().as_one(),
    ]);
    for shared in all {
        shared.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
    ended
}

fn suite(
    name: &str,
    program: &'static str,
    shared: &Shared,
    start: fn() -> Result<Cluster, NoServer>,
) -> Suite {
    let missing = find(program).is_none().then(|| format!("there is no {program} here"));
    let shared = shared.clone();
    let subject = move || {
        let shared = shared.clone();
        async move { fixture(&shared, start) }
    };
    Suite::new(name, subject).unless(missing).as_one()
}

/// Two clients of keys that nobody else has.
fn fixture(shared: &Shared, start: fn() -> Result<Cluster, NoServer>) -> Check<Fixture> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let cluster = match &mut *shared {
        Some(cluster) => cluster,
        none => none.insert(start()?),
    };
    let url = format!("{}/case{}", cluster.url, NEXT.fetch_add(1, Ordering::Relaxed)).parse().unwrap();
    Ok(Fixture::new(EtcdStore::open(&url)?).second(EtcdStore::open(&url)?))
}
