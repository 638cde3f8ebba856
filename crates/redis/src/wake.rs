//! Who of this process waits for what, and the one subscribed connection by which it is told.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use leasehold_core::{BootTime, ClaimId};
use tokio::sync::{mpsc, watch};

use crate::events::{self, Ears, Order};
use crate::fail::Result;
use crate::keys::id_of;
use crate::link::Link;

/// How often a subscribed connection is tried, since one on which nothing arrives may be dead.
const TRY_EVERY: Duration = Duration::from_secs(5);
/// Registrations of claims that nobody asked about for so long are dropped.
const STALE: Duration = Duration::from_secs(60);
const MANY: usize = 64;

/// The waits of one store.
#[derive(Debug)]
pub(crate) struct Wakes {
    /// Where pushes for this process go.
    pub(crate) channel: String,
    inner: Mutex<Inner>,
    starting: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Inner {
    waits: HashMap<ClaimId, Registered>,
    live: bool,
    claims: u64,
    ears: Ears,
    task: Option<tokio::task::AbortHandle>,
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
            crate::fail::Fail::new(
                leasehold_core::StoreErrorKind::Unexpected,
                format!("no random bytes: {error}"),
            )
        })?;
        let channel = format!("lh:wake:{:016x}", u64::from_be_bytes(bytes));
        // No cursor of another client may be taken for one of ours.
        let inner = Inner { claims: u64::from_be_bytes(bytes), ..Inner::default() };
        Ok(Self { channel, inner: Mutex::new(inner), starting: tokio::sync::Mutex::new(()) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether pushes arrive.
    pub(crate) fn is_live(&self) -> bool {
        self.lock().live
    }

    /// Notes that a claim is about to be sent, so that no push for it is missed.
    /// Gives the number of this claim.
    pub(crate) fn expect(&self, id: ClaimId, now: BootTime) -> u64 {
        let mut inner = self.lock();
        let inner = &mut *inner;
        inner.claims = inner.claims.wrapping_add(1);
        if inner.waits.len() >= MANY {
            let ears = &mut inner.ears;
            inner.waits.retain(|id, wait| {
                let lives = now.since(wait.touched) < STALE || wait.pushes.receiver_count() > 0;
                if !lives {
                    ears.forget(*id);
                }
                lives
            });
        }
        let claimed = inner.claims;
        let pushes = || watch::Sender::new(0);
        let fresh = || Registered { pushes: pushes(), before: 0, until: None, touched: now, claimed };
        let wait = inner.waits.entry(id).or_insert_with(fresh);
        wait.before = *wait.pushes.borrow();
        (wait.until, wait.touched, wait.claimed) = (None, now, claimed);
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

    /// Notes whether a claim waits, as the first in line, for the end of a key that another client holds; it is
    /// then pushed when the server tells of that, if it does.
    pub(crate) fn mind(&self, id: ClaimId, foreign: Option<String>) {
        let ears = &mut self.lock().ears;
        match foreign {
            Some(channel) => ears.hear(id, channel),
            None => ears.forget(id),
        }
    }

    /// The claim waits no longer; who still waits on it is told.
    pub(crate) fn forget(&self, id: ClaimId) {
        let mut inner = self.lock();
        inner.ears.forget(id);
        inner.waits.remove(&id);
    }

    fn push(&self, id: ClaimId) {
        if let Some(wait) = self.lock().waits.get(&id) {
            wait.pushes.send_modify(|pushes| *pushes += 1);
        }
    }

    /// Pushes those who wait for the end of a foreign key.
    fn push_listeners(&self, channel: &str) {
        let inner = self.lock();
        for wait in inner.ears.listeners(channel).filter_map(|id| inner.waits.get(&id)) {
            wait.pushes.send_modify(|pushes| *pushes += 1);
        }
    }

    fn message(&self, message: &redis::Msg) {
        let Ok(text) = message.get_payload::<String>() else { return };
        let channel = message.get_channel_name();
        if channel != self.channel {
            if events::is_end(&text) {
                self.push_listeners(channel);
            }
        } else if let Some(id) = id_of(&text) {
            self.push(id);
        }
    }

    /// Carries an order out, and says whether the connection is still good. A server that lets nobody listen to its
    /// events is none that lacks anything: whoever waits looks again anyway.
    async fn obey(&self, order: Order, sink: &mut redis::aio::PubSubSink) -> bool {
        let done = match &order {
            Order::Hear(channel) => tokio::time::timeout(TRY_EVERY, sink.subscribe(channel)).await,
            Order::Forget(channel) => tokio::time::timeout(TRY_EVERY, sink.unsubscribe(channel)).await,
        };
        match (done, order) {
            (Ok(Ok(())), Order::Hear(channel)) => self.push_listeners(&channel),
            (Ok(Ok(())), Order::Forget(_)) => {}
            (Ok(Err(error)), _) if !error.is_unrecoverable_error() => self.lock().ears.refused(),
            (Ok(Err(_)) | Err(_), _) => return false,
        }
        true
    }

    /// Ends all waits: pushes may have been missed.
    fn deafen(&self) {
        let mut inner = self.lock();
        (inner.live, inner.ears) = (false, Ears::default());
        for wait in inner.waits.values() {
            wait.pushes.send_modify(|pushes| *pushes += 1);
        }
    }

    /// Subscribes, unless that is so.
    pub(crate) async fn listen(self: &Arc<Self>, link: &Link) -> Result<()> {
        let _alone = self.starting.lock().await;
        if self.is_live() {
            return Ok(());
        }
        let (mut sink, mut stream) = link.subscribe(&self.channel).await?;
        let end = End(self.clone());
        let (orders, mut given) = mpsc::unbounded_channel();
        {
            let mut inner = self.lock();
            (inner.live, inner.ears) = (true, Ears::over(orders));
        }
        let wakes = self.clone();
        let task = tokio::spawn(async move {
            let _end = end;
            let mut tries = tokio::time::interval(TRY_EVERY);
            tries.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    message = stream.next() => {
                        let Some(message) = message else { return };
                        wakes.message(&message);
                    }
                    // The other end lies in the store, which ends this task with itself.
                    Some(order) = given.recv() => {
                        if !wakes.obey(order, &mut sink).await {
                            return;
                        }
                    }
                    _ = tries.tick() => {
                        let answer = tokio::time::timeout(TRY_EVERY, sink.ping::<redis::Value>()).await;
                        if !matches!(answer, Ok(Ok(_))) {
                            return;
                        }
                    }
                }
            }
        });
        self.lock().task = Some(task.abort_handle());
        Ok(())
    }

    /// Ends the subscription.
    pub(crate) fn close(&self) {
        if let Some(task) = self.lock().task.take() {
            task.abort();
        }
    }
}

/// However the subscription ends, also with its runtime, all waits end with it.
struct End(Arc<Wakes>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.deafen();
    }
}
