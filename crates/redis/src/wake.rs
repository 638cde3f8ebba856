//! Who of this process waits for what, and the subscribed connections by which it is told: one to each server.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{BootTime, ClaimId, fault};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::events::{self, Ears, Order};
use crate::fail::{Fail, Result};
use crate::hearing::{self, Heard, Sink, Stream};
use crate::keys::{id_of, tag_for};
use crate::servers::Node;

/// How often a subscribed connection is tried, since one on which nothing arrives may be dead.
const TRY_EVERY: Duration = Duration::from_secs(5);
/// Registrations of claims that nobody asked about for so long are dropped.
const STALE: Duration = Duration::from_secs(60);
/// After so many tries in which nobody waited by it a channel of a slot is given up.
const IDLE: u32 = 12;
const MANY: usize = 64;

/// The waits of one store.
#[derive(Debug)]
pub(crate) struct Wakes {
    /// By which pushes for this process are told from others.
    me: String,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    waits: HashMap<ClaimId, Registered>,
    claims: u64,
    /// By the number of the server.
    hearings: HashMap<u64, Hearing>,
}

/// A subscribed connection to one server.
#[derive(Debug)]
struct Hearing {
    /// What is listened to, and in how many tries nobody waited by it.
    channels: HashMap<String, u32>,
    ears: Ears,
    joins: UnboundedSender<Join>,
    task: Option<tokio::task::AbortHandle>,
}

/// A channel that is to be listened to as well, and whom to tell that it is.
type Join = (String, oneshot::Sender<Result<()>>);

/// Where pushes for a claim of this process go: to a channel of the server that has its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ear {
    node: u64,
    pub(crate) channel: String,
}

#[derive(Debug)]
struct Registered {
    pushes: watch::Sender<u64>,
    /// How many pushes there had been before the claim was sent.
    before: u64,
    /// When to look again at the latest.
    until: Option<BootTime>,
    touched: BootTime,
    /// By which a cursor tells whether it is from the last claim.
    claimed: u64,
    /// Where they come from, if the claim was sent by us.
    ear: Option<Ear>,
}

/// A wait for the pushes of one claim.
#[derive(Debug)]
pub(crate) struct Pushes {
    heard: watch::Receiver<u64>,
    before: u64,
    pub(crate) until: Option<BootTime>,
    /// The number of the last claim.
    pub(crate) claimed: u64,
}

impl Pushes {
    /// Returns once a push has come since the claim was sent, or none can come any more.
    pub(crate) async fn next(&mut self) {
        let before = self.before;
        drop(self.heard.wait_for(|pushes| *pushes != before).await);
    }
}

