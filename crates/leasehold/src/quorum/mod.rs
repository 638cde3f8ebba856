//! A store made of stores: a lease holds when a majority of independent nodes has granted it (*Redlock*).
//!
//! The algorithm, what it promises and what it does not are told in `docs/design/quorum.md`.

mod claim;
mod doctor;
mod node;
mod renew;
mod round;
mod spent;
mod view;

use std::collections::HashMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use leasehold_core::quorum::majority;
use leasehold_core::{
    BootTime, Capabilities, Claim, ClaimId, Clock, ConfigError, Cursor, Doctor, Doubt, Expiry, Fencing,
    Leave, Ledger, LockName, Minting, Op, Queueing, Reach, Release, Renew, Renewal, Result, Shares, Snapshot,
    Standing, Store, Together, Unsupported, Wake,
};

use node::{Known, Node};
use round::Heard;
use spent::Spent;

/// How long a node may take to answer, unless told otherwise.
const NODE_TIMEOUT: Duration = Duration::from_millis(500);
/// And not more than this part of the ttl, so that something of it is left.
const PART_OF_TTL: u32 = 10;
/// The longest lease that is given, unless told otherwise. A node whose clock jumped has no say for as long.
const LONGEST_TTL: Duration = Duration::from_secs(10 * 60);
/// More names than this are not remembered: what is forgotten costs one round trip.
const MOST_KNOWN: usize = 10_000;

/// Independent stores as one: a claim is granted when a majority of them grants it, so a minority of them may die,
/// restart without their data, or be out of reach.
///
/// Nodes must be *independent*: a replica of another node, or one behind a failover, is a node that may forget. An odd
/// number, three at least.
///
/// Tokens rise strictly even when clocks jump or answers come too late, as long as the nodes keep their counters: each
/// claim proposes one, a node takes it only above what it has taken, and two majorities share a node.
///
/// ```
/// # leasehold::doc_test(async {
/// use std::sync::Arc;
/// use leasehold::{Leasehold, MemoryStore, Quorum, Store};
///
/// let node = || Arc::new(MemoryStore::new()) as Arc<dyn Store>;
/// let quorum = Quorum::new(vec![node(), node(), node()])?;
/// let client = Leasehold::builder().store(Arc::new(quorum));
/// let lease = client.lock("deploy").acquire().await?;
/// lease.release().await
/// # });
/// ```
#[derive(Clone)]
pub struct Quorum(Arc<Inner>);

struct Inner {
    nodes: Vec<Arc<Node>>,
    clock: Clock,
    node_timeout: Duration,
    label: String,
    may: Capabilities,
    known: Mutex<HashMap<LockName, Known>>,
    /// What was granted to this client, and until when that is remembered.
    granted: Mutex<HashMap<ClaimId, BootTime>>,
    spent: Spent,
}

/// How a [`Quorum`] is made.
#[derive(Debug, Clone)]
#[must_use = "it makes no quorum until it is told to"]
pub struct QuorumBuilder {
    nodes: Vec<Arc<dyn Store>>,
    clock: Clock,
    node_timeout: Duration,
    longest_ttl: Duration,
    label: Option<String>,
}

impl QuorumBuilder {
    /// The clock of this client; the machine's by default.
    pub fn clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// How long each node may take to answer; half a second by default, and a tenth of the ttl at most.
    pub fn node_timeout(self, node_timeout: Duration) -> Self {
        Self { node_timeout, ..self }
    }

    /// The longest ttl that may be asked for; ten minutes by default. A node whose clock jumped, or which forgot what
    /// it had granted, has no say for so long, so a short one brings it back sooner.
    pub fn longest_ttl(self, longest_ttl: Duration) -> Self {
        Self { longest_ttl, ..self }
    }

    /// What it is called in errors; the names of its nodes by default.
    pub fn label(self, label: impl Into<String>) -> Self {
        Self { label: Some(label.into()), ..self }
    }

    /// Makes it.
    ///
    /// # Errors
    ///
    /// When there are fewer than three nodes or an even number, or a node cannot take proposed tokens.
    pub fn build(self) -> Result<Quorum> {
        let Self { nodes, clock, node_timeout, longest_ttl, label } = self;
        if nodes.len() < 3 || nodes.len().is_multiple_of(2) {
            let message = format!("{} nodes make no quorum", nodes.len());
            let help =
                "give an odd number, three at least: a fourth node tolerates no more losses than three do";
            return Err(ConfigError::new(message).help(help).into());
        }
        let may = common(&nodes, longest_ttl)?;
        let label = label.unwrap_or_else(|| {
            format!("quorum of {}", nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
        });
        let node = |store| Arc::new(Node::new(store, clock.clone(), longest_ttl));
        let nodes = nodes.into_iter().map(node).collect();
        Ok(Quorum(Arc::new(Inner {
            nodes,
            clock,
            node_timeout,
            label,
            may,
            known: Mutex::default(),
            granted: Mutex::default(),
            spent: Spent::default(),
        })))
    }
}

/// What all of them can do, of what a quorum can.
fn common(nodes: &[Arc<dyn Store>], longest_ttl: Duration) -> Result<Capabilities> {
    let mut may = Capabilities {
        fencing: Fencing::Strong,
        // One for each grant, and nobody else's proposals.
        minting: Minting::Revision,
        shares: Shares::Exclusive,
        queueing: Queueing::Never,
        expiry: Expiry::PerClaim,
        wake: Wake::Poll,
        closing: true,
        together: false,
        reshaping: false,
        succession: false,
        aftermath: true,
        reach: Reach::Fleet,
        ttl: Duration::ZERO..=longest_ttl,
    };
    for node in nodes {
        let Capabilities { fencing, minting, closing, aftermath, reach, ttl, .. } = node.capabilities();
        if minting != Minting::Counter {
            let message = format!("{node} takes no proposed tokens, so it cannot be a node of a quorum");
            return Err(ConfigError::new(message).into());
        }
        if fencing == Fencing::BestEffort {
            may.fencing = Fencing::BestEffort;
        }
        may.closing &= closing;
        may.aftermath &= aftermath;
        may.reach = may.reach.min(reach);
        may.ttl = *may.ttl.start().max(ttl.start())..=*may.ttl.end().min(ttl.end());
    }
    Ok(may)
}

impl Quorum {
    /// Of these nodes, with the defaults.
    ///
    /// # Errors
    ///
    /// As [`QuorumBuilder::build`].
    pub fn new(nodes: Vec<Arc<dyn Store>>) -> Result<Self> {
        Self::builder(nodes).build()
    }

