//! What this process knows of its own claims: where their nodes stand, over which session, and which have ended.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{BootTime, ClaimId, Share, Token};

use crate::session::Session;

/// More than a process ever has at a time: beyond it the oldest that ended are forgotten.
const MOST_ENDED: usize = 100_000;

/// One claim.
#[derive(Debug, Clone)]
pub(crate) struct Hold {
    pub(crate) session: Arc<Session>,
    pub(crate) share: Share,
    /// Its node, once it is known to stand.
    pub(crate) node: Option<Node>,
    /// What it got.
    pub(crate) granted: Option<Granted>,
}

/// A node that stands in a line.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) path: String,
    /// What creates it in the order of all changes: its token.
    pub(crate) token: Token,
}

/// What a claim got.
#[derive(Debug, Clone)]
pub(crate) struct Granted {
    /// Until when it holds unless renewed.
    pub(crate) until: BootTime,
    /// Which tenure and note its node tells of.
    pub(crate) tenure: u32,
    pub(crate) note: leasehold_core::Note,
}

#[derive(Debug, Default)]
struct Known {
    holds: HashMap<ClaimId, Hold>,
    ended: HashMap<ClaimId, BootTime>,
    /// In the order in which they may be forgotten, more or less.
    order: VecDeque<(BootTime, ClaimId)>,
}

#[derive(Debug, Default)]
pub(crate) struct Holds(Mutex<Known>);

impl Holds {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, id: ClaimId) -> Option<Hold> {
        self.lock().holds.get(&id).cloned()
    }

    /// Notes what is known of it from now on.
    pub(crate) fn note(&self, id: ClaimId, hold: Hold) {
        self.lock().holds.insert(id, hold);
    }

    pub(crate) fn grant(&self, id: ClaimId, granted: Granted) {
        if let Some(hold) = self.lock().holds.get_mut(&id) {
            hold.granted = Some(granted);
        }
    }

    pub(crate) fn forget(&self, id: ClaimId) -> Option<Hold> {
        self.lock().holds.remove(&id)
    }

    /// It is never granted any more. Forgets others whose time has come.
    pub(crate) fn end(&self, id: ClaimId, now: BootTime, remembered: Duration) {
        let mut known = self.lock();
        known.holds.remove(&id);
        let until = now.after(remembered);
        known.ended.insert(id, until);
        known.order.push_back((until, id));
        while let Some((until, oldest)) = known.order.front().copied()
            && (until <= now || known.order.len() > MOST_ENDED)
        {
            known.order.pop_front();
            if known.ended.get(&oldest).is_some_and(|other| *other == until) {
                known.ended.remove(&oldest);
            }
        }
    }

    pub(crate) fn has_ended(&self, id: ClaimId) -> bool {
        self.lock().ended.contains_key(&id)
    }
}
