//! The proofs `fight`, `foreign-release`, `handover`, `models`, `once`, `primitives`, `waiting`, `faults-redis`,
//! `faults-etcd`, `faults-zookeeper`, `cancelled-redis`, `quorum`, `quorum-dead`, `cluster`, `sentinel` and `split`: programs of the
//! harness, and the models.

use std::process::Command;

use super::Proof;
use crate::Result;

const HARNESS: &str = "leasehold-harness";

pub(super) fn fight(proof: &mut Proof) -> Result<bool> {
    program(proof, "fight", &["--processes", "200"], 60)
}

pub(super) fn foreign_release(proof: &mut Proof) -> Result<bool> {
    program(proof, "foreign_release", &[], 90)
}

pub(super) fn handover(proof: &mut Proof) -> Result<bool> {
    program(proof, "handover", &[], 30)
}

/// As many histories as are worth the name, however long they take.
pub(super) fn primitives(proof: &mut Proof) -> Result<bool> {
    seeded(proof, "primitives")
}

pub(super) fn waiting(proof: &mut Proof) -> Result<bool> {
    program(proof, "waiting", &[], 20)
}

pub(super) fn models(proof: &mut Proof) -> Result<bool> {
    let program = proof.build("leasehold-models", "leasehold-models")?;
    let mut command = Command::new(program);
    command.args(["--states", "2000000", "--steps", "100000000", "--seed", &proof.seed.to_string()]);
    proof.run(&mut command)
}

pub(super) fn once(proof: &mut Proof) -> Result<bool> {
    program(proof, "once", &["--processes", "50"], 60)
}

/// So long of each fault, one after the other.
pub(super) fn faults_redis(proof: &mut Proof) -> Result<bool> {
    program(proof, "faults", &[], 30)
}

/// So long of everything at once that befalls five servers.
pub(super) fn quorum(proof: &mut Proof) -> Result<bool> {
    program(proof, "faults", &["--quorum"], 600)
}

pub(super) fn quorum_dead(proof: &mut Proof) -> Result<bool> {
    program(proof, "quorum_dead", &[], 60)
}

/// So long of each thing that befalls a cluster.
pub(super) fn cluster(proof: &mut Proof) -> Result<bool> {
    program(proof, "faults", &["--cluster"], 60)
}

/// So long of a network that falls apart, for each kind of servers on it.
pub(super) fn split(proof: &mut Proof) -> Result<bool> {
    program(proof, "faults", &["--split"], 120)
}

/// So long of each thing that befalls etcd, and of clients that die and freeze.
pub(super) fn faults_etcd(proof: &mut Proof) -> Result<bool> {
    faults_of(proof, "--etcd")
}

/// .. and that befalls ZooKeeper.
pub(super) fn faults_zookeeper(proof: &mut Proof) -> Result<bool> {
    faults_of(proof, "--zookeeper")
}

fn faults_of(proof: &mut Proof, store: &str) -> Result<bool> {
    let servers = program(proof, "faults", &[store], 60)?;
    Ok(program(proof, "fight", &[store, "--processes", "32"], 60)? && servers)
}

/// So long of failovers of each kind.
pub(super) fn sentinel(proof: &mut Proof) -> Result<bool> {
    program(proof, "faults", &["--sentinel"], 300)
}

/// As many acquires as the name says, however long they take.
pub(super) fn cancelled_redis(proof: &mut Proof) -> Result<bool> {
    seeded(proof, "cancelled")
}

fn seeded(proof: &mut Proof, name: &str) -> Result<bool> {
    let program = proof.build(HARNESS, name)?;
    let mut command = Command::new(program);
    command.args(["--seed", &proof.seed.to_string()]);
    proof.run(&mut command)
}

fn program(proof: &mut Proof, name: &str, args: &[&str], seconds: u64) -> Result<bool> {
    let program = proof.build(HARNESS, name)?;
    let seconds = proof.seconds.unwrap_or(seconds).to_string();
    let seed = proof.seed.to_string();
    let mut command = Command::new(program);
    command.args(args).args(["--seconds", &seconds, "--seed", &seed]);
    proof.run(&mut command)
}
