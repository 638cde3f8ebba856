//! A line as people look at it.

use super::{Line, Member, Moment, Shut, Watch};
use crate::{BootTime, Closure, Entry, LockName, Snapshot};

impl Line {
    /// The line as people look at it, without what has run out.
    #[must_use]
    pub fn snapshot(&self, at: Moment, name: &LockName) -> Snapshot {
        let now = at.boot;
        let live = self.members.iter().filter(|member| member.until > now);
        let (holders, waiters): (Vec<_>, Vec<_>) = live.partition(|member| member.held.is_some());
        Snapshot {
            name: name.clone(),
            holders: holders.into_iter().map(|member| member.entry(now)).collect(),
            waiters: waiters.into_iter().map(|member| member.entry(now)).collect(),
            // Nobody may have swept since a lease ran out that leaves the name shut.
            closed: self.shut_at(now).map(|shut| shut.closure(now)),
            cursor: Watch::Any(self.version_at(now)).cursor(),
            server_time: Some(at.wall),
        }
    }
}

impl Shut {
    pub(super) fn closure(&self, now: BootTime) -> Closure {
        Closure { left: self.until.since(now), by: self.by.clone(), note: self.note.clone() }
    }
}

impl Member {
    fn entry(&self, now: BootTime) -> Entry {
        let held = self.held.as_ref();
        Entry {
            id: self.id,
            owner: self.owner.clone(),
            share: self.share,
            wanted: self.wanted,
            reshape: self.reshape,
            note: self.note.clone(),
            token: held.map(|held| held.token),
            tenure: held.map_or(0, |held| held.tenure),
            age: now.since(held.map_or(self.since, |held| held.since)),
            renewed: now.since(self.renewed),
            renewals: held.map_or(0, |held| held.renewals),
            left: self.until.since(now),
            ttl: self.ttl,
        }
    }
}