    /// Of these nodes, otherwise than by default.
    pub fn builder(nodes: Vec<Arc<dyn Store>>) -> QuorumBuilder {
        QuorumBuilder {
            nodes,
            clock: Clock::system(),
            node_timeout: NODE_TIMEOUT,
            longest_ttl: LONGEST_TTL,
            label: None,
        }
    }

    fn needed(&self) -> usize {
        majority(self.0.nodes.len())
    }

    /// How long a node may take to answer where so much depends on it.
    fn limit(&self, ttl: Duration) -> Duration {
        self.0.node_timeout.min(ttl / PART_OF_TTL).max(Duration::from_millis(5))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<LockName, Known>> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the claim is repeated, not granted anew. It is forgotten when the nodes forget that it was.
    fn remember(&self, claim: &Claim) {
        let now = self.0.clock.now();
        let mut granted = self.0.granted.lock().unwrap_or_else(PoisonError::into_inner);
        if granted.len() >= MOST_KNOWN {
            granted.retain(|_, until| *until > now);
        }
        granted.insert(claim.id, now.after(claim::remembered(claim.ttl)));
    }

    fn was_granted(&self, id: ClaimId) -> bool {
        let granted = self.0.granted.lock().unwrap_or_else(PoisonError::into_inner);
        granted.get(&id).is_some_and(|until| *until > self.0.clock.now())
    }

    /// Changes what is remembered of a name.
    fn learn(&self, name: &LockName, learn: impl FnOnce(&mut Known)) {
        let mut known = self.known();
        if known.len() >= MOST_KNOWN && !known.contains_key(name) {
            known.clear();
        }
        learn(known.entry(name.clone()).or_default());
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Store for Quorum {
    fn capabilities(&self) -> Capabilities {
        self.0.may.clone()
    }

    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        self.0.may.check(claim)?;
        self.propose(claim).await
    }

    async fn claim_all(&self, _: &[Claim]) -> Result<Together> {
        Err(Unsupported::here("claiming several names in one step").into())
    }

    async fn changed(&self, name: &LockName, since: &Cursor) -> Result<()> {
        self.wait(name, since).await
    }

    async fn renew(&self, batch: &[Renew]) -> Vec<Result<Renewal>> {
        self.prolong(batch).await
    }

    async fn release(&self, name: &LockName, id: ClaimId, leave: Leave) -> Result<Release> {
        let mut answers = self.give_back(name, id, &leave, *self.0.may.ttl.end());
        let (mut had, mut had_not, mut what, mut heard) = (0, 0, Release::NotHeld, Heard::default());
        while let Some(answer) = answers.recv().await {
            match answer.said {
                Ok(Release::NotHeld) => had_not += 1,
                Ok(said) => (had, what) = (had + 1, said),
                Err(error) => {
                    heard.failed(&answer.node, &error);
                    continue;
                }
            }
            heard.ok(&answer.node);
            // What ran out on most nodes is held no longer, though one may be late; and one may never have had it.
            if had >= self.needed() {
                return Ok(what);
            }
            if had_not >= self.in_the_way() {
                return Ok(Release::NotHeld);
            }
        }
        if had + had_not >= self.needed() {
            return Ok(what);
        }
        Err(self.too_few(Op::Release, Some(name), &heard))
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot> {
        self.look(name).await
    }

    async fn list(&self, prefix: &str, after: Option<&LockName>) -> Result<Vec<LockName>> {
        self.names(prefix, after).await
    }

    async fn anchor(&self) -> Result<Option<OwnedFd>> {
        Ok(None)
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        None
    }

    async fn doubt(&self) -> Doubt {
        let mut doubts: FuturesUnordered<_> = self.0.nodes.iter().map(|node| node.store.doubt()).collect();
        // That one node was replaced endangers nothing: it gets back what it forgot by the next renewal.
        match doubts.next().await {
            Some(Doubt::Cut | Doubt::Replaced) => Doubt::Cut,
            None => std::future::pending().await,
        }
    }

    fn doctor(&self) -> Option<&dyn Doctor> {
        Some(self)
    }

    async fn close(&self) -> Result<()> {
        let mut first = Ok(());
        for node in &self.0.nodes {
            let closed = node.store.close().await;
            first = first.and(closed);
        }
        first
    }
}

impl fmt::Display for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.label)
    }
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quorum").field("nodes", &self.0.nodes).finish_non_exhaustive()
    }
}
