//! A master with its replicas, the sentinels over them, and the one who has another server take over again and again.

use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::Check;
use leasehold_core::Clock;
use rustix::process::Signal;

use super::TTL;
use super::fighter::Fighter;
use super::stage::{Staged, Stroke, Struck, left, rest};
use crate::servers::NoServer;
use crate::servers::redis::Redis;
use crate::servers::sentinel::{Shape, Watched};

/// All there is.
#[derive(Debug)]
pub(super) struct Ward {
    watched: Watched,
    /// Whoever takes over has not heard of what was granted last; else nothing counts that not both replicas have.
    behind: bool,
    dice: fastrand::Rng,
}

/// Why another server takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// The master stands still, and wakes when another one is there.
    Stopped,
    /// It dies, and comes back without its data.
    Killed,
    /// Somebody wants it so, though it is well.
    Ordered,
}

impl Ward {
    pub(super) fn open(behind: bool, seed: u64) -> Result<Self, NoServer> {
        let down_after = TTL / 2;
        let watched = Watched::start(&Shape { redis: Redis::default(), down_after, ..Shape::default() })?;
        Ok(Self { watched, behind, dice: fastrand::Rng::with_seed(seed) })
    }

    /// From a moment at which all is well to one at which another server is the master.
    fn stroke(&mut self, clock: &Clock, struck: &mut Struck) -> Check {
        let from = clock.now();
        let old = self.watched.master()?;
        let replicas = self.watched.replicas()?;
        if self.behind {
            for replica in &replicas {
                self.watched.cut_off(*replica)?;
            }
            // What is granted now will be unknown.
            let meanwhile = TTL.mul_f64(0.1 + 0.5 * self.dice.f64());
            rest(clock, meanwhile, struck);
        }
        // One of them does not hear of it, now and then, and tells of the past when it wakes.
        let deaf = self.dice.bool().then(|| self.dice.usize(..self.watched.sentinels.len()));
        if let Some(deaf) = deaf {
            self.watched.sentinels[deaf].signal(Signal::STOP)?;
        }
        // Mostly what is so quick that leases outlive it.
        let reason = match self.dice.u8(..4) {
            0 => Reason::Stopped,
            1 => Reason::Killed,
            _ => Reason::Ordered,
        };
        match reason {
            Reason::Stopped => self.watched.servers[old].signal(Signal::STOP)?,
            Reason::Killed => self.watched.servers[old].kill(),
            Reason::Ordered => drop(self.watched.fail_over(old)?),
        }
        self.watched.master_after(old)?;
        match reason {
            Reason::Stopped => self.watched.servers[old].signal(Signal::CONT)?,
            Reason::Killed => self.watched.servers[old].go_on()?,
            Reason::Ordered => {}
        }
        struck.strokes.push(Stroke { from, to: clock.now() });
        let over = clock.now();
        if let Some(deaf) = deaf {
            self.watched.sentinels[deaf].signal(Signal::CONT)?;
        }
        if self.behind {
            for replica in &replicas {
                self.watched.let_in(*replica)?;
            }
        }
        self.watched.settled()?;
        eprintln!(
            "{reason:?} deaf {deaf:?}: {:?}, settled after {:?}",
            over.since(from),
            clock.now().since(over)
        );
        Ok(())
    }
}

impl Staged for Ward {
    fn url(&self, _number: usize) -> String {
        self.watched.url(if self.behind { "?timeout=250ms" } else { "?timeout=250ms&min_replicas=2" })
    }

    fn strike(&mut self, clock: &Clock, lasting: Duration, fighters: &[Arc<Fighter>]) -> Check<Struck> {
        let mut struck = Struck::default();
        rest(clock, TTL / 2, &mut struck);
        let end = clock.now().after(lasting);
        while clock.now() < end {
            self.stroke(clock, &mut struck)?;
            let calm = TTL.mul_f64(0.5 + 0.9 * self.dice.f64());
            rest(clock, calm, &mut struck);
        }
        struck.endangered = fighters.iter().map(|fighter| fighter.pen.endangered()).sum();
        Ok(struck)
    }

    /// Keys that the master still has long after the last lease has run out.
    fn left(&self) -> Check<Vec<String>> {
        let master = self.watched.master()?;
        left(|key| Ok(self.watched.has(master, key)))
    }
}
