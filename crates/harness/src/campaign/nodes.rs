//! Five servers that are one quorum, a way from each client to each of them, and the one who strikes both.

use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::Check;
use leasehold_core::Clock;
use rustix::process::Signal;

use super::TTL;
use super::fighter::Fighter;
use super::stage::{Staged, Stroke, Struck, left, rest};
use crate::proxy::{Mode, Odds, Proxy};
use crate::servers::NoServer;
use crate::servers::nodes::{Nodes, url};
use crate::servers::redis::Redis;

const NODES: usize = 5;

/// All there is.
#[derive(Debug)]
pub(super) struct Field {
    nodes: Nodes,
    /// Of each client, to each node.
    ways: Vec<Vec<Proxy>>,
    dice: fastrand::Rng,
}

/// One stroke.
#[derive(Debug, Clone, Copy)]
enum Blow {
    Stop,
    Restart,
    Way(Mode),
    Odds,
    Cut,
}

impl Field {
    pub(super) fn open(clients: usize, seed: u64) -> Result<Self, NoServer> {
        // They keep each write: what a restart forgets is another test.
        let redis = Redis::default().line("appendonly yes").line("appendfsync always");
        let nodes = Nodes::start(NODES, &redis)?;
        let mut dice = fastrand::Rng::with_seed(seed);
        let mut ways = Vec::new();
        for _ in 0..clients {
            let to = |server: &crate::servers::Server| Proxy::start(server.address(), dice.u64(..));
            ways.push(nodes.servers.iter().map(to).collect::<Result<Vec<_>, _>>()?);
        }
        Ok(Self { nodes, ways, dice })
    }

    fn blow(&mut self) -> Blow {
        match self.dice.u8(..9) {
            0 => Blow::Stop,
            1 | 2 => Blow::Restart,
            3 => Blow::Way(Mode::EatReplies),
            4 => Blow::Way(Mode::EatRequests),
            5 => Blow::Way(Mode::Freeze),
            // A partition.
            6 => Blow::Way(Mode::Refuse),
            7 => Blow::Odds,
            _ => Blow::Cut,
        }
    }

    /// Mostly as many nodes as a quorum can do without; now and then one more.
    fn some_nodes(&mut self) -> Vec<usize> {
        let mut all: Vec<usize> = (0..NODES).collect();
        self.dice.shuffle(&mut all);
        all.truncate([1, 2, 2, 2, 3][self.dice.usize(..5)]);
        all
    }

    fn some_ways(&mut self) -> Vec<(usize, usize)> {
        let mut clients: Vec<usize> = (0..self.ways.len()).collect();
        self.dice.shuffle(&mut clients);
        clients.truncate(self.dice.usize(1..=self.ways.len()));
        let mut chosen = Vec::new();
        for client in clients {
            chosen.extend(self.some_nodes().into_iter().map(|node| (client, node)));
        }
        chosen
    }

    fn begin(&mut self, blow: Blow, nodes: &[usize], ways: &[(usize, usize)]) -> Check {
        let odds = Odds { eat_reply: 5, eat_request: 5, late: 10, late_by: TTL.mul_f64(0.4) };
        for node in nodes {
            match blow {
                Blow::Stop => self.nodes.servers[*node].signal(Signal::STOP)?,
                Blow::Restart => self.nodes.servers[*node].kill(),
                Blow::Way(_) | Blow::Odds | Blow::Cut => {}
            }
        }
        for way in ways.iter().map(|(client, node)| &self.ways[*client][*node]) {
            match blow {
                Blow::Way(mode) => way.set(mode),
                Blow::Odds => way.odds(odds),
                Blow::Cut => way.cut(),
                Blow::Stop | Blow::Restart => {}
            }
        }
        Ok(())
    }

    fn end(&mut self, blow: Blow, nodes: &[usize], ways: &[(usize, usize)]) -> Check {
        for node in nodes {
            match blow {
                Blow::Stop => self.nodes.servers[*node].signal(Signal::CONT)?,
                Blow::Restart => self.nodes.servers[*node].go_on()?,
                Blow::Way(_) | Blow::Odds | Blow::Cut => {}
            }
        }
        for way in ways.iter().map(|(client, node)| &self.ways[*client][*node]) {
            way.set(Mode::Pass);
            way.odds(Odds::default());
        }
        Ok(())
    }
}

impl Staged for Field {
    fn url(&self, number: usize) -> String {
        let ways = self.ways[number].iter().map(|way| way.address().to_string());
        url(ways, "?restart_delay=0s&node_timeout=250ms")
    }

    fn strike(&mut self, clock: &Clock, lasting: Duration, fighters: &[Arc<Fighter>]) -> Check<Struck> {
        let mut struck = Struck::default();
        rest(clock, TTL / 2, &mut struck);
        let end = clock.now().after(lasting);
        while clock.now() < end {
            let blow = self.blow();
            let (nodes, ways) = (self.some_nodes(), self.some_ways());
            let from = clock.now();
            self.begin(blow, &nodes, &ways)?;
            let lasts = TTL.mul_f64(0.1 + 1.4 * self.dice.f64());
            rest(clock, lasts, &mut struck);
            self.end(blow, &nodes, &ways)?;
            struck.strokes.push(Stroke { from, to: clock.now() });
            let calm = TTL.mul_f64(0.3 + 0.9 * self.dice.f64());
            rest(clock, calm, &mut struck);
        }
        struck.endangered = fighters.iter().map(|fighter| fighter.pen.endangered()).sum();
        Ok(struck)
    }

    /// Keys that any node still has.
    fn left(&self) -> Check<Vec<String>> {
        left(|key| Ok(self.nodes.having(key) > 0))
    }
}
