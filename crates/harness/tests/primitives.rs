//! Random programs against every primitive, one line for each store: a part of what `cargo xtask prove primitives`
//! runs.

use leasehold_harness::primitives::{Site, memory_with_faults, prove, redis, redis_with_faults, sqlite};
use leasehold_harness::servers::NoServer;

#[test]
fn memory_with_faults_is_linearizable() {
    let traffic = prove(&memory_with_faults(), 1000).unwrap();
    println!("{traffic}");
    traffic.judge(true).unwrap();
}

#[test]
fn sqlite_is_linearizable() {
    let traffic = prove(&sqlite(), 10).unwrap();
    println!("{traffic}");
    traffic.judge(false).unwrap();
}

/// So many histories on a server, if there is one.
fn on_server(site: Result<impl Site, NoServer>, histories: u64, faults: bool) {
    let site = match site {
        Ok(site) => site,
        Err(NoServer::Missing(tool)) => return eprintln!("skipped: there is no {tool} here"),
        Err(error) => panic!("{error}"),
    };
    let traffic = prove(&site, histories).unwrap();
    println!("{traffic}");
    traffic.judge(faults).unwrap();
}

#[test]
fn redis_is_linearizable() {
    on_server(redis(), 100, false);
}

#[test]
fn redis_with_faults_is_linearizable() {
    on_server(redis_with_faults(), 100, true);
}
