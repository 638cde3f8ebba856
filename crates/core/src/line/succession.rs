//! How a lease goes to another owner without ever being free.

use std::sync::Arc;

use super::{Held, Line, Member, Moment, Overruled};
use crate::{Claim, ClaimId, Counter, Grant, State};

impl Line {
    /// Puts a claim into the place of one that holds.
    pub(super) fn succeed(
        &mut self,
        at: Moment,
        old: ClaimId,
        claim: &Claim,
        counter: &mut Counter,
        life: Option<Arc<str>>,
    ) -> Result<State, Overruled> {
        let holds = |member: &Member| member.id == old && member.held.is_some();
        let Some(index) = self.members.iter().position(holds) else { return Ok(State::Spent) };
        let taken = counter.take(at.wall.as_micros(), claim.seen, claim.tokens);
        let (token, tokens) = taken.ok_or(Overruled::NoTokenLeft)?;
        let Claim {
            name: _,
            id,
            owner,
            // What was held is what goes on.
            share: _,
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
        let Member { share, place, ttl: old_ttl, .. } = self.members[index];
        let held = Held { token, first: token, run: tokens, since: at.boot, renewals: 0, tenure: 1 };
        let (since, renewed, until) = (at.boot, at.boot, at.boot.after(ttl));
        let held = Some(held);
        let heir = Member {
            id,
            owner,
            share,
            wanted: None,
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
        if crate::fault!("old_owner_stays") {
            self.members.insert(index + 1, heir);
        } else {
            self.members[index] = heir;
            self.bury(old, at.boot.after(old_ttl + super::TOMBSTONE_LIFE));
        }
        self.version += 1;
        Ok(State::Granted(Grant { token, tokens, ttl }))
    }
}
