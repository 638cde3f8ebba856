//! The nodes of a cluster, and what is known of who has which slot.
//!
//! Each node has a connection of our own, as a single server has: with its deadlines, its check of roles, its doubts. The
//! client library has one for clusters, which sends again behind our back, and whose silent connections would not be ours to
//! give up.

pub(crate) mod route;
pub(crate) mod slots;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use leasehold_core::{Clock, Doubt, StoreErrorKind, fault};

use crate::config::{Place, Settings, Site, Tls};
use crate::fail::{Fail, Result};
use crate::link::{Doubts, Link};
use crate::nodes::Peers;
use crate::servers::Node;
use crate::wake::Wakes;

use self::slots::{Address, Change, Slots};

/// After so long without an answer another node is asked as well who has what.
const NEXT_ONE: Duration = Duration::from_millis(100);
/// No oftener is that asked because requests meet nodes that have nothing.
const RELEARN: Duration = Duration::from_secs(1);

/// The nodes of one cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    settings: Settings,
    seeds: Vec<Address>,
    tls: Tls,
    clock: Clock,
    pub(crate) doubts: Arc<Doubts>,
    wakes: Arc<Wakes>,
    known: Mutex<Known>,
    learning: tokio::sync::Mutex<()>,
    attempts: AtomicU64,
    relearning: AtomicBool,
}

#[derive(Debug)]
struct Known {
    slots: Slots,
    nodes: HashMap<Address, Arc<Node>>,
    /// Why nobody could tell us, when we last asked.
    failed: Option<Fail>,
}

