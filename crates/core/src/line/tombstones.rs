//! Ended ids, remembered for a while: found by id, dropped by time, however many there are.

use std::collections::{BTreeSet, HashMap};

use crate::{BootTime, ClaimId};

/// Ids that ended and must not be granted any more, each until some moment.
///
/// A busy name ends thousands of claims while one is remembered, so neither a look nor a sweep walks all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tombstones {
    until: HashMap<ClaimId, BootTime>,
    ends: BTreeSet<(BootTime, ClaimId)>,
}

impl Tombstones {
    /// Whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.until.is_empty()
    }

    /// Whether this id has ended.
    #[must_use]
    pub fn contains(&self, id: ClaimId) -> bool {
        self.until.contains_key(&id)
    }

    /// Until when this id is remembered, if it is.
    #[must_use]
    pub fn until(&self, id: ClaimId) -> Option<BootTime> {
        self.until.get(&id).copied()
    }

    /// Remembers that this id has ended, at least until then.
    pub fn bury(&mut self, id: ClaimId, until: BootTime) {
        let old = self.until.get(&id).copied();
        if old.is_some_and(|old| old >= until) {
            return;
        }
        if let Some(old) = old {
            self.ends.remove(&(old, id));
        }
        self.until.insert(id, until);
        self.ends.insert((until, id));
    }

    /// Undoes what was buried since it was remembered until then, or not at all.
    pub(super) fn put_back(&mut self, id: ClaimId, until: Option<BootTime>) {
        if let Some(now) = self.until.remove(&id) {
            self.ends.remove(&(now, id));
        }
        if let Some(until) = until {
            self.bury(id, until);
        }
    }

    /// Forgets what was to be remembered until now.
    pub fn sweep(&mut self, now: BootTime) {
        while let Some((_, id)) = self.ends.first().copied().filter(|(until, _)| *until <= now) {
            self.ends.pop_first();
            self.until.remove(&id);
        }
    }

    /// All of them, soonest forgotten first.
    pub fn iter(&self) -> impl Iterator<Item = (ClaimId, BootTime)> {
        self.ends.iter().map(|(until, id)| (*id, *until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_remembered_until_the_latest_time_that_was_said() {
        let (id, at) = (ClaimId::random().unwrap(), BootTime::from_nanos);
        let mut tombstones = Tombstones::default();
        tombstones.bury(id, at(10));
        tombstones.bury(id, at(20));
        tombstones.bury(id, at(15));
        assert_eq!(tombstones.iter().collect::<Vec<_>>(), [(id, at(20))]);
        tombstones.sweep(at(19));
        assert!(tombstones.contains(id));
        tombstones.sweep(at(20));
        assert!(tombstones.is_empty());
    }
}
