//! How a lease goes to another owner without ever being free.

use std::sync::Arc;

use super::claims::{Minted, mint};
use super::{Held, Line, Member, Moment, Overruled, TOMBSTONE_LIFE};
use crate::{Claim, ClaimId, Counter, Grant, State};

impl Line {
    /// Puts a claim, which may have waited so far, into the place of one that holds.
    pub(super) fn succeed(
        &mut self,
        at: Moment,
        old: ClaimId,
        claim: &Claim,
        counter: &mut Counter,
        life: Option<Arc<str>>,
    ) -> Result<State, Overruled> {
        let holds = |member: &Member| member.id == old && member.held.is_some();
        let held = self.members.iter().find(|member| holds(member));
        let Some((stands, place, old_ttl)) = held.map(|member| (member.share, member.place, member.ttl))
        else {
            // Final: the same statement, arriving once more, must not take what somebody gets under the old id later.
            self.withdraw(claim.id);
            self.bury(claim.id, at.boot.after(TOMBSTONE_LIFE));
            return Ok(State::Spent);
        };
        // Otherwise asking again, when the reply was lost, would change the share.
        if stands != claim.share {
            return Err(Overruled::OtherShare { stands });
        }
        let (token, tokens) = match mint(at, claim, claim.tokens, counter)? {
            Minted::Run(token, tokens) => (token, tokens),
            Minted::Refused(state) => return Ok(state),
        };
        let Claim {
            name: _,
            id,
            owner,
            share,
            reshape,
            turn,
            ttl,
            note,
            anchored,
            aftermath,
            succeeds: _,
            tokens: _,
            seen: _,
            proposed: _,
            not_after: _,
        } = claim.clone();
        let held = Held { token, first: token, run: tokens, since: at.boot, renewals: 0, tenure: 1 };
        let (since, renewed, until) = (at.boot, at.boot, at.boot.after(ttl));
        let held = Some(held);
        let heir = Member {
            id,
            owner,
            share,
            wanted: None,
            reshape,
            turn,
            ttl,
            aftermath,
            note,
            place,
            since,
            until,
            renewed,
            held,
            anchored,
            life,
        };
        self.withdraw(id);
        let Some(at_old) = self.members.iter().position(holds) else { return Ok(State::Spent) };
        if crate::fault!("old_owner_stays") {
            self.members.insert(at_old + 1, heir);
        } else {
            self.members[at_old] = heir;
            self.bury(old, at.boot.after(old_ttl + TOMBSTONE_LIFE));
        }
        self.version += 1;
        Ok(State::Granted(Grant { token, tokens, ttl }))
    }

    /// Takes a place in line back, if there is one.
    fn withdraw(&mut self, id: ClaimId) {
        let before = self.members.len();
        self.members.retain(|member| member.id != id);
        if self.members.len() != before {
            self.version += 1;
        }
    }
}
