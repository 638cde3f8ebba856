//! A cluster whose slots move and whose masters change while clients fight for its locks, and the one who does that.

use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::{Check, Failure};
use leasehold_core::Clock;
use rustix::process::Signal;

use super::fault::Turn;
use super::fighter::Fighter;
use super::stage::{Staged, Stroke, Struck, left, rest};
use super::{NAMES, TTL};
use crate::servers::NoServer;
use crate::servers::cluster::{Cluster, Shape};
use crate::servers::redis::ask;

/// Of a cluster whose masters are to be missed: a replica takes over within two ttl.
const SOON: Duration = Duration::from_millis(700);
/// Of one whose masters are not: none must take over because this machine is busy.
const LATE: Duration = Duration::from_secs(15);

/// All there is.
#[derive(Debug)]
pub(super) struct Ring {
    turn: Turn,
    cluster: Cluster,
    dice: fastrand::Rng,
}

impl Ring {
    pub(super) fn open(turn: Turn, seed: u64) -> Result<Self, NoServer> {
        let node_timeout = match turn {
            Turn::Moved | Turn::HandedOver | Turn::Lagging => LATE,
            Turn::Stopped | Turn::Killed => SOON,
        };
        let cluster = Cluster::start(&Shape { node_timeout, ..Shape::default() })?;
        Ok(Self { turn, cluster, dice: fastrand::Rng::with_seed(seed) })
    }

    /// One of the slots that are fought for, and its master.
    fn slot(&mut self) -> Check<(usize, usize)> {
        let key = format!("lock:{}", NAMES[self.dice.usize(..NAMES.len())]);
        let slot = self.cluster.slot_of(&key)?;
        Ok((slot, self.cluster.master_of(slot)?))
    }

    /// One turn of things; the cluster may not be settled when it is over.
    fn turns(&mut self, clock: &Clock, struck: &mut Struck) -> Check {
        let (slot, master) = self.slot()?;
        match self.turn {
            Turn::Moved => self.moves(clock, slot, master, struck)?,
            Turn::HandedOver => self.cluster.fail_over(self.replica_of(master)?, None)?,
            Turn::Stopped => {
                let lasts = TTL.mul_f64(0.3 + 2.5 * self.dice.f64());
                self.cluster.servers[master].signal(Signal::STOP)?;
                rest(clock, lasts, struck);
                self.cluster.servers[master].signal(Signal::CONT)?;
            }
            Turn::Killed => {
                let lasts = TTL.mul_f64(2.5 * self.dice.f64());
                self.cluster.servers[master].kill();
                rest(clock, lasts, struck);
                self.cluster.servers[master].go_on()?;
            }
            Turn::Lagging => {
                // What the master grants meanwhile is not there when this one takes over, without asking anybody.
                let replica = self.replica_of(master)?;
                self.cluster.cut_off(replica)?;
                rest(clock, TTL.mul_f64(0.1 + 0.5 * self.dice.f64()), struck);
                self.cluster.fail_over(replica, Some("TAKEOVER"))?;
                self.cluster.let_in(replica)?;
            }
        }
        Ok(())
    }

    fn replica_of(&self, master: usize) -> Check<usize> {
        let replicas = self.cluster.replicas_of(master)?;
        replicas.first().copied().ok_or_else(|| Failure::new(format!("node {master} has no replica")))
    }

    /// Moves a slot to another master; one time in three it stays half moved for a while.
    fn moves(&mut self, clock: &Clock, slot: usize, from: usize, struck: &mut Struck) -> Check {
        let masters: Vec<usize> = (0..3).filter(|master| *master != from).collect();
        let to = masters[self.dice.usize(..masters.len())];
        let under_way = self.cluster.begin(slot, to)?;
        if self.dice.u8(..3) == 0 {
            let keys = under_way.keys()?;
            for key in keys.iter().take(self.dice.usize(..=keys.len())) {
                under_way.key(key)?;
            }
            rest(clock, TTL, struck);
        }
        under_way.all()?;
        under_way.finish()?;
        Ok(())
    }
}

impl Staged for Ring {
    fn url(&self, _number: usize) -> String {
        self.cluster.url("?timeout=250ms")
    }

    fn strike(&mut self, clock: &Clock, lasting: Duration, fighters: &[Arc<Fighter>]) -> Check<Struck> {
        let mut struck = Struck::default();
        rest(clock, TTL / 2, &mut struck);
        let end = clock.now().after(lasting);
        while clock.now() < end {
            let from = clock.now();
            self.turns(clock, &mut struck)?;
            struck.strokes.push(Stroke { from, to: clock.now() });
            // A slot that has been moved is moved again at once, and another master is struck when all is well.
            if self.turn != Turn::Moved {
                self.cluster.settled()?;
            }
            let calm = if self.turn == Turn::Moved { 0.05 } else { 0.3 + 0.9 * self.dice.f64() };
            rest(clock, TTL.mul_f64(calm), &mut struck);
        }
        self.cluster.settled()?;
        struck.endangered = fighters.iter().map(|fighter| fighter.pen.endangered()).sum();
        Ok(struck)
    }

    fn left(&self) -> Check<Vec<String>> {
        left_in(&self.cluster)
    }
}

/// Keys that their master still has.
pub(super) fn left_in(cluster: &Cluster) -> Check<Vec<String>> {
    left(|key| {
        let master = cluster.master_of(cluster.slot_of(key)?)?;
        Ok(!ask(&cluster.servers[master], &["EXISTS", key])?.starts_with(":0"))
    })
}
