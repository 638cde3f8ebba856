//! The store, held to the contract in real time: etcd has a clock of its own, which no test can set.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_conformance::{Check, Fixture, Suite};
use leasehold_etcd::EtcdStore;
use leasehold_harness::servers::NoServer;
use leasehold_harness::servers::etcd::{Etcd, url};

fn main() -> ExitCode {
    let (at, missing, server) = match Etcd::default().start() {
        Ok(server) => (url(&server), None, Some(server)),
        Err(NoServer::Missing(tool)) => (String::new(), Some(format!("there is no {tool} here")), None),
        Err(error) => panic!("{error}"),
    };
    let suite = Suite::new("etcd", move || {
        let at = at.clone();
        async move { fixture(&at) }
    });
    let ended = Suite::all([suite.unless(missing).as_one()]);
    drop(server);
    ended
}

/// Two clients of keys that nobody else has.
fn fixture(at: &str) -> Check<Fixture> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let prefix = NEXT.fetch_add(1, Ordering::Relaxed);
    let url = format!("{at}/case{prefix}").parse().unwrap();
    Ok(Fixture::new(EtcdStore::open(&url)?).second(EtcdStore::open(&url)?))
}
