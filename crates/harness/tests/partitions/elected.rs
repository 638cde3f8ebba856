//! Three members of an ensemble or a cluster on hosts of their own, when one of them is cut off from the rest together
//! with a client, or stands still.

use std::time::Duration;

use leasehold_core::Clock;
use leasehold_harness::servers::NoServer;
use leasehold_harness::servers::elected::{Elected, Maker};
use leasehold_harness::servers::net::Net;
use rustix::process::Signal;

use super::command::Run;
use super::{had, until};

/// Where two clients are, beside the members.
const ONE: usize = 3;
const OTHER: usize = 4;
/// Longer than the ttl of a run, and than it takes until another leads.
const LONG: Duration = Duration::from_secs(5);

struct World {
    // Whatever runs goes before the network.
    members: Elected,
    net: Net,
    folder: tempfile::TempDir,
}

impl World {
    fn start(maker: Maker) -> Result<Self, NoServer> {
        let net = Net::start(5)?;
        let members = Elected::on(maker, &net.hosts[..3])?;
        members.settled()?;
        Ok(Self { members, net, folder: tempfile::tempdir()? })
    }

    fn run(&self, host: usize, who: &str) -> Run {
        Run::start(&self.net.hosts[host], &self.members.url(), self.folder.path(), who)
    }

    /// Two runs, one behind the other in line.
    fn two(&self) -> (Run, Run) {
        let first = self.run(ONE, "first");
        first.runs();
        let second = self.run(OTHER, "second");
        until("the second stands in line", || self.members.in_line("x").is_ok_and(|count| count == 2));
        (first, second)
    }

    fn follower(&self) -> usize {
        (self.members.leader().unwrap() + 1) % 3
    }

    /// Cuts off a member with the first client: that one is dead before the second lives.
    fn parts(&self, member: usize) {
        let (mut first, mut second) = self.two();
        let (_, low) = first.runs();
        let alone = [member, ONE];
        self.net.cut(&alone, &self.net.but(&alone)).unwrap();
        first.is_lost();
        let (entered, high) = second.runs();
        assert!(first.last() < entered, "both were in: until {:?}, from {entered:?}", first.last());
        assert!(low < high, "{low:?}, {high:?}");
        self.net.heal().unwrap();
        self.members.settled().unwrap();
        second.stops();
        let mut third = self.run(ONE, "third");
        let (_, highest) = third.runs();
        assert!(high < highest, "{high:?}, {highest:?}");
        third.stops();
        self.is_empty();
    }

    /// Stops a member for long: whoever lives then, lives alone.
    fn stops(&self, member: usize, may_revoke: bool) {
        let clock = Clock::system();
        let (mut first, mut second) = self.two();
        let (_, low) = first.runs();
        let server = &self.members.servers()[member];
        server.signal(Signal::STOP).unwrap();
        std::thread::sleep(LONG);
        let woke = clock.now();
        server.signal(Signal::CONT).unwrap();
        self.members.settled().unwrap();
        // It has kept its lease over that, or has lost it in time.
        first.stops();
        let (entered, high) = second.runs();
        assert!(low < high, "{low:?}, {high:?}");
        let alone = first.last() < entered;
        // A leader that wakes has leases revoked that another one has prolonged: the server's fault, and never before.
        assert!(
            alone || may_revoke && entered >= woke,
            "both were in: until {:?}, from {entered:?}",
            first.last()
        );
        second.stops();
        self.is_empty();
    }

    fn is_empty(&self) {
        until("nothing is left", || self.members.in_line("x").is_ok_and(|count| count == 0));
    }
}

/// The same for each maker.
macro_rules! of {
    ($maker:ident, $store:ident, $may_revoke:literal) => {
        mod $store {
            use super::*;

            #[test]
            fn a_command_beside_a_lonely_leader_is_dead_before_the_next() {
                let Some(world) = had(World::start(Maker::$maker)) else { return };
                world.parts(world.members.leader().unwrap());
            }

            #[test]
            fn a_command_beside_a_lonely_follower_is_dead_before_the_next() {
                let Some(world) = had(World::start(Maker::$maker)) else { return };
                world.parts(world.follower());
            }

            #[test]
            fn while_the_leader_stands_still_and_when_it_wakes_one_command_lives() {
                let Some(world) = had(World::start(Maker::$maker)) else { return };
                world.stops(world.members.leader().unwrap(), $may_revoke);
            }

            #[test]
            fn while_a_follower_stands_still_and_when_it_wakes_one_command_lives() {
                let Some(world) = had(World::start(Maker::$maker)) else { return };
                world.stops(world.follower(), false);
            }
        }
    };
}

of!(Etcd, etcd, true);
of!(ZooKeeper, zookeeper, false);
