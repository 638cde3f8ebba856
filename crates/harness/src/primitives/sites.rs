//! The stores that the random programs run on: a line or two for each.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Clock, MemoryStore, Quorum, Store};
use leasehold_conformance::{Chaos, Odds};
use leasehold_etcd::EtcdStore;
use leasehold_redis::{RedisNodes, RedisStore};
use leasehold_zookeeper::ZooKeeperStore;

use super::scene::{ByUrl, FarWithFaults, Site, WithFaults};
use crate::servers::cluster::{Cluster, Shape};
use crate::servers::etcd::{Etcd, url as etcd_url};
use crate::servers::nodes::Nodes;
use crate::servers::redis::{Redis, socket_url};
use crate::servers::zookeeper::{ZooKeeper, url as zookeeper_url};
use crate::servers::{NoServer, Server};

/// How many runs at a time share a server: they hardly ever do anything but wait.
const AT_ONCE: usize = 16;

/// The store in memory, with faults.
#[must_use]
pub fn memory_with_faults() -> impl Site {
    WithFaults::new("memory with faults", |clock| Arc::new(MemoryStore::with_clock(clock)) as Arc<dyn Store>)
}

/// An SQLite file for each run.
#[must_use]
pub fn sqlite() -> impl Site {
    let url = |_| {
        let folder = tempfile::tempdir()?;
        Ok((format!("sqlite:{}", folder.path().join("locks.db").display()), folder))
    };
    ByUrl::new("sqlite", url, 8)
}

/// One Redis, in which each run has a prefix of its own.
///
/// # Errors
///
/// When there is none.
pub fn redis() -> Result<impl Site, NoServer> {
    let server = Redis::default().start()?;
    Ok(ByUrl::new("redis", move |seed| Ok((run_url(&server, seed), ())), AT_ONCE))
}

/// One cluster of three masters, in which each run has a prefix of its own, and names in all slots.
///
/// # Errors
///
/// When there is none.
pub fn cluster() -> Result<impl Site, NoServer> {
    let cluster = Cluster::start(&Shape { replicas: 0, ..Shape::default() })?;
    let url = move |seed| Ok((cluster.url(&format!("?prefix=run{seed}:")), ()));
    Ok(ByUrl::new("redis cluster", url, AT_ONCE))
}

/// One Redis with faults.
///
/// # Errors
///
/// When there is none.
pub fn redis_with_faults() -> Result<impl Site, NoServer> {
    let server = Redis::default().start()?;
    let open = move |seed, clock: Clock| {
        let store = RedisStore::open_with(&run_url(&server, seed).parse()?, clock)?;
        Ok(Arc::new(store) as Arc<dyn Store>)
    };
    Ok(FarWithFaults::new("redis with faults", open, AT_ONCE))
}

/// No lease of an etcd is shorter.
const ETCD_TTL: Duration = Duration::from_secs(2);

/// No session of a ZooKeeper for tests is much shorter.
const ZOOKEEPER_TTL: Duration = Duration::from_secs(2);

/// One etcd, in which each run has a prefix of its own.
///
/// # Errors
///
/// When there is none.
pub fn etcd() -> Result<impl Site, NoServer> {
    let server = Etcd::default().start()?;
    let url = move |seed| Ok((format!("{}/run{seed}", etcd_url(&server)), ()));
    Ok(ByUrl::new("etcd", url, AT_ONCE).ttl(ETCD_TTL))
}

/// One etcd with faults.
///
/// # Errors
///
/// When there is none.
pub fn etcd_with_faults() -> Result<impl Site, NoServer> {
    let server = Etcd::default().start()?;
    let open = move |seed, clock: Clock| {
        let url = format!("{}/run{seed}", etcd_url(&server)).parse()?;
        Ok(Arc::new(EtcdStore::open_with(&url, clock)?) as Arc<dyn Store>)
    };
    Ok(FarWithFaults::new("etcd with faults", open, AT_ONCE).ttl(ETCD_TTL))
}

/// One ZooKeeper, in which each run has a node of its own.
///
/// # Errors
///
/// When there is none.
pub fn zookeeper() -> Result<impl Site, NoServer> {
    let server = ZooKeeper::default().start()?;
    let url = move |seed| Ok((format!("{}/run{seed}", zookeeper_url(&server)), ()));
    Ok(ByUrl::new("zookeeper", url, AT_ONCE).ttl(ZOOKEEPER_TTL))
}

/// One ZooKeeper with faults.
///
/// # Errors
///
/// When there is none.
pub fn zookeeper_with_faults() -> Result<impl Site, NoServer> {
    let server = ZooKeeper::default().start()?;
    let open = move |seed, clock: Clock| {
        let url = format!("{}/run{seed}", zookeeper_url(&server)).parse()?;
        Ok(Arc::new(ZooKeeperStore::open_with(&url, clock)?) as Arc<dyn Store>)
    };
    Ok(FarWithFaults::new("zookeeper with faults", open, AT_ONCE).ttl(ZOOKEEPER_TTL))
}

/// Leases of a quorum: a tenth of one is what a node has to answer.
const QUORUM_TTL: Duration = Duration::from_secs(1);

/// The quorum of five Redis, in which each run has a prefix of its own.
///
/// # Errors
///
/// When there is none.
pub fn quorum() -> Result<impl Site, NoServer> {
    let nodes = Nodes::start(5, &Redis::default())?;
    let site = ByUrl::new("quorum", move |seed| Ok((nodes.url(&of_run(seed)), ())), AT_ONCE / 2);
    Ok(site.ttl(QUORUM_TTL))
}

/// The same with faults: those of the client's way to all of them, and besides those of its ways to two nodes, to which
/// more befalls than not.
///
/// # Errors
///
/// When there is none.
pub fn quorum_with_faults() -> Result<impl Site, NoServer> {
    let nodes = Nodes::start(5, &Redis::default())?;
    let open = move |seed: u64, clock: Clock| {
        let opened = RedisNodes::open_with(&nodes.url(&of_run(seed)).parse()?, &clock)?;
        let odds = Odds { loses_reply: 20, loses_request: 10, refused: 10, late: (20, QUORUM_TTL / 4) };
        let two = [seed, seed / 5 + 1].map(|number| usize::try_from(number % 5).unwrap_or_default());
        let node = |(number, store): (usize, RedisStore)| {
            let store = Arc::new(store) as Arc<dyn Store>;
            if two.contains(&number) { Arc::new(Chaos::new(store, clock.clone(), odds, seed)) } else { store }
        };
        let stores = opened.stores.into_iter().enumerate().map(node).collect();
        Ok(Arc::new(Quorum::builder(stores).clock(clock.clone()).build()?) as Arc<dyn Store>)
    };
    Ok(FarWithFaults::new("quorum with faults", open, AT_ONCE / 2).ttl(QUORUM_TTL))
}

fn of_run(seed: u64) -> String {
    format!("?restart_delay=0s&prefix=run{seed}:")
}

fn run_url(server: &Server, seed: u64) -> String {
    format!("{}?prefix=run{seed}:", socket_url(server))
}
