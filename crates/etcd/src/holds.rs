//! What this process knows of its own claims: under which leases they stand, and until when they hold.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::{BootTime, ClaimId};

use crate::value::Value;

/// More than a process ever has at a time; beyond it what is idle is dropped, and asked for when it is needed.
const MOST: usize = 100_000;

/// What is known of one claim.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hold {
    /// Whether the lease it holds under may exist.
    pub(crate) lease: bool,
    /// Whether the lease of its place may exist.
    pub(crate) place: bool,
    /// Whether leases of what it leaves behind may exist.
    pub(crate) after: bool,
    pub(crate) granted: Option<Granted>,
}

/// What a claim got.
#[derive(Debug, Clone)]
pub(crate) struct Granted {
    pub(crate) created: i64,
    /// Since when it has held, or before.
    pub(crate) since: BootTime,
    /// Until when it holds unless renewed.
    pub(crate) until: BootTime,
    /// Whether it still has the lease of its place.
    pub(crate) short: bool,
    pub(crate) value: Value,
}

#[derive(Debug, Default)]
pub(crate) struct Holds(Mutex<HashMap<ClaimId, Hold>>);

impl Holds {
    fn lock(&self) -> MutexGuard<'_, HashMap<ClaimId, Hold>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, id: ClaimId) -> Option<Hold> {
        self.lock().get(&id).cloned()
    }

    pub(crate) fn granted(&self, id: ClaimId) -> Option<Granted> {
        self.lock().get(&id)?.granted.clone()
    }

    /// Notes something of a claim: before what is noted may have happened.
    pub(crate) fn note(&self, id: ClaimId, note: impl FnOnce(&mut Hold)) {
        let mut all = self.lock();
        if all.len() > MOST {
            all.retain(|_, hold| hold.granted.is_some());
        }
        note(all.entry(id).or_default());
    }

    pub(crate) fn forget(&self, id: ClaimId) {
        self.lock().remove(&id);
    }
}
