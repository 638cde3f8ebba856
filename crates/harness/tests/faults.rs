//! A little of what `cargo xtask prove` does under `faults-redis`, `quorum`, `sentinel`, `cluster`, `split`, `faults-etcd` and
//! `faults-zookeeper`: each fault of real servers for three seconds.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::time::Duration;

use leasehold_harness::campaign::{Fault, Unfought, campaign};

const LASTING: Duration = Duration::from_secs(3);

fn befalls(name: &str) {
    let fault = Fault::named(name).unwrap();
    match campaign(fault, LASTING, 1) {
        Ok(fought) => println!("{fought}"),
        Err(Unfought::Missing(tool)) => eprintln!("skipped: there is no {tool} here"),
        Err(Unfought::Broken(failure)) => panic!("{failure}"),
    }
}

/// A test for each, so that several run at once and each failure has its name.
macro_rules! faults {
    ($($name:ident),+ $(,)?) => {
        $(#[test]
        fn $name() {
            befalls(stringify!($name));
        })+

        #[test]
        fn every_fault_of_the_table_has_its_test() {
            let here = [$(stringify!($name)),+];
            assert_eq!(Fault::all().map(|fault| fault.name).collect::<Vec<_>>(), here);
        }
    };
}

faults!(
    stopped,
    restarted,
    forgotten,
    forgotten_delayed,
    flushed,
    scripts_flushed,
    clients_killed,
    replies_eaten,
    requests_eaten,
    frozen,
    frozen_for_good,
    delayed,
    cut,
    refused,
    trickled,
    duplicated,
    mishaps,
    denied,
    full,
    paused,
    busy,
    demoted,
    clock_forward,
    clock_back,
    clock_trembles,
    quorum,
    quorum_split,
    sentinel_split,
    sentinel_split_all,
    cluster_split,
    cluster_split_all,
    moved,
    handed_over,
    master_stopped,
    master_killed,
    replica_lags,
    failover,
    failover_behind,
    etcd_leader_killed,
    etcd_leader_stopped,
    etcd_member_killed,
    etcd_member_stopped,
    etcd_all_stopped,
    etcd_replies_eaten,
    etcd_frozen,
    etcd_revoked,
    etcd_compacted,
    etcd_split,
    etcd_newer_leader_stopped,
    etcd_newer_split,
    zookeeper_leader_killed,
    zookeeper_leader_stopped,
    zookeeper_member_killed,
    zookeeper_member_stopped,
    zookeeper_all_stopped,
    zookeeper_replies_eaten,
    zookeeper_frozen,
    zookeeper_split,
);
