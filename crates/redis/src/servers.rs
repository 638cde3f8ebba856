//! The servers of one store: one, or the masters of a cluster, of which each request goes to the one that has its slot.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use leasehold_core::{Clock, Doubt};
use redis::{Cmd, Value};

use crate::cluster::Cluster;
use crate::cluster::route::Hops;
use crate::cluster::slots::Address;
use crate::config::{Settings, Site};
use crate::fail::Result;
use crate::keys::{Keys, slot};
use crate::link::{Link, Live};
use crate::script::Script;
use crate::wake::Wakes;

/// A server that is spoken to.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) link: Link,
    /// By which it is told from others of this process, and from itself before it went and came again.
    pub(crate) number: u64,
    /// Where it is, among the nodes of a cluster.
    pub(crate) address: Option<Address>,
    /// Held while a subscription to it is made.
    pub(crate) subscribing: tokio::sync::Mutex<()>,
    /// It has no channels of slots, or lets us subscribe to none.
    pub(crate) tells_all: AtomicBool,
}

impl Node {
    pub(crate) fn new(link: Link, address: Option<Address>) -> Arc<Self> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            link,
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            address,
            subscribing: tokio::sync::Mutex::default(),
            tells_all: AtomicBool::new(false),
        })
    }
}

/// All of them.
#[derive(Debug)]
pub(crate) enum Servers {
    One(Arc<Node>),
    Cluster(Arc<Cluster>),
}

/// A request that has arrived where it belongs, as far as we know.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) node: Arc<Node>,
    pub(crate) live: Arc<Live>,
    /// Whether it was sent here by the node that still has the slot.
    pub(crate) asking: bool,
}

impl Visit {
    /// Runs a script.
    pub(crate) async fn run(&self, script: &Script, keys: &[String], args: &[Vec<u8>]) -> Result<Value> {
        if self.asking {
            return self.node.link.call_asking(&self.live, &script.by_source(keys, args)).await;
        }
        self.node.link.run_on(&self.live, script, keys, args).await
    }

    /// Sends a command.
    pub(crate) async fn call(&self, command: &Cmd) -> Result<Value> {
        if self.asking {
            return self.node.link.call_asking(&self.live, command).await;
        }
        self.node.link.call_on(&self.live, command).await
    }
}

/// The way of one request. Where it was refused because it belongs elsewhere, or for now, the same request may be made
/// again at the next stop.
#[derive(Debug)]
pub(crate) enum Route<'a> {
    One(&'a Arc<Node>),
    Cluster(Hops<'a>),
}

impl Route<'_> {
    /// Where to make the request.
    pub(crate) async fn here(&mut self) -> Result<Visit> {
        match self {
            Self::One(node) => {
                let live = node.link.live().await?;
                Ok(Visit { node: Arc::clone(node), live, asking: false })
            }
            Self::Cluster(hops) => hops.here().await,
        }
    }

    /// Whether there is another stop after this failure. If not, it is told as it is to be told.
    pub(crate) async fn turn(&mut self, visit: &Visit, fail: crate::fail::Fail) -> Result<()> {
        match self {
            Self::One(_) => Err(fail),
            Self::Cluster(hops) => hops.turn(visit, fail).await,
        }
    }
}

impl Servers {
    pub(crate) fn new(settings: &Settings, clock: &Clock, wakes: &Arc<Wakes>) -> Result<Self> {
        match &settings.site {
            Site::Cluster(seeds) => Ok(Self::Cluster(Cluster::new(settings, seeds, clock, wakes))),
            _ => Ok(Self::One(Node::new(Link::new(settings, clock.clone())?, None))),
        }
    }

    /// The way of a request for this key.
    pub(crate) fn route(&self, key: &str) -> Route<'_> {
        match self {
            Self::One(node) => Route::One(node),
            Self::Cluster(cluster) => Route::Cluster(Hops::new(cluster, slot(key))),
        }
    }

    /// Runs a script where its first key is.
    pub(crate) async fn run(&self, script: &Script, keys: &[String], args: &[Vec<u8>]) -> Result<Value> {
        let mut route = self.route(keys.first().map_or("", String::as_str));
        loop {
            let visit = route.here().await?;
            match visit.run(script, keys, args).await {
                Err(fail) => route.turn(&visit, fail).await?,
                done => return done,
            }
        }
    }

    /// Sends a command where this key is.
    pub(crate) async fn call(&self, key: &str, command: &Cmd) -> Result<Value> {
        let mut route = self.route(key);
        loop {
            let visit = route.here().await?;
            match visit.call(command).await {
                Err(fail) => route.turn(&visit, fail).await?,
                done => return done,
            }
        }
    }

    /// The one that has this key, as far as we know.
    pub(crate) async fn node_of(&self, key: &str) -> Result<Arc<Node>> {
        Ok(self.route(key).here().await?.node)
    }

    /// Each of them.
    pub(crate) async fn all(&self) -> Result<Vec<Arc<Node>>> {
        match self {
            Self::One(node) => Ok(vec![node.clone()]),
            Self::Cluster(cluster) => cluster.masters().await,
        }
    }

    /// Whether it takes more than one.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// The slots of a cluster that are nobody's, as far as we know.
    pub(crate) fn uncovered(&self) -> Option<Vec<String>> {
        match self {
            Self::One(_) => None,
            Self::Cluster(cluster) => Some(cluster.uncovered()),
        }
    }

    /// The slot of this key, where slots are at different servers.
    pub(crate) fn slot(&self, key: &str) -> Option<u16> {
        self.is_cluster().then(|| slot(key))
    }

    /// These keys, those of one slot together where that matters to a script.
    pub(crate) fn by_slot(&self, keys: Vec<String>) -> Vec<Vec<String>> {
        let mut groups: BTreeMap<Option<u16>, Vec<String>> = BTreeMap::new();
        for key in keys {
            groups.entry(self.slot(&key)).or_default().push(key);
        }
        groups.into_values().collect()
    }

    /// The counter behind the tokens of this name.
    pub(crate) fn tokens(&self, keys: &Keys) -> String {
        keys.tokens(self.slot(&keys.plain))
    }

    /// Returns once what they granted may be gone.
    pub(crate) async fn doubt(&self) -> Doubt {
        match self {
            Self::One(node) => node.link.doubt().await,
            Self::Cluster(cluster) => cluster.doubts.next().await,
        }
    }

    /// Gives all connections up.
    pub(crate) async fn close(&self) {
        match self {
            Self::One(node) => node.link.close().await,
            Self::Cluster(cluster) => cluster.close().await,
        }
    }
}