impl Wakes {
    pub(crate) fn new() -> Result<Self> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(|error| {
            Fail::new(leasehold_core::StoreErrorKind::Unexpected, format!("no random bytes: {error}"))
        })?;
        let me = format!("{:016x}", u64::from_be_bytes(bytes));
        // No cursor of another client may be taken for one of ours.
        let inner = Inner { claims: u64::from_be_bytes(bytes), ..Inner::default() };
        Ok(Self { me, inner: Mutex::new(inner) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where pushes go of a line that this server has, in this slot if it is a node of a cluster. There scripts reach
    /// the channels of their own slot, and are told who hears them; where there are none, everybody is told, by the
    /// other nodes too, and nobody knows who heard it.
    pub(crate) fn ear(&self, node: &Node, slot: Option<u16>) -> Ear {
        let channel = match slot {
            None => format!("lh:wake:{}", self.me),
            Some(_) if node.tells_all.load(Ordering::SeqCst) => format!("lh:wake:~{}", self.me),
            Some(slot) => format!("lh:wake:{{{}}}:{}", tag_for(slot), self.me),
        };
        Ear { node: node.number, channel }
    }

    /// Whether pushes arrive there.
    pub(crate) fn hears(&self, ear: &Ear) -> bool {
        self.lock().hears(ear)
    }

    /// Notes that a claim is about to be sent, so that no push for it is missed.
    /// Gives the number of this claim.
    pub(crate) fn expect(&self, id: ClaimId, now: BootTime, ear: Option<&Ear>) -> u64 {
        let mut inner = self.lock();
        let inner = &mut *inner;
        inner.claims = inner.claims.wrapping_add(1);
        if inner.waits.len() >= MANY {
            let stale =
                |wait: &Registered| now.since(wait.touched) >= STALE && wait.pushes.receiver_count() == 0;
            let gone: Vec<ClaimId> =
                inner.waits.iter().filter(|(_, wait)| stale(wait)).map(|(id, _)| *id).collect();
            gone.into_iter().for_each(|id| inner.forget(id));
        }
        let claimed = inner.claims;
        let pushes = || watch::Sender::new(0);
        let fresh =
            || Registered { pushes: pushes(), before: 0, until: None, touched: now, claimed, ear: None };
        if inner.waits.get(&id).is_some_and(|wait| wait.ear.is_some() && wait.ear.as_ref() != ear) {
            inner.unhear(id);
        }
        let wait = inner.waits.entry(id).or_insert_with(fresh);
        wait.before = *wait.pushes.borrow();
        (wait.until, wait.touched, wait.claimed) = (None, now, claimed);
        wait.ear = ear.cloned();
        claimed
    }

    /// Notes when to look again even if no push comes.
    pub(crate) fn look_at(&self, id: ClaimId, until: Option<BootTime>) {
        if let Some(wait) = self.lock().waits.get_mut(&id) {
            wait.until = until;
        }
    }

    /// The pushes for a claim that was sent.
    pub(crate) fn pushes(&self, id: ClaimId) -> Option<Pushes> {
        let inner = self.lock();
        let wait = inner.waits.get(&id)?;
        let heard = wait.pushes.subscribe();
        Some(Pushes { heard, before: wait.before, until: wait.until, claimed: wait.claimed })
    }

    /// Whether pushes for this claim arrive.
    pub(crate) fn hears_of(&self, id: ClaimId) -> bool {
        let inner = self.lock();
        inner.waits.get(&id).and_then(|wait| wait.ear.as_ref()).is_some_and(|ear| inner.hears(ear))
    }

    /// Notes whether a claim waits, as the first in line, for the end of a key that another client holds; it is
    /// then pushed when the server tells of that, if it does.
    pub(crate) fn mind(&self, id: ClaimId, foreign: Option<String>) {
        let mut inner = self.lock();
        let Some(channel) = foreign else { return inner.unhear(id) };
        let node = inner.waits.get(&id).and_then(|wait| wait.ear.as_ref()).map(|ear| ear.node);
        if let Some(hearing) = node.and_then(|node| inner.hearings.get_mut(&node)) {
            hearing.ears.hear(id, channel);
        }
    }

    /// The claim waits no longer; who still waits on it is told.
    pub(crate) fn forget(&self, id: ClaimId) {
        self.lock().forget(id);
    }

    fn heard(&self, node: u64, heard: Heard) {
        let mut inner = self.lock();
        match heard {
            Heard::Nothing => {}
            Heard::Ended(_) if fault!("cluster_forgets_waiters") => {}
            Heard::Ended(channel) => {
                if let Some(hearing) = inner.hearings.get_mut(&node) {
                    hearing.channels.remove(&channel);
                }
                // Pushes may have been missed.
                inner.push_those(|wait| {
                    wait.ear.as_ref().is_some_and(|ear| ear.node == node && ear.channel == channel)
                });
            }
            Heard::Message { channel, text } => {
                if !events::is_of_events(&channel) {
                    if let Some(wait) = id_of(&text).and_then(|id| inner.waits.get(&id)) {
                        wait.push();
                    }
                } else if events::is_end(&text) {
                    inner.push_listeners(node, &channel);
                }
            }
        }
    }

    /// Carries an order out, and says whether the connection is still good. A server that lets nobody listen to its
    /// events is none that lacks anything: whoever waits looks again anyway.
    async fn obey(&self, node: u64, order: Order, sink: &mut Sink) -> bool {
        let done = match &order {
            Order::Hear(channel) => timeout(TRY_EVERY, sink.subscribe(channel)).await,
            Order::Forget(channel) => timeout(TRY_EVERY, sink.unsubscribe(channel)).await,
        };
        match (done, order) {
            (Ok(Ok(())), Order::Hear(channel)) => self.lock().push_listeners(node, &channel),
            (Ok(Ok(())), Order::Forget(_)) => {}
            (Ok(Err(fail)), _) if !fail.outcome_unknown() => {
                if let Some(hearing) = self.lock().hearings.get_mut(&node) {
                    hearing.ears.refused();
                }
            }
            (Ok(Err(_)) | Err(_), _) => return false,
        }
        true
    }

    /// Listens to one more channel, and says whether the connection is still good.
    async fn join(&self, node: u64, (channel, joined): Join, sink: &mut Sink) -> bool {
        let done = match timeout(TRY_EVERY, sink.subscribe(&channel)).await {
            Ok(done) => done,
            Err(_) => return false,
        };
        let good = !done.as_ref().is_err_and(Fail::outcome_unknown);
        if done.is_ok()
            && let Some(hearing) = self.lock().hearings.get_mut(&node)
        {
            hearing.channels.insert(channel, 0);
        }
        drop(joined.send(done));
        good
    }

    /// Listens no longer to channels of slots in which nobody has waited for a while. Says whether the connection is
    /// still good.
    async fn leave_idle(&self, node: u64, sink: &mut Sink) -> bool {
        let idle = self.lock().idle(node);
        for channel in idle {
            if !matches!(timeout(TRY_EVERY, sink.unsubscribe(&channel)).await, Ok(Ok(()))) {
                return false;
            }
        }
        true
    }

    /// Ends all waits for pushes of this server: they may have been missed.
    fn deafen(&self, node: u64) {
        let mut inner = self.lock();
        inner.hearings.remove(&node);
        inner.push_those(|wait| wait.ear.as_ref().is_some_and(|ear| ear.node == node));
    }

    /// Listens there, unless that is so. Gives where it really is: not every server has channels of slots.
    pub(crate) async fn listen(self: &Arc<Self>, node: &Node, slot: Option<u16>) -> Result<Ear> {
        let _alone = node.subscribing.lock().await;
        let ear = self.ear(node, slot);
        if self.hears(&ear) {
            return Ok(ear);
        }
        if !self.lock().hearings.contains_key(&node.number) {
            let (sink, stream) = hearing::open(node, &ear.channel).await?;
            self.spawn(node, &ear, sink, stream);
        }
        if self.hears(&ear) {
            return Ok(ear);
        }
        match self.ask_to_join(&ear, node.link.limit()).await {
            Err(fail) if fail.is("NOPERM") || fail.is_unknown_command() => {
                node.tells_all.store(true, Ordering::SeqCst);
                let ear = self.ear(node, slot);
                if !self.hears(&ear) {
                    self.ask_to_join(&ear, node.link.limit()).await?;
                }
                Ok(ear)
            }
            joined => joined.map(|()| ear),
        }
    }

    async fn ask_to_join(&self, ear: &Ear, limit: Duration) -> Result<()> {
        let (joined, answer) = oneshot::channel();
        if let Some(hearing) = self.lock().hearings.get(&ear.node) {
            drop(hearing.joins.send((ear.channel.clone(), joined)));
        }
        let ended = || Fail::new(leasehold_core::StoreErrorKind::Unavailable, "the subscription has ended");
        timeout(limit, answer).await.ok().and_then(std::result::Result::ok).unwrap_or_else(|| Err(ended()))
    }

    fn spawn(self: &Arc<Self>, node: &Node, ear: &Ear, mut sink: Sink, mut stream: Stream) {
        let node = node.number;
        let end = End(self.clone(), node);
        let (orders, mut given) = mpsc::unbounded_channel();
        let (joins, mut joining) = mpsc::unbounded_channel();
        // That of a single server is listened to from the start.
        let listens = matches!(sink, Sink::Server(_));
        let channels = listens.then(|| (ear.channel.clone(), 0)).into_iter().collect();
        let hearing = Hearing { channels, ears: Ears::over(orders), joins, task: None };
        self.lock().hearings.insert(node, hearing);
        let wakes = self.clone();
        let task = tokio::spawn(async move {
            let _end = end;
            let mut tries = tokio::time::interval(TRY_EVERY);
            tries.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            // It has just answered.
            tries.reset();
            loop {
                let good = tokio::select! {
                    heard = stream.next() => {
                        let Some(heard) = heard else { return };
                        wakes.heard(node, heard);
                        true
                    }
                    // The other ends lie in the store, which ends this task with itself.
                    Some(order) = given.recv() => wakes.obey(node, order, &mut sink).await,
                    Some(join) = joining.recv() => wakes.join(node, join, &mut sink).await,
                    _ = tries.tick() => {
                        let answers = timeout(TRY_EVERY, sink.answers()).await;
                        answers.is_ok_and(|answers| answers) && wakes.leave_idle(node, &mut sink).await
                    }
                };
                if !good {
                    return;
                }
            }
        });
        let task = task.abort_handle();
        match self.lock().hearings.get_mut(&node) {
            Some(hearing) => hearing.task = Some(task),
            None => task.abort(),
        }
    }

    /// Ends the subscription to one server, and the waits for it.
    pub(crate) fn leave(&self, node: u64) {
        let task = self.lock().hearings.get_mut(&node).and_then(|hearing| hearing.task.take());
        if let Some(task) = task {
            task.abort();
        }
    }

    /// Ends all subscriptions.
    pub(crate) fn close(&self) {
        let nodes: Vec<u64> = self.lock().hearings.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.leave(node));
    }
}

impl Registered {
    fn push(&self) {
        self.pushes.send_modify(|pushes| *pushes += 1);
    }
}

impl Inner {
    fn hears(&self, ear: &Ear) -> bool {
        self.hearings.get(&ear.node).is_some_and(|hearing| hearing.channels.contains_key(&ear.channel))
    }

