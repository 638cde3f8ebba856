//! How a lease changes what it takes: a reader becomes the writer, a writer a reader.

use super::claims::{Minted, mint};
use super::{Line, Member, Moment, Overruled};
use crate::{BootTime, Claim, Counter, Grant, Share, State, Turn, Verdict, admit};

impl Line {
    /// Judges a claim that holds already: a repeat, or a change of its share.
    pub(super) fn restate(
        &mut self,
        at: Moment,
        index: usize,
        claim: &Claim,
        counter: &mut Counter,
    ) -> Result<State, Overruled> {
        let member = &mut self.members[index];
        let held = member.share;
        // A first statement that was under way for long would make the writer of today a reader behind his back.
        if claim.reshape < member.reshape && !crate::fault!("old_statement_counts") {
            return Err(Overruled::Outdated);
        }
        if held.disagrees(claim.share) {
            return Err(Overruled::Disagrees { theirs: held });
        }
        // Less of another whole may be too much for the others: two of three permits beside five readers.
        if held.of() != claim.share.of() {
            return Err(Overruled::OtherKind { held });
        }
        if claim.share.take() > held.take() {
            if !held.excludes(held) && !crate::fault!("readers_upgrade") {
                return Err(Overruled::CannotGrow { held });
            }
            return self.grow(at, index, claim, counter);
        }
        member.reshape = claim.reshape;
        // The wish for more is given up: whoever stood back for it may go.
        let gave_up = member.wanted.take().is_some();
        if gave_up || claim.share != held {
            member.share = claim.share;
            self.version += 1;
        }
        Ok(self.repeat(at, index, claim, counter))
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
        let in_the_way = if let Some(shut) = &self.shut {
            // A reader that died may still be reading; to write is to begin anew.
            Some(State::Closed(shut.closure(at.boot)))
        } else if admit(&others, claim.share) != Verdict::Admit {
            let retry_after = self.first_holder_to_lapse(index).map(|until| until.since(at.boot));
            Some(State::Waiting { ahead: u32::try_from(others.len()).ok(), retry_after })
        } else {
            None
        };
        if let Some(state) = in_the_way {
            // A try leaves no wish, nor the one before it: what was stated last counts.
            let wanted = (claim.turn != Turn::Now).then_some(claim.share);
            let member = &mut self.members[index];
            member.reshape = claim.reshape;
            if std::mem::replace(&mut member.wanted, wanted) != wanted {
                self.version += 1;
            }
            return Ok(state);
        }
        // Who wrote under the old token before may be a reader that was paused: writes begin a tenure of their own.
        let token = match mint(at, claim, 1, counter)? {
            Minted::Run(token, _) => token,
            Minted::Refused(state) => return Ok(state),
        };
        let member = &mut self.members[index];
        (member.share, member.wanted, member.reshape) = (claim.share, None, claim.reshape);
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
