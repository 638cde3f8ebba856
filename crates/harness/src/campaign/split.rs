//! Five servers that are one quorum, and clients, all on hosts of a network, and the one who cuts it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::Check;
use leasehold_core::Clock;

use super::TTL;
use super::fighter::Fighter;
use super::nodes::left_on;
use super::stage::{Staged, Stroke, Struck, rest};
use crate::servers::NoServer;
use crate::servers::net::{Host, Net};
use crate::servers::nodes::Nodes;
use crate::servers::redis::Redis;

const NODES: usize = 5;
/// How many hosts have clients, some on each.
const HOMES: usize = 4;

/// All there is.
#[derive(Debug)]
pub(super) struct Split {
    // Servers go before the network that they are on.
    nodes: Nodes,
    net: Net,
    dice: fastrand::Rng,
}

impl Split {
    pub(super) fn open(seed: u64) -> Result<Self, NoServer> {
        let net = Net::start(NODES + HOMES)?;
        let nodes = Nodes::on(&net.hosts[..NODES], &Redis::default())?;
        Ok(Self { nodes, net, dice: fastrand::Rng::with_seed(seed) })
    }

    /// Some of all, at least one of each and never all.
    fn some(&mut self, from: usize, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (from..from + count).collect();
        self.dice.shuffle(&mut all);
        all.truncate(self.dice.usize(1..count));
        all
    }

    fn cut(&mut self) -> Check {
        let (mut nodes, homes) = (self.some(0, NODES), self.some(NODES, HOMES));
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
        self.nodes.url("?restart_delay=0s&node_timeout=250ms")
    }

    fn home(&self, number: usize) -> Option<Host> {
        Some(self.net.hosts[NODES + number % HOMES].clone())
    }

    fn strike(&mut self, clock: &Clock, lasting: Duration, fighters: &[Arc<Fighter>]) -> Check<Struck> {
        let mut struck = Struck::default();
        rest(clock, TTL / 2, &mut struck);
        let end = clock.now().after(lasting);
        while clock.now() < end {
            let from = clock.now();
            self.cut()?;
            // Mostly so long that whoever is cut off loses what he has.
            let lasts = TTL.mul_f64(0.3 + 2.2 * self.dice.f64());
            rest(clock, lasts, &mut struck);
            self.net.heal()?;
            struck.strokes.push(Stroke { from, to: clock.now() });
            let calm = TTL.mul_f64(0.3 + 0.9 * self.dice.f64());
            rest(clock, calm, &mut struck);
        }
        struck.endangered = fighters.iter().map(|fighter| fighter.pen.endangered()).sum();
        Ok(struck)
    }

    fn left(&self) -> Check<Vec<String>> {
        Ok(left_on(&self.nodes))
    }
}
