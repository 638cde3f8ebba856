//! Five nodes on hosts of their own, and clients on two more, when the network between them falls apart.

use std::time::Duration;

use leasehold::Code;
use leasehold_harness::servers::NoServer;
use leasehold_harness::servers::net::Net;
use leasehold_harness::servers::nodes::Nodes;
use leasehold_harness::servers::redis::Redis;

use super::command::Run;
use super::holder::{Holder, gets};
use super::{had, until};

/// Where two clients are, beside the nodes.
const ONE: usize = 5;
const OTHER: usize = 6;

struct World {
    // Whatever runs goes before the network.
    nodes: Nodes,
    net: Net,
    url: String,
    folder: tempfile::TempDir,
}

impl World {
    fn start() -> Result<Self, NoServer> {
        let net = Net::start(7)?;
        let nodes = Nodes::on(&net.hosts[..5], &Redis::default())?;
        let url = nodes.url("?restart_delay=0s&node_timeout=500ms");
        Ok(Self { nodes, net, url, folder: tempfile::tempdir()? })
    }

    fn run(&self, host: usize, who: &str) -> Run {
        Run::start(&self.net.hosts[host], &self.url, self.folder.path(), who)
    }

    fn holder(&self, host: usize, name: &'static str) -> Holder {
        Holder::start(&self.net.hosts[host], &self.url, name)
    }

    /// Runs a command on one host and one behind it on the other, lets this befall the network, and shows that the
    /// first is dead before the second lives.
    fn hands_over(&self, befalls: impl Fn(&Net)) -> (Run, Run) {
        let mut first = self.run(ONE, "first");
        let (_, low) = first.runs();
        let second = self.run(OTHER, "second");
        befalls(&self.net);
        first.is_lost();
        let (entered, high) = second.runs();
        assert!(first.last() < entered, "both were in: until {:?}, from {entered:?}", first.last());
        assert!(low < high, "{low:?}, {high:?}");
        (first, second)
    }
}

#[test]
fn a_command_in_the_minority_is_dead_before_the_majority_grants_and_the_majority_goes_on() {
    let Some(world) = had(World::start()) else { return };
    let (_first, mut second) = world.hands_over(|net| net.cut(&[0, 1, ONE], &[2, 3, 4, OTHER]).unwrap());
    let (_, high) = second.runs();
    // Who comes to the minority now gets nothing, and hears why.
    let (code, told) = gets(&world.net.hosts[ONE], &world.url, "y").unwrap_err();
    assert_eq!(code, Some(Code::QUORUM), "{told}");
    assert!(told.contains("2 of 5 nodes answered, 3 are needed"), "{told}");
    // On the other side all goes on: the lease is renewed beyond its first end, and others are served.
    let (since, _) = second.runs();
    until("it lives on the majority alone", || second.last().since(since) > Duration::from_secs(4));
    gets(&world.net.hosts[OTHER], &world.url, "y").unwrap();
    world.net.heal().unwrap();
    second.stops();
    let mut third = world.run(ONE, "third");
    let (_, highest) = third.runs();
    assert!(high < highest, "{high:?}, {highest:?}");
    third.stops();
    until("nothing is left", || world.nodes.having("lock:x") == 0);
}

#[test]
fn a_holder_in_the_minority_is_warned_and_then_loses_by_its_own_clock() {
    let Some(world) = had(World::start()) else { return };
    let holder = world.holder(ONE, "x");
    let (_, low) = holder.has();
    let next = world.holder(OTHER, "x");
    world.net.cut(&[0, 1, ONE], &[2, 3, 4, OTHER]).unwrap();
    let told = holder.loses();
    let (entered, high) = next.has();
    let (endangered, lost, until) = (told.endangered.unwrap(), told.lost.unwrap(), told.valid_until.unwrap());
    assert!(endangered < until && endangered < lost, "{told:?}");
    assert!(until < entered, "it believed until {until:?}, and the next was in at {entered:?}");
    assert!(low < high, "{low:?}, {high:?}");
}

#[test]
fn a_command_whose_requests_arrive_and_whose_replies_do_not_is_dead_before_the_next() {
    let Some(world) = had(World::start()) else { return };
    world.hands_over(|net| net.cut_from(&[2, 3, 4], &[ONE]).unwrap());
}

#[test]
fn a_command_that_is_cut_from_all_nodes_is_dead_before_the_next() {
    let Some(world) = had(World::start()) else { return };
    let (first, mut second) = world.hands_over(|net| net.cut(&[ONE], &net.but(&[ONE])).unwrap());
    drop(first);
    world.net.heal().unwrap();
    second.stops();
    until("nothing is left", || world.nodes.having("lock:x") == 0);
}
