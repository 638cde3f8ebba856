//! What a store is held to its contract on: a server, or a cluster of several, which go by the clock of a test.

use std::io;
use std::time::Duration;

use leasehold_harness::servers::clock::{self, ToldClock};
use leasehold_harness::servers::cluster::{Cluster, Shape};
use leasehold_harness::servers::redis::{Redis, ask};

use super::server::Server;
use super::ways::Way;

/// A server, or several.
#[derive(Debug)]
pub(crate) enum Host {
    Server(Server),
    Cluster(Cluster, Vec<ToldClock>),
}

impl Host {
    /// Starts a cluster. Nobody there ever counts as failed, since its time goes by leaps.
    pub(crate) fn cluster() -> io::Result<Self> {
        let redis = Redis { clock: Some(clock::library().map_err(io::Error::other)?), ..Redis::default() };
        let node_timeout = Duration::from_secs(30 * 24 * 3600);
        let shape = Shape { node_timeout, redis, ..Shape::default() };
        let cluster = Cluster::start(&shape).map_err(io::Error::other)?;
        let clocks = cluster.servers.iter().map(ToldClock::of).collect::<io::Result<_>>()?;
        Ok(Self::Cluster(cluster, clocks))
    }

    /// The clocks that say there what time it is.
    pub(crate) fn clocks(&self) -> io::Result<Vec<ToldClock>> {
        match self {
            Self::Server(server) => Ok(vec![ToldClock::of(server.running())?]),
            Self::Cluster(cluster, _) => cluster.servers.iter().map(ToldClock::of).collect(),
        }
    }

    /// Says what time it is, in microseconds since 1970.
    pub(crate) fn set_time(&self, micros: u64) {
        match self {
            Self::Server(server) => server.set_time(micros),
            Self::Cluster(_, clocks) => clocks.iter().for_each(|clock| clock.set(micros).unwrap()),
        }
    }

    /// The URL of the store in it, by this way.
    pub(crate) fn url(&self, way: Way) -> String {
        match self {
            Self::Server(server) => way.url(server),
            // A machine with many other things to do may be slow to answer.
            Self::Cluster(cluster, _) if way == Way::OneSlot => cluster.url("?timeout=10s&prefix={suite}:"),
            Self::Cluster(cluster, _) => cluster.url("?timeout=10s"),
        }
    }

    /// Takes all away that is in it.
    pub(crate) fn empty(&self) -> io::Result<()> {
        match self {
            Self::Server(server) => {
                redis::cmd("FLUSHALL").exec(&mut server.connect()).map_err(io::Error::other)
            }
            Self::Cluster(cluster, _) => {
                // Replicas refuse it, and get it from their masters.
                cluster.servers.iter().try_for_each(|server| ask(server, &["FLUSHALL"]).map(drop))
            }
        }
    }
}
