//! Random programs against every primitive, one line for each store: a part of what `cargo xtask prove primitives`
//! runs.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use leasehold_harness::primitives::{
    Site, cluster, etcd, etcd_with_faults, memory_with_faults, prove, quorum, quorum_with_faults, redis,
    redis_with_faults, sqlite, zookeeper, zookeeper_with_faults,
};
use leasehold_harness::servers::NoServer;

/// So many histories, each linearizable, if there is such a store here.
fn linearizable(site: Result<impl Site, NoServer>, histories: u64, faults: bool) {
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
fn memory_with_faults_is_linearizable() {
    linearizable(Ok(memory_with_faults()), 1000, true);
}

#[test]
fn sqlite_is_linearizable() {
    linearizable(Ok(sqlite()), 10, false);
}

#[test]
fn redis_is_linearizable() {
    linearizable(redis(), 100, false);
}

#[test]
fn redis_with_faults_is_linearizable() {
    linearizable(redis_with_faults(), 100, true);
}

#[test]
fn redis_cluster_is_linearizable() {
    linearizable(cluster(), 40, false);
}

#[test]
fn a_quorum_is_linearizable() {
    linearizable(quorum(), 30, false);
}

#[test]
fn a_quorum_with_faults_is_linearizable() {
    linearizable(quorum_with_faults(), 30, true);
}

#[test]
fn etcd_is_linearizable() {
    linearizable(etcd(), 40, false);
}

#[test]
fn etcd_with_faults_is_linearizable() {
    linearizable(etcd_with_faults(), 40, true);
}

#[test]
fn zookeeper_is_linearizable() {
    linearizable(zookeeper(), 40, false);
}

#[test]
fn zookeeper_with_faults_is_linearizable() {
    linearizable(zookeeper_with_faults(), 40, true);
}
