//! What this process knows of its own claims: where their nodes stand, over which session, and which have ended.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{BootTime, ClaimId, PLACE_LIFE, Share, Token};

use crate::session::Session;

/// More than a process ever has at a time: beyond it the oldest that ended are forgotten.
const MOST_ENDED: usize = 100_000;

/// One claim.
#[derive(Debug, Clone)]
pub(crate) struct Hold {
    pub(crate) session: Arc<Session>,
    /// The directory that its node is in.
    pub(crate) line: String,
    pub(crate) share: Share,
    /// Its node, once it is known to stand.
    pub(crate) node: Option<Node>,
    /// What it got.
    pub(crate) granted: Option<Granted>,
    /// When it was last stated.
    pub(crate) stated: BootTime,
    /// Whether there may be a node of it, known or not.
    pub(crate) sent: bool,
    /// Each wait for its turn has one, too.
    pub(crate) waits: Arc<()>,
}

impl Hold {
    /// A claim that nothing was done for yet.
    pub(crate) fn new(session: Arc<Session>, line: String, share: Share, stated: BootTime) -> Self {
        Self { session, line, share, node: None, granted: None, stated, sent: false, waits: Arc::default() }
    }

    /// Nobody has asked for it for so long that nobody will: its time is up, or its place is.
    fn has_lapsed(&self, now: BootTime) -> bool {
        match &self.granted {
            Some(granted) => granted.until <= now,
            // The map has one.
            None => Arc::strong_count(&self.waits) == 1 && now.since(self.stated) > PLACE_LIFE,
        }
    }
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
    /// Those whose time is up, while their nodes are taken away.
    lapsing: HashMap<ClaimId, Hold>,
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

    /// Notes what it got. Not if it was released, or has lapsed, meanwhile: then it got nothing.
    #[must_use]
    pub(crate) fn grant(&self, id: ClaimId, granted: Granted) -> bool {
        let mut known = self.lock();
        let Some(hold) = known.holds.get_mut(&id) else { return false };
        hold.granted = Some(granted);
        true
    }

    /// It was stated again.
    pub(crate) fn refresh(&self, id: ClaimId, now: BootTime) {
        if let Some(hold) = self.lock().holds.get_mut(&id) {
            hold.stated = now;
        }
    }

    /// The claims that have lapsed by now, and those whose nodes could not be taken away yet. From here on nobody is granted
    /// them, until they are [done](Self::lapse_done) with.
    pub(crate) fn lapsed(&self, now: BootTime) -> Vec<(ClaimId, Hold)> {
        let mut known = self.lock();
        let Known { holds, lapsing, .. } = &mut *known;
        lapsing.extend(holds.extract_if(|_, hold| hold.has_lapsed(now)));
        lapsing.iter().map(|(id, hold)| (*id, hold.clone())).collect()
    }

    /// Whether its time is up, and its node may still stand: with what it got, if it got anything.
    pub(crate) fn lapsing(&self, id: ClaimId) -> Option<Option<Granted>> {
        self.lock().lapsing.get(&id).map(|hold| hold.granted.clone())
    }

    pub(crate) fn lapse_done(&self, id: ClaimId) {
        self.lock().lapsing.remove(&id);
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
