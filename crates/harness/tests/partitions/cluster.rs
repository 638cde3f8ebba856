//! Three masters with a replica each, all on hosts of their own, when one master is cut off from the rest together with
//! a client.

use std::time::Duration;

use leasehold_harness::servers::NoServer;
use leasehold_harness::servers::cluster::{Cluster, Shape};
use leasehold_harness::servers::net::Net;
use leasehold_harness::servers::redis::ask;

use super::command::Run;
use super::{had, until};

/// Where two clients are, beside the nodes.
const ONE: usize = 6;
const OTHER: usize = 7;
const NODE_TIMEOUT: Duration = Duration::from_millis(1500);

struct World {
    // Whatever runs goes before the network.
    cluster: Cluster,
    /// Which node has what is locked.
    master: usize,
    net: Net,
    folder: tempfile::TempDir,
}

impl World {
    fn start() -> Result<Self, NoServer> {
        let net = Net::start(8)?;
        let hosts = net.hosts[..6].to_vec();
        let cluster = Cluster::start(&Shape { node_timeout: NODE_TIMEOUT, hosts, ..Shape::default() })?;
        let master = cluster.master_of(cluster.slot_of("lock:x")?)?;
        Ok(Self { cluster, master, net, folder: tempfile::tempdir()? })
    }

    fn run(&self, host: usize, who: &str, more: &str) -> Run {
        Run::start(&self.net.hosts[host], &self.cluster.url(more), self.folder.path(), who)
    }

    fn asks(&self, words: &[&str]) -> String {
        ask(&self.cluster.servers[self.master], words).unwrap_or_default()
    }

    /// Cuts off the master with the first client once the second one stands in line.
    fn parts(&self) {
        until("the second stands in line", || self.asks(&["EXISTS", "lh:{lock:x}:p"]).starts_with(":1"));
        let alone = [self.master, ONE];
        self.net.cut(&alone, &self.net.but(&alone)).unwrap();
    }
}

#[test]
fn with_a_replica_that_must_have_it_a_command_beside_a_lonely_master_is_dead_before_the_next() {
    let Some(world) = had(World::start()) else { return };
    let mut first = world.run(ONE, "first", "?min_replicas=1");
    let (_, low) = first.runs();
    // The replica that becomes the master has none itself: the second one asks for none.
    let mut second = world.run(OTHER, "second", "");
    world.parts();
    first.is_lost();
    let (entered, high) = second.runs();
    assert!(first.last() < entered, "both were in: until {:?}, from {entered:?}", first.last());
    assert!(low < high, "{low:?}, {high:?}");
    world.net.heal().unwrap();
    world.cluster.settled().unwrap();
    second.stops();
    let mut third = world.run(ONE, "third", "?min_replicas=1");
    let (_, highest) = third.runs();
    assert!(high < highest, "{high:?}, {highest:?}");
    third.stops();
}

#[test]
fn without_it_a_lonely_master_goes_on_for_the_node_timeout_and_the_token_tells_them_apart() {
    let Some(world) = had(World::start()) else { return };
    let mut first = world.run(ONE, "first", "");
    let (_, low) = first.runs();
    let second = world.run(OTHER, "second", "");
    world.parts();
    // It stops by itself, while nobody tells it anything.
    first.is_lost();
    assert!(world.asks(&["SET", "lock:x", "y"]).starts_with("-CLUSTERDOWN"));
    let (_, high) = second.runs();
    assert!(low < high, "{low:?}, {high:?}");
    world.net.heal().unwrap();
    world.cluster.settled().unwrap();
    let healed = second.last();
    until("the second one lives on", || second.last() > healed);
}
