//! The cluster that tests are given: it comes up, its slots move step by step, and its replicas take over.

use std::time::Duration;

use leasehold_harness::servers::NoServer;
use leasehold_harness::servers::cluster::{Cluster, Shape};
use leasehold_harness::servers::redis::ask;

fn cluster() -> Option<Cluster> {
    match Cluster::start(&Shape { node_timeout: Duration::from_secs(1), ..Shape::default() }) {
        Ok(cluster) => Some(cluster),
        Err(NoServer::Missing(tool)) => {
            eprintln!("skipped: there is no {tool} here");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn it_comes_up_and_a_slot_moves_step_by_step() {
    let Some(cluster) = cluster() else { return };
    assert_eq!(cluster.servers.len(), 6);
    let slot = cluster.slot_of("{x}:1").unwrap();
    let from = cluster.master_of(slot).unwrap();
    let to = (from + 1) % 3;
    let at = |node: usize, words: &[&str]| ask(&cluster.servers[node], words).unwrap();
    for key in ["{x}:1", "{x}:2", "{x}:3"] {
        assert_eq!(at(from, &["SET", key, "here", "PX", "60000"]), "+OK\r\n");
    }
    assert!(at(to, &["GET", "{x}:1"]).starts_with("-MOVED"));
    let under_way = cluster.begin(slot, to).unwrap();
    let mut keys = under_way.keys().unwrap();
    keys.sort();
    assert_eq!(keys, ["{x}:1", "{x}:2", "{x}:3"]);
    under_way.key("{x}:1").unwrap();
    // Half moved: what is gone is asked for there, what is not is here, and both at once are nowhere.
    assert!(at(from, &["GET", "{x}:1"]).starts_with("-ASK"));
    assert_eq!(at(from, &["GET", "{x}:2"]), "$4\r\nhere\r\n");
    assert!(at(from, &["MGET", "{x}:1", "{x}:2"]).starts_with("-TRYAGAIN"));
    under_way.all().unwrap();
    under_way.finish().unwrap();
    cluster.settled().unwrap();
    assert_eq!(cluster.master_of(slot).unwrap(), to);
    assert_eq!(at(to, &["GET", "{x}:3"]), "$4\r\nhere\r\n");
    assert!(at(from, &["GET", "{x}:3"]).starts_with("-MOVED"));
}

#[test]
fn a_replica_takes_over_when_told_and_when_its_master_is_killed() {
    let Some(mut cluster) = cluster() else { return };
    let slot = cluster.slot_of("x").unwrap();
    let first = cluster.master_of(slot).unwrap();
    let replica = cluster.replicas_of(first).unwrap()[0];
    cluster.fail_over(replica, None).unwrap();
    cluster.settled().unwrap();
    assert_eq!(cluster.master_of(slot).unwrap(), replica);
    assert_eq!(cluster.replicas_of(replica).unwrap(), [first]);
    cluster.servers[replica].kill();
    cluster.settled().unwrap();
    assert_eq!(cluster.master_of(slot).unwrap(), first);
    cluster.servers[replica].go_on().unwrap();
    cluster.settled().unwrap();
    assert_eq!(cluster.replicas_of(first).unwrap(), [replica]);
}
