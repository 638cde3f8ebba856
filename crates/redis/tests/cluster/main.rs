//! What a cluster does to locks: slots that go elsewhere, nodes that fail, and requests that meet the wrong one.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Claim, Cursor, Doubt, Error, Leave, Note, Release, Renew, Renewal, State, Store, Tenure, Together, Token,
    Turn,
};
use leasehold_harness::servers::NoServer;
use leasehold_harness::servers::cluster::{Cluster, Shape};
use leasehold_harness::servers::redis::ask;
use leasehold_redis::RedisStore;
use rustix::process::Signal;

/// Starts a cluster of this shape, or says why the test is skipped.
macro_rules! cluster {
    ($shape:expr) => {
        match started(&$shape) {
            Some(cluster) => cluster,
            None => return,
        }
    };
}

mod moves;
mod nodes;
mod rights;
#[path = "../support/mod.rs"]
mod support;
mod waits;

/// Three masters and nobody behind them: what most tests need.
fn bare() -> Shape {
    Shape { replicas: 0, ..Shape::default() }
}

fn started(shape: &Shape) -> Option<Cluster> {
    match Cluster::start(shape) {
        Ok(cluster) => Some(cluster),
        Err(NoServer::Missing(tool)) => {
            eprintln!("skipped: there is no {tool} here");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn store(cluster: &Cluster, options: &str) -> RedisStore {
    RedisStore::open(&cluster.url(options).parse().unwrap()).unwrap()
}

fn claim(text: &str) -> Claim {
    support::claims::claim(text, Turn::Any)
}

async fn granted(store: &RedisStore, claim: &Claim) -> Token {
    match store.claim(claim).await.unwrap().state {
        State::Granted(grant) => grant.token,
        other => panic!("{} should be granted: {other:?}", claim.name),
    }
}

fn renewal(claim: &Claim, token: Token) -> Renew {
    Renew { claim: Arc::new(claim.clone()), tenure: Tenure { count: 1, token, note: Note::NONE } }
}

async fn renew(store: &RedisStore, claim: &Claim, token: Token) -> leasehold_core::Result<Renewal> {
    store.renew(&[renewal(claim, token)]).await.pop().unwrap()
}

async fn is_kept(store: &RedisStore, claim: &Claim, token: Token) {
    let kept = renew(store, claim, token).await.unwrap();
    assert!(matches!(kept, Renewal::Kept { .. }), "{}: {kept:?}", claim.name);
}

async fn end(store: &RedisStore, claim: &Claim) -> Release {
    store.release(&claim.name, claim.id, Leave::Open).await.unwrap()
}

/// The slot of a lock, which server has it, and one that has not.
fn place(cluster: &Cluster, text: &str) -> (usize, usize, usize) {
    let slot = cluster.slot_of(&format!("lock:{text}")).unwrap();
    let from = cluster.master_of(slot).unwrap();
    (slot, from, (from + 1) % 3)
}

/// What this server answers, raw.
fn say(cluster: &Cluster, node: usize, words: &[&str]) -> String {
    ask(&cluster.servers[node], words).unwrap()
}

/// Waits until it is so.
async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !done().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting)
        .await
        .unwrap_or_else(|_| panic!("in vain: {what}"));
}