impl Cluster {
    pub(crate) fn new(settings: &Settings, seeds: &[Place], clock: &Clock, wakes: &Arc<Wakes>) -> Arc<Self> {
        let tls = match seeds.first() {
            Some(Place::Tcp { tls, .. }) => tls.clone(),
            _ => None,
        };
        Arc::new(Self {
            settings: settings.clone(),
            tls,
            seeds: seeds.iter().filter_map(Address::of).collect(),
            clock: clock.clone(),
            doubts: Arc::default(),
            wakes: wakes.clone(),
            known: Mutex::new(Known { slots: Slots::nobodys(), nodes: HashMap::new(), failed: None }),
            learning: tokio::sync::Mutex::default(),
            attempts: AtomicU64::new(0),
            relearning: AtomicBool::new(false),
        })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long one answer may take.
    pub(crate) fn limit(&self) -> Duration {
        self.settings.timeout
    }

    /// The node at this address.
    fn node(&self, address: &Address) -> Result<Arc<Node>> {
        if let Some(node) = self.known().nodes.get(address) {
            return Ok(node.clone());
        }
        let node = Node::new(self.link(address)?, Some(address.clone()));
        Ok(self.known().nodes.entry(address.clone()).or_insert(node).clone())
    }

    fn link(&self, address: &Address) -> Result<Link> {
        let Address { host, port } = address.clone();
        let site = Site::Fixed(Place::Tcp { host, port, tls: self.tls.clone() });
        // Two addresses of one node are no two votes here.
        let settings =
            Settings { label: address.to_string(), site, peers: Peers::default(), ..self.settings.clone() };
        Ok(Link::new(&settings, self.clock.clone())?.doubting(&self.doubts))
    }

    /// Who has this slot, as far as we know.
    fn owner(&self, slot: u16) -> Option<Address> {
        self.known().slots.owner(slot).cloned()
    }

    /// The slots that nobody has, as far as we know.
    pub(crate) fn uncovered(&self) -> Vec<String> {
        let slots = self.known().slots.clone();
        if slots.is_empty() { Vec::new() } else { slots.uncovered() }
    }

    /// All masters that have slots.
    pub(crate) async fn masters(self: &Arc<Self>) -> Result<Vec<Arc<Node>>> {
        self.learn(None).await?;
        let masters = self.known().slots.masters();
        masters.iter().map(|address| self.node(address)).collect()
    }

    /// This slot is elsewhere, said a node that should know; the others may be as well.
    fn moved(self: &Arc<Self>, slot: u16, to: Address) {
        let change = self.known().slots.moved(slot, to);
        if change == Change::Promoted && !fault!("cluster_doubts_nothing") {
            self.doubts.raise(Doubt::Replaced);
        }
        if change != Change::None {
            self.relearn(None);
        }
    }

    /// Asks in the background who has what, unless that is being done.
    fn relearn(self: &Arc<Self>, avoid: Option<Address>) {
        if self.relearning.swap(true, Ordering::SeqCst) {
            return;
        }
        let cluster = Arc::downgrade(self);
        tokio::spawn(async move {
            if let Some(cluster) = cluster.upgrade() {
                drop(cluster.learn(avoid.as_ref()).await);
            }
            tokio::time::sleep(RELEARN).await;
            if let Some(cluster) = cluster.upgrade() {
                cluster.relearning.store(false, Ordering::SeqCst);
            }
        });
    }

    /// Asks one of the nodes who has what, this one last of all. Who waited while somebody else asked is content with
    /// what he was told.
    async fn learn(&self, avoid: Option<&Address>) -> Result<()> {
        let before = self.attempts.load(Ordering::SeqCst);
        let _alone = self.learning.lock().await;
        if self.attempts.load(Ordering::SeqCst) != before {
            return self.known().failed.clone().map_or(Ok(()), Err);
        }
        let told = self.ask(avoid).await;
        self.attempts.fetch_add(1, Ordering::SeqCst);
        match told {
            Ok(slots) => {
                self.adopt(slots);
                Ok(())
            }
            Err(fail) => {
                self.known().failed = Some(fail.clone());
                Err(fail)
            }
        }
    }

    fn adopt(&self, slots: Slots) {
        let mut known = self.known();
        let change = slots.since(&known.slots);
        let masters = slots.masters();
        let gone: Vec<u64> = known
            .nodes
            .iter()
            .filter(|(address, _)| !masters.contains(address))
            .map(|(_, node)| node.number)
            .collect();
        known.nodes.retain(|address, _| masters.contains(address));
        (known.slots, known.failed) = (slots, None);
        drop(known);
        for node in gone {
            self.wakes.leave(node);
        }
        match change {
            _ if fault!("cluster_doubts_nothing") => {}
            Change::None => {}
            // It went with all that was in it. Whoever holds something there asks, to be sure.
            Change::Moved => self.doubts.raise(Doubt::Cut),
            Change::Promoted => self.doubts.raise(Doubt::Replaced),
        }
    }

    /// In no certain order, so that not all clients ask the same node; and more of them, where one does not answer soon.
    async fn ask(&self, avoid: Option<&Address>) -> Result<Slots> {
        // Those first to whom there is a connection.
        let mut order = self.known().slots.masters();
        fastrand::shuffle(&mut order);
        let mut seeds = self.seeds.clone();
        fastrand::shuffle(&mut seeds);
        seeds.retain(|seed| !order.contains(seed));
        order.extend(seeds);
        order.sort_by_key(|address| Some(address) == avoid);
        let mut order = order.into_iter();
        let mut asking = FuturesUnordered::new();
        let mut failed: Option<Fail> = None;
        loop {
            if let Some(address) = order.next() {
                asking.push(self.ask_one(address));
            } else if asking.is_empty() {
                return Err(failed.unwrap_or_else(|| Fail::garbled("a cluster without nodes")));
            }
            let more = order.len() > 0;
            tokio::select! {
                Some(told) = asking.next() => match told {
                    Ok(slots) => return Ok(slots),
                    // What will not pass by itself says more than that somebody else is away.
                    Err(fail) => failed = Some(match failed {
                        Some(worse) if !worse.is_away() => worse,
                        _ => fail,
                    }),
                },
                () = tokio::time::sleep(NEXT_ONE), if more => {}
            }
        }
    }

    async fn ask_one(&self, address: Address) -> Result<Slots> {
        let known = self.known().nodes.get(&address).cloned();
        let mut slots = redis::cmd("CLUSTER");
        slots.arg("SLOTS");
        let told = match known {
            Some(node) => node.link.ask_aside(&slots).await,
            None => self.link(&address)?.ask_aside(&slots).await,
        };
        let slots = told.map_err(Fail::no_cluster).and_then(|told| Slots::parse(told, &address));
        let slots = slots.map_err(|fail| fail.not_sent().at(&address))?;
        if slots.is_empty() {
            let message = "this node belongs to no cluster that has slots yet";
            return Err(Fail::new(StoreErrorKind::Unavailable, message)
                .help("make one: `redis-cli --cluster create`")
                .at(&address));
        }
        Ok(slots)
    }

    /// Gives all connections up.
    pub(crate) async fn close(&self) {
        let nodes = std::mem::take(&mut self.known().nodes);
        for node in nodes.into_values() {
            node.link.close().await;
        }
    }
}
