//! Several servers and their clients, all on hosts of a network, and the one who cuts it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::Check;
use leasehold_core::Clock;

use super::elected::none_left;
use super::fault::Kind;
use super::fighter::Fighter;
use super::ring::left_in;
use super::stage::{Staged, Stroke, Struck, left, rest};
use crate::servers::NoServer;
use crate::servers::cluster::{self, Cluster};
use crate::servers::elected::Elected;
use crate::servers::net::{Host, Net};
use crate::servers::nodes::Nodes;
use crate::servers::redis::Redis;
use crate::servers::sentinel::{self, Watched};

/// After how long servers notice that one of them is gone.
const NOTICED: Duration = Duration::from_millis(700);
/// How many hosts have clients, some on each.
const HOMES: usize = 4;

/// So many strokes that nobody notices are none by chance.
const MOST_UNNOTICED: usize = 8;

/// What runs on the first hosts.
#[derive(Debug)]
enum Servers {
    Quorum(Nodes),
    Sentinel(Watched),
    Cluster(Cluster),
    Elected(Elected),
}

/// All there is.
#[derive(Debug)]
pub(super) struct Split {
    // Servers go before the network that they are on.
    servers: Servers,
    /// What stands behind their URL.
    more: &'static str,
    /// On how many hosts they are.
    nodes: usize,
    ttl: Duration,
    net: Net,
    dice: fastrand::Rng,
}

impl Split {
    pub(super) fn open(kind: Kind, ttl: Duration, seed: u64) -> Result<Self, NoServer> {
        let nodes = match kind {
            Kind::Quorum => 5,
            Kind::Sentinel { .. } | Kind::Elected(_) => 3,
            Kind::Cluster { .. } => 6,
        };
        let net = Net::start(nodes + HOMES)?;
        let hosts = net.hosts[..nodes].to_vec();
        let servers = match kind {
            Kind::Quorum => Servers::Quorum(Nodes::on(&hosts, &Redis::default())?),
            Kind::Sentinel { .. } => {
                let shape = sentinel::Shape { down_after: NOTICED, hosts, ..sentinel::Shape::default() };
                Servers::Sentinel(Watched::start(&shape)?)
            }
            Kind::Cluster { .. } => {
                let shape = cluster::Shape { node_timeout: NOTICED, hosts, ..cluster::Shape::default() };
                Servers::Cluster(Cluster::start(&shape)?)
            }
            Kind::Elected(maker) => Servers::Elected(Elected::on(maker, &hosts)?),
        };
        let more = match kind {
            Kind::Elected(_) => "",
            Kind::Quorum => "?restart_delay=0s&node_timeout=250ms",
            Kind::Sentinel { all: true } => "?timeout=250ms&min_replicas=2",
            Kind::Cluster { all: true } => "?timeout=250ms&min_replicas=1",
            Kind::Sentinel { all: false } | Kind::Cluster { all: false } => "?timeout=250ms",
        };
        Ok(Self { servers, more, nodes, ttl, net, dice: fastrand::Rng::with_seed(seed) })
    }

    /// Returns once the servers agree who is who.
    fn settled(&self) -> Check {
        match &self.servers {
            Servers::Quorum(_) => Ok(()),
            Servers::Sentinel(watched) => Ok(watched.settled()?),
            Servers::Cluster(cluster) => Ok(cluster.settled()?),
            Servers::Elected(members) => Ok(members.settled()?),
        }
    }

    /// Some of all, at least one of each and never all.
    fn some(&mut self, from: usize, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (from..from + count).collect();
        self.dice.shuffle(&mut all);
        all.truncate(self.dice.usize(1..count));
        all
    }

    fn cut(&mut self) -> Check {
        let (mut nodes, homes) = (self.some(0, self.nodes), self.some(self.nodes, HOMES));
        match self.dice.u8(..5) {
            // Two parts, each with clients: one of them has a majority.
            0 | 1 => {
                nodes.extend(homes);
                self.net.cut(&nodes, &self.net.but(&nodes))?;
            }
            // Replies are lost, requests are not.
            2 => self.net.cut_from(&nodes, &homes)?,
            // Requests are lost; what was under way comes back.
            3 => self.net.cut_from(&homes, &nodes)?,
            // Some are alone.
            _ => self.net.cut(&homes, &self.net.but(&homes))?,
        }
        Ok(())
    }
}

impl Staged for Split {
    fn url(&self, _number: usize) -> String {
        match &self.servers {
            Servers::Quorum(nodes) => nodes.url(self.more),
            Servers::Sentinel(watched) => watched.url(self.more),
            Servers::Cluster(cluster) => cluster.url(self.more),
            Servers::Elected(members) => members.url(),
        }
    }

    fn home(&self, number: usize) -> Option<Host> {
        Some(self.net.hosts[self.nodes + number % HOMES].clone())
    }

    fn strike(&mut self, clock: &Clock, lasting: Duration, fighters: &[Arc<Fighter>]) -> Check<Struck> {
        let mut struck = Struck::default();
        rest(clock, self.ttl / 2, &mut struck);
        let end = clock.now().after(lasting);
        // A cut may be where nobody looks, and healing takes longer than a short campaign.
        let noticed = || fighters.iter().any(|fighter| fighter.pen.endangered() > 0);
        while clock.now() < end || (!noticed() && struck.strokes.len() < MOST_UNNOTICED) {
            let from = clock.now();
            self.cut()?;
            // Mostly so long that whoever is cut off loses what he has, and that another server takes over.
            let most = if matches!(self.servers, Servers::Quorum(_)) { 2.5 } else { 4.0 };
            let lasts = self.ttl.mul_f64(0.3 + (most - 0.3) * self.dice.f64());
            rest(clock, lasts, &mut struck);
            self.net.heal()?;
            struck.strokes.push(Stroke { from, to: clock.now() });
            self.settled()?;
            let calm = self.ttl.mul_f64(0.3 + 0.9 * self.dice.f64());
            rest(clock, calm, &mut struck);
        }
        struck.endangered = fighters.iter().map(|fighter| fighter.pen.endangered()).sum();
        Ok(struck)
    }

    fn left(&self) -> Check<Vec<String>> {
        match &self.servers {
            Servers::Quorum(nodes) => left(|key| Ok(nodes.having(key) > 0)),
            Servers::Sentinel(watched) => {
                let master = watched.master()?;
                left(|key| Ok(watched.has(master, key)))
            }
            Servers::Cluster(cluster) => left_in(cluster),
            Servers::Elected(members) => none_left(members, self.ttl),
        }
    }
}
