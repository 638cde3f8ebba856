//! How a lease changes what it takes: a reader becomes the writer, a writer a reader.

use super::{Line, Member, Moment, Overruled, Shut};
use crate::{BootTime, Claim, Counter, Grant, Note, Share, State, Verdict, admit};

impl Line {
    /// Judges a claim that holds already: a repeat, or a change of its share.
    pub(super) fn restate(
        &mut self,
        at: Moment,
        index: usize,
        claim: &Claim,
        counter: &mut Counter,
    ) -> Result<State, Overruled> {
        let held = self.members[index].share;
        if claim.share == held {
            // The wish for more is given up: whoever stood back for it may go.
            if self.members[index].wanted.take().is_some() {
                self.version += 1;
            }
            return Ok(self.repeat(at, index, claim, counter));
        }
        if held.disagrees(claim.share) {
            return Err(Overruled::Disagrees { theirs: held });
        }
        if claim.share.take() < held.take() {
            let member = &mut self.members[index];
            (member.share, member.wanted) = (claim.share, None);
            self.version += 1;
            return Ok(self.repeat(at, index, claim, counter));
        }
        if !held.excludes(held) && !crate::fault!("readers_upgrade") {
            return Err(Overruled::CannotGrow { held });
        }
        self.grow(at, index, claim, counter)
    }

    /// Waits for the other holders alone: whoever waits in line may be waiting for this very lease.
    fn grow(
        &mut self,
        at: Moment,
        index: usize,
        claim: &Claim,
        counter: &mut Counter,
    ) -> Result<State, Overruled> {
        let others = self.other_holders(index, |_| true);
        if admit(&others, claim.share) != Verdict::Admit {
            let retry_after = self.first_holder_to_lapse(index).map(|until| until.since(at.boot));
            let member = &mut self.members[index];
            if member.wanted.replace(claim.share) != Some(claim.share) {
                self.version += 1;
            }
            return Ok(State::Waiting { ahead: u32::try_from(others.len()).ok(), retry_after });
        }
        // Who wrote under the old token before may be a reader that was paused: writes begin a tenure of their own.
        let taken = counter.take(at.wall.as_micros(), claim.seen, 1);
        let (token, _) = taken.ok_or(Overruled::NoTokenLeft)?;
        let member = &mut self.members[index];
        (member.share, member.wanted) = (claim.share, None);
        if let Some(held) = &mut member.held {
            (held.token, held.first, held.run) = (token, token, 1);
        }
        self.version += 1;
        let ttl = self.members[index].until.since(at.boot);
        Ok(State::Granted(Grant { token, tokens: 1, ttl }))
    }

    /// The shares of those who hold besides this one.
    pub(super) fn other_holders(&self, index: usize, counts: impl Fn(&Member) -> bool) -> Vec<Share> {
        let members = self.members.iter().enumerate();
        let others = members.filter(|(other, member)| *other != index && member.held.is_some());
        others.filter(|(_, member)| counts(member)).map(|(_, member)| member.share).collect()
    }

    fn first_holder_to_lapse(&self, index: usize) -> Option<BootTime> {
        let members = self.members.iter().enumerate();
        let others = members.filter(|(other, member)| *other != index && member.held.is_some());
        others.map(|(_, member)| member.until).min()
    }
}

impl Member {
    /// What it leaves behind when it ends at this moment without being given back.
    pub(super) fn aftermath(&self, end: BootTime) -> Option<Shut> {
        let held = self.held.as_ref()?;
        let until = end.after(self.aftermath.delay).max(held.since.after(self.aftermath.at_least));
        (until > end).then(|| Shut { until, by: self.owner.clone(), note: Note::NONE })
    }
}
