//! The way of one request through a cluster: where it goes next after a node has refused it, and when to give up.
//!
//! What a node refused was not executed, so the very same request may be made at another, or again. What nobody knows of
//! is never made again here: only whoever asked knows whether that does harm.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{StoreErrorKind, fault};
use tokio::time::Sleep;

use crate::fail::{Fail, Result};
use crate::servers::Visit;

use super::Cluster;
use super::slots::Address;

/// How long to wait before a request is made again that was refused for now; it doubles up to [`MOST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const MOST_PAUSE: Duration = Duration::from_millis(200);
/// How often it is asked whether a node that lets nobody connect has been replaced.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// So often a request is sent on at once. Nodes that do not agree send it to and fro.
const MOST_SENT_ON: u32 = 4;

/// What follows from a failure.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// The slot is there, from now on.
    Moved(u16, Address),
    /// This one key is there already, while the slot is on its way.
    Ask(Address),
    /// The slot is on its way, and some of the keys have arrived.
    Wait,
    /// Nobody, or somebody else, has the slot now.
    Look,
    /// That is what there is to say.
    Over,
}

fn judge(fail: &Fail, asked: &Address) -> Next {
    if fail.outcome_unknown() {
        return if fault!("cluster_resends_unknown") { Next::Look } else { Next::Over };
    }
    if let Some((slot, to)) = fail.elsewhere() {
        return match Address::parse(to, asked) {
            Some(_) if fault!("cluster_ignores_moved") => Next::Over,
            Some(to) if fail.is("ASK") => Next::Ask(to),
            Some(to) => Next::Moved(slot, to),
            None => Next::Look,
        };
    }
    if fail.is("TRYAGAIN") || fail.is_half_moved() {
        return Next::Wait;
    }
    let passes = ["CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY"].iter().any(|word| fail.is(word));
    if passes { Next::Look } else { Next::Over }
}

/// The stops of one request.
#[derive(Debug)]
pub(crate) struct Hops<'a> {
    cluster: &'a Arc<Cluster>,
    slot: u16,
    /// The next stop, if it is not with the owner of the slot.
    asks: Option<Address>,
    sent_on: u32,
    pauses: u32,
    /// The end of patience; it counts from the first refusal.
    end: Option<Pin<Box<Sleep>>>,
}

impl<'a> Hops<'a> {
    pub(crate) fn new(cluster: &'a Arc<Cluster>, slot: u16) -> Self {
        Self { cluster, slot, asks: None, sent_on: 0, pauses: 0, end: None }
    }

    /// A node that can be reached, and has the slot as far as we know.
    pub(crate) async fn here(&mut self) -> Result<Visit> {
        loop {
            let asks = self.asks.take();
            let asking = asks.is_some() && !fault!("cluster_forgets_asking");
            let Some(address) = asks.or_else(|| self.cluster.owner(self.slot)) else {
                let learnt = self.cluster.learn(None).await;
                if self.cluster.owner(self.slot).is_none() {
                    let fail = learnt.err().unwrap_or_else(|| self.uncovered());
                    self.pause(fail, None).await?;
                }
                continue;
            };
            let node = self.cluster.node(&address)?;
            // One that hangs takes connections, and says nothing. Its place may be somebody else's before we give up.
            let live = tokio::select! {
                biased;
                live = node.link.live() => live,
                () = self.replaced(&address), if !asking => continue,
            };
            match live {
                Ok(live) => return Ok(Visit { node, live, asking }),
                Err(fail) if fail.is_away() => self.pause(fail.at(&address), Some(&address)).await?,
                Err(fail) => return Err(fail.at(&address)),
            }
        }
    }

    /// Returns once the slot is no longer with this node, which is asked for now and then.
    async fn replaced(&self, address: &Address) {
        while self.cluster.owner(self.slot).as_ref() == Some(address) {
            tokio::time::sleep(LOOK_EVERY).await;
            drop(self.cluster.learn(Some(address)).await);
        }
    }

    pub(crate) async fn turn(&mut self, visit: &Visit, fail: Fail) -> Result<()> {
        let Some(asked) = &visit.node.address else { return Err(fail) };
        let next = judge(&fail, asked);
        let fail = fail.at(asked);
        match next {
            Next::Moved(slot, to) => {
                self.cluster.moved(slot, to);
                self.sent_on(fail).await
            }
            Next::Ask(to) => {
                self.asks = Some(to);
                self.sent_on(fail).await
            }
            Next::Wait => {
                let fail = Fail::in_two_places(self.slot, self.cluster.limit()).at(asked);
                self.pause(fail, None).await
            }
            Next::Look => {
                let fail = if fail.is("CLUSTERDOWN") { self.uncovered().at(asked) } else { fail };
                self.pause(fail, Some(asked)).await
            }
            Next::Over => {
                if fail.outcome_unknown() {
                    // It may be dead, and somebody else in its place soon.
                    self.cluster.relearn(Some(asked.clone()));
                }
                Err(fail)
            }
        }
    }

    async fn sent_on(&mut self, fail: Fail) -> Result<()> {
        self.sent_on += 1;
        if self.sent_on.is_multiple_of(MOST_SENT_ON) {
            let message = "the nodes of the cluster do not agree who has this slot";
            let fail = Fail::new(StoreErrorKind::Unavailable, message)
                .help("see what each of them says: `redis-cli --cluster check`")
                .after(fail);
            return self.pause(fail, None).await;
        }
        Ok(())
    }

    /// Waits a moment, and asks who has what, a node other than this one if there is one; until there is no time left
    /// for that.
    async fn pause(&mut self, fail: Fail, avoid: Option<&Address>) -> Result<()> {
        let limit = self.cluster.limit();
        let end = self.end.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        let pause = FIRST_PAUSE.saturating_mul(1 << self.pauses.min(10)).min(MOST_PAUSE);
        self.pauses += 1;
        let cluster = self.cluster;
        let wait = async {
            tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
            if let Some(avoid) = avoid {
                drop(cluster.learn(Some(avoid)).await);
            }
        };
        tokio::select! {
            () = wait => Ok(()),
            () = end => Err(fail),
        }
    }

    /// What to say when the cluster has nobody for this slot.
    fn uncovered(&self) -> Fail {
        let uncovered = self.cluster.uncovered();
        let message = if uncovered.is_empty() {
            format!("the cluster is down, also for slot {}", self.slot)
        } else {
            format!("the cluster is down: nobody has the slots {}", uncovered.join(", "))
        };
        Fail::new(StoreErrorKind::Unavailable, message).help(
            "look at it: `redis-cli --cluster check`; `redis-cli --cluster fix` gives slots to somebody",
        )
    }
}