    fn push_those(&mut self, which: impl Fn(&Registered) -> bool) {
        self.waits.values().filter(|wait| which(wait)).for_each(Registered::push);
    }

    /// Pushes those who wait for the end of a foreign key.
    fn push_listeners(&self, node: u64, channel: &str) {
        let Some(hearing) = self.hearings.get(&node) else { return };
        hearing.ears.listeners(channel).filter_map(|id| self.waits.get(&id)).for_each(Registered::push);
    }

    /// This claim waits for no foreign key.
    fn unhear(&mut self, id: ClaimId) {
        let node = self.waits.get(&id).and_then(|wait| wait.ear.as_ref()).map(|ear| ear.node);
        if let Some(hearing) = node.and_then(|node| self.hearings.get_mut(&node)) {
            hearing.ears.forget(id);
        }
    }

    fn forget(&mut self, id: ClaimId) {
        self.unhear(id);
        self.waits.remove(&id);
    }

    /// Takes out the channels of slots by which nobody has waited in the last few tries.
    fn idle(&mut self, node: u64) -> Vec<String> {
        let ears = self.waits.values().filter_map(|wait| wait.ear.as_ref());
        let used: HashSet<&str> =
            ears.filter(|ear| ear.node == node).map(|ear| ear.channel.as_str()).collect();
        let Some(hearing) = self.hearings.get_mut(&node) else { return Vec::new() };
        let mut idle = Vec::new();
        for (channel, tries) in &mut hearing.channels {
            *tries = if used.contains(channel.as_str()) { 0 } else { *tries + 1 };
            if *tries > IDLE && hearing::is_of_a_slot(channel) {
                idle.push(channel.clone());
            }
        }
        hearing.channels.retain(|channel, _| !idle.contains(channel));
        idle
    }
}

/// However a subscription ends, also with its runtime, all waits for it end with it.
struct End(Arc<Wakes>, u64);

impl Drop for End {
    fn drop(&mut self) {
        self.0.deafen(self.1);
    }
}
