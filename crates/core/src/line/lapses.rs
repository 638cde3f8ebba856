//! What has run out at a moment, whether somebody has swept the line since or not.

use super::{Line, Member, Ruling, Shut, TOMBSTONE_LIFE};
use crate::{BootTime, Note};

impl Line {
    /// Drops what has run out, and whose process `is_dead`. Every other step starts with this one.
    pub fn sweep(&mut self, now: BootTime, is_dead: impl Fn(&Member) -> bool) {
        self.version = self.version_once_swept(now, &is_dead);
        self.shut = self.shut_once_swept(now, &is_dead);
        let mut ended = Vec::new();
        self.members.retain(|member| {
            let goes = member.is_over(now, &is_dead);
            if goes && member.held.is_some() {
                // Long enough for a claimant that retries within its ttl to hear that the id is spent; from its end,
                // whenever that is noticed, since a store may drop by itself what has run out.
                ended.push((member.id, member.until.min(now).after(member.ttl + TOMBSTONE_LIFE)));
            }
            !goes
        });
        for (id, until) in ended {
            self.bury(id, until);
        }
        self.tombstones.sweep(now);
    }

    /// The version once what has run out is swept. Looking sweeps nothing: by the bare version, who looked at
    /// a line with a dead holder would be told of that same expiry again and again.
    pub(super) fn version_at(&self, now: BootTime) -> u64 {
        self.version_once_swept(now, &|_| false)
    }

    /// What keeps the name shut, once what has run out is swept.
    pub(super) fn shut_at(&self, now: BootTime) -> Option<Shut> {
        self.shut_once_swept(now, &|_| false)
    }

    /// One step more for each claim that goes, and for each closure that is over, also one that nobody has written
    /// down: so it only rises as time goes on, and says the same before a sweep as after.
    fn version_once_swept(&self, now: BootTime, is_dead: &impl Fn(&Member) -> bool) -> u64 {
        let over = self.members.iter().filter(|member| member.is_over(now, is_dead));
        let left = over.clone().filter_map(|member| member.shuts_until(now, is_dead));
        let closures = self.shut.iter().map(|shut| shut.until).chain(left);
        let steps = over.count() + closures.filter(|until| *until <= now).count();
        self.version + u64::try_from(steps).unwrap_or(u64::MAX)
    }

    fn shut_once_swept(&self, now: BootTime, is_dead: &impl Fn(&Member) -> bool) -> Option<Shut> {
        let over = self.members.iter().filter(|member| member.is_over(now, is_dead));
        let left = over.filter_map(|member| {
            let until = member.shuts_until(now, is_dead)?;
            Some(Shut { until, by: member.owner.clone(), note: Note::NONE })
        });
        let closures = self.shut.iter().cloned().chain(left);
        closures.filter(|shut| shut.until > now).reduce(Shut::longer)
    }

    /// When something runs out next.
    pub(super) fn next_lapse(&self, now: BootTime) -> Ruling {
        let lapsed = |member: &&Member| member.until <= now;
        let left =
            self.members.iter().filter(lapsed).filter_map(|member| member.shuts_until(now, &|_| false));
        let ends = self.members.iter().map(|member| member.until).chain(left);
        let ends = ends.chain(self.shut.iter().map(|shut| shut.until));
        ends.filter(|until| *until > now).min().map_or(Ruling::NotYet, Ruling::NotBefore)
    }
}

impl Member {
    fn is_over(&self, now: BootTime, is_dead: &impl Fn(&Self) -> bool) -> bool {
        let lapses = self.held.is_some() || !crate::fault!("place_never_lapses");
        (self.until <= now && lapses) || is_dead(self)
    }

    /// Until when the name stays shut after it, which is over by now and was not given back.
    fn shuts_until(&self, now: BootTime, is_dead: &impl Fn(&Self) -> bool) -> Option<BootTime> {
        let held = self.held.as_ref().filter(|_| !crate::fault!("no_aftermath"))?;
        // What is anchored holds beyond its end, for as long as anybody saw: it is over since it is seen to be.
        let end = if self.anchored && is_dead(self) { now } else { self.until.min(now) };
        let until = end.after(self.aftermath.delay).max(held.since.after(self.aftermath.at_least));
        (until > end).then_some(until)
    }
}
