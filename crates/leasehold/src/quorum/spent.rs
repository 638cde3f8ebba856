//! Which ids this client has given up: what a node may still be told to give back must not be claimed there again.
//!
//! A waiter asks again under the same id. Were that claimed while an earlier give-back is on its way to a node, or is
//! still to be sent because the node answers late, the node would count for a majority and then let go.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{BootTime, ClaimId, Clock, fault};
use tokio::sync::watch;

use super::MOST_KNOWN;

/// For so long late answers are waited for; then the id is given up, which costs nothing but another one.
const PATIENCE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// Some nodes are still to say whether they have anything of it.
    Open,
    Spent,
}

/// The ids that were given up, and until when that is remembered.
#[derive(Debug, Default)]
pub(super) struct Spent {
    marks: Mutex<HashMap<ClaimId, (Mark, BootTime)>>,
    /// Told whenever an open one is decided.
    decided: watch::Sender<()>,
}

impl Spent {
    fn marks(&self) -> MutexGuard<'_, HashMap<ClaimId, (Mark, BootTime)>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mark(&self, id: ClaimId, mark: Mark, now: BootTime, lasting: Duration) {
        let mut marks = self.marks();
        if marks.len() >= MOST_KNOWN {
            marks.retain(|_, (_, until)| *until > now);
        }
        marks.insert(id, (mark, now.after(lasting)));
    }

    /// It is being given back somewhere.
    pub(super) fn add(&self, id: ClaimId, now: BootTime, lasting: Duration) {
        self.mark(id, Mark::Spent, now, lasting);
        self.decided.send_replace(());
    }

    /// Late answers will tell whether it has to be.
    pub(super) fn open(&self, id: ClaimId, now: BootTime, lasting: Duration) {
        self.mark(id, Mark::Open, now, lasting);
    }

    /// All answers are there, and nothing of it is anywhere, unless it was added meanwhile.
    pub(super) fn close(&self, id: ClaimId) {
        let mut marks = self.marks();
        if marks.get(&id).is_some_and(|(mark, _)| *mark == Mark::Open) {
            marks.remove(&id);
        }
        drop(marks);
        self.decided.send_replace(());
    }

    /// Whether it must not be claimed any more.
    pub(super) async fn has(&self, id: ClaimId, clock: &Clock) -> bool {
        let mut decided = self.decided.subscribe();
        let end = clock.now().after(PATIENCE);
        loop {
            let mark = self.marks().get(&id).map(|(mark, _)| *mark);
            let left = end.since(clock.now());
            match mark {
                _ if fault!("quorum_claims_what_it_gives_back") => return false,
                None => return false,
                Some(Mark::Open) if !left.is_zero() => {
                    // Whoever decides lives as long as this.
                    let _ = clock.within(left, decided.changed()).await;
                }
                Some(Mark::Open | Mark::Spent) => return true,
            }
        }
    }
}
