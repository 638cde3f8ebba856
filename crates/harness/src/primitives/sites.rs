//! The stores that the random programs run on: a line or two for each.

use std::sync::Arc;

use leasehold::{Clock, MemoryStore, Store};
use leasehold_redis::RedisStore;

use super::scene::{ByUrl, FarWithFaults, Site, WithFaults};
use crate::servers::cluster::{Cluster, Shape};
use crate::servers::redis::{Redis, socket_url};
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

fn run_url(server: &Server, seed: u64) -> String {
    format!("{}?prefix=run{seed}:", socket_url(server))
}
