//! How claims are judged, prolonged and ended.

use std::sync::Arc;

use super::{
    Held, LONG_WAIT, Line, Member, Moment, Overruled, PLACE_LIFE, SHORT_GRANT, Shut, TOMBSTONE_LIFE,
};
use crate::{
    Aftermath, BootTime, Claim, ClaimId, Counter, Grant, Leave, Owner, Release, Renewal, Share, State,
    Tenure, Token, Turn, Verdict, admit,
};

impl Line {
    /// Judges a claim. The line must have been [swept](Self::sweep) at this moment.
    ///
    /// # Errors
    ///
    /// When the claim is not judged at all; nothing has changed then.
    pub fn claim(
        &mut self,
        at: Moment,
        claim: &Claim,
        counter: &mut Counter,
        life: Option<Arc<str>>,
    ) -> Result<State, Overruled> {
        if claim.not_after.is_some_and(|last| at.wall > last) {
            return Err(Overruled::Late);
        }
        if self.tombstones.contains(claim.id) {
            return Ok(State::Spent);
        }
        let mine = self.members.iter().position(|member| member.id == claim.id);
        if let Some(index) = mine.filter(|index| self.members[*index].held.is_some()) {
            return self.restate(at, index, claim, counter);
        }
        if let Some(old) = claim.succeeds {
            return self.succeed(at, old, claim, counter, life);
        }
        if let Some(index) = mine {
            let stands = self.members[index].share;
            if stands != claim.share {
                return Err(Overruled::OtherShare { stands });
            }
            self.members[index].until = at.boot.after(PLACE_LIFE);
            self.members[index].renewed = at.boot;
        }
        if let Some(theirs) = self.members.iter().map(|m| m.share).find(|share| claim.share.disagrees(*share))
        {
            return Err(Overruled::Disagrees { theirs });
        }
        if let Some(shut) = &self.shut {
            let closure = shut.closure(at.boot);
            if mine.is_none() {
                self.join(at.boot, claim, life);
            }
            return Ok(State::Closed(closure));
        }
        let ahead = match mine {
            Some(index) => self.ahead_of(index),
            None => self.ahead_of_newcomer(at.boot, claim.turn),
        };
        if admit(&ahead, claim.share) != Verdict::Admit {
            let retry_after = self.first_to_lapse(mine).map(|until| until.since(at.boot));
            let mine = mine.or_else(|| self.join(at.boot, claim, life));
            let ahead = mine.map_or(ahead.len(), |index| self.ahead_of(index).len());
            return Ok(State::Waiting { ahead: u32::try_from(ahead).ok(), retry_after });
        }
        self.grant(at, claim, mine, counter, life)
    }

    fn grant(
        &mut self,
        at: Moment,
        claim: &Claim,
        mine: Option<usize>,
        counter: &mut Counter,
        life: Option<Arc<str>>,
    ) -> Result<State, Overruled> {
        let (token, tokens) = match mint(at, claim, claim.tokens, counter)? {
            Minted::Run(token, tokens) => (token, tokens),
            Minted::Refused(state) => return Ok(state),
        };
        // Only a claim that has waited may have died while nobody looked.
        let waited = mine.is_some() && !crate::fault!("grant_never_short");
        let ttl = if waited { claim.ttl.min(SHORT_GRANT) } else { claim.ttl };
        let index = mine.unwrap_or_else(|| self.push(at.boot, claim, life));
        let member = &mut self.members[index];
        member.until = at.boot.after(ttl);
        member.renewed = at.boot;
        let since = at.boot;
        member.held = Some(Held { token, first: token, run: tokens, since, renewals: 0, tenure: 1 });
        self.version += 1;
        Ok(State::Granted(Grant { token, tokens, ttl }))
    }

    /// The grant again, with what is left of it; or, for a quorum node, a raise of its token.
    pub(super) fn repeat(&mut self, at: Moment, index: usize, claim: &Claim, counter: &mut Counter) -> State {
        let member = &mut self.members[index];
        let Some(held) = &mut member.held else { return State::Spent };
        if let Some(proposed) = claim.proposed {
            let raised = proposed > held.token && counter.accept(at.wall.as_micros(), proposed);
            if !raised && proposed != held.token {
                return State::Refused { counter: counter.token().unwrap_or(held.token) };
            }
            (held.token, held.first) = (proposed, proposed);
            member.until = at.boot.after(claim.ttl);
        }
        if crate::fault!("repeat_prolongs") {
            member.until = at.boot.after(claim.ttl);
        }
        let ttl = member.until.since(at.boot);
        State::Granted(Grant { token: held.first, tokens: held.run, ttl })
    }

    fn join(&mut self, now: BootTime, claim: &Claim, life: Option<Arc<str>>) -> Option<usize> {
        let joins = claim.turn != Turn::Now || crate::fault!("try_leaves_place");
        joins.then(|| self.push(now, claim, life))
    }

    fn push(&mut self, now: BootTime, claim: &Claim, life: Option<Arc<str>>) -> usize {
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
        } = claim;
        let place = self.members.iter().map(|member| member.place + 1).max().unwrap_or(1);
        self.members.push(Member {
            id: *id,
            owner: owner.clone(),
            share: *share,
            wanted: None,
            reshape: *reshape,
            turn: *turn,
            ttl: *ttl,
            aftermath: *aftermath,
            note: note.clone(),
            place,
            since: now,
            until: now.after(PLACE_LIFE),
            renewed: now,
            held: None,
            anchored: *anchored,
            life,
        });
        self.version += 1;
        self.members.len() - 1
    }

    /// Whether the member at `other` is ahead of the one at `index`: every holder is, and who came earlier.
    pub(super) fn is_ahead(&self, other: usize, index: usize) -> bool {
        let holds = self.members[other].held.is_some();
        if crate::fault!("rule_ignores_line") {
            return holds && other != index;
        }
        other < index || (other > index && holds)
    }

    fn ahead_of(&self, index: usize) -> Vec<Share> {
        let members = self.members.iter().enumerate();
        members.filter(|(other, _)| self.is_ahead(*other, index)).map(|(_, member)| member.claims()).collect()
    }

    /// What a claim that does not stand in the line yet has to fit beside.
    fn ahead_of_newcomer(&self, now: BootTime, turn: Turn) -> Vec<Share> {
        let counts = |member: &&Member| {
            let long = now.since(member.since) >= LONG_WAIT;
            let queued = turn == Turn::Fifo || member.turn == Turn::Fifo || long;
            member.held.is_some() || (queued && !crate::fault!("rule_ignores_line"))
        };
        self.members.iter().filter(counts).map(Member::claims).collect()
    }

    /// When the first of those ahead may run out.
    pub(super) fn first_to_lapse(&self, mine: Option<usize>) -> Option<BootTime> {
        let index = mine.unwrap_or(self.members.len());
        let members = self.members.iter().enumerate();
        members.filter(|(other, _)| self.is_ahead(*other, index)).map(|(_, member)| member.until).min()
    }

    /// Prolongs a claim that holds. The line must have been [swept](Self::sweep) at this moment.
    pub fn renew(&mut self, at: Moment, id: ClaimId, tenure: &Tenure) -> Renewal {
        let now = at.boot;
        let member = self.members.iter_mut().find(|member| member.id == id);
        let Some(Member { held: Some(held), until, renewed, ttl, note, .. }) = member else {
            if crate::fault!("renew_creates") {
                return self.forge(at, id, tenure);
            }
            if crate::fault!("renew_without_asking") {
                return Renewal::Kept { ttl: TOMBSTONE_LIFE, server_time: Some(at.wall) };
            }
            return Renewal::Lost;
        };
        *until = now.after(*ttl);
        *renewed = now;
        *note = tenure.note.clone();
        held.renewals = held.renewals.saturating_add(1);
        held.tenure = tenure.count;
        // One that was sent before the lease grew knows the old token only.
        held.token = held.token.max(tenure.token);
        Renewal::Kept { ttl: *ttl, server_time: Some(at.wall) }
    }

    /// What a renewal by "set with a ttl" does to a lease that is gone: only a [planted fault](mod@crate::fault)
    /// comes here.
    fn forge(&mut self, at: Moment, id: ClaimId, tenure: &Tenure) -> Renewal {
        let now = at.boot;
        self.members.push(Member {
            id,
            owner: Owner::default(),
            share: Share::EXCLUSIVE,
            wanted: None,
            reshape: 0,
            turn: Turn::Any,
            ttl: TOMBSTONE_LIFE,
            aftermath: Aftermath::NONE,
            note: tenure.note.clone(),
            place: self.members.iter().map(|member| member.place + 1).max().unwrap_or(1),
            since: now,
            until: now.after(TOMBSTONE_LIFE),
            renewed: now,
            anchored: false,
            held: Some(Held {
                token: tenure.token,
                first: tenure.token,
                run: 1,
                since: now,
                renewals: 1,
                tenure: tenure.count,
            }),
            life: None,
        });
        Renewal::Kept { ttl: TOMBSTONE_LIFE, server_time: Some(at.wall) }
    }

    /// Ends a claim, whether it holds, waits or is unknown. The line must have been [swept](Self::sweep).
    pub fn release(&mut self, now: BootTime, id: ClaimId, leave: Leave) -> Release {
        let mine = |member: &Member| {
            member.id == id || (crate::fault!("release_ignores_id") && member.held.is_some())
        };
        if !crate::fault!("release_without_tombstone") {
            self.bury(id, now.after(TOMBSTONE_LIFE));
        }
        let Some(index) = self.members.iter().position(mine) else { return Release::NotHeld };
        let member = self.members.remove(index);
        self.version += 1;
        if member.held.is_none() {
            return Release::Withdrawn;
        }
        if let Leave::Closed { lasting, note } = leave {
            let shut = Shut { until: now.after(lasting), by: member.owner, note };
            let shut = Some(shut).filter(|_| !lasting.is_zero());
            self.shut = self.shut.take().into_iter().chain(shut).reduce(Shut::longer);
        }
        Release::Released
    }
}

/// What a new tenure gets.
pub(super) enum Minted {
    /// The first of so many tokens.
    Run(Token, u32),
    /// None, since the proposed one is not above the counter.
    Refused(State),
}

/// The tokens of a new tenure.
pub(super) fn mint(
    at: Moment,
    claim: &Claim,
    tokens: u32,
    counter: &mut Counter,
) -> Result<Minted, Overruled> {
    let wall = at.wall.as_micros();
    if let Some(proposed) = claim.proposed {
        return Ok(if counter.accept(wall, proposed) {
            Minted::Run(proposed, 1)
        } else {
            Minted::Refused(State::Refused { counter: counter.token().unwrap_or(proposed) })
        });
    }
    let taken = if crate::fault!("token_per_tenure") {
        Token::new(1).map(|token| (token, 1))
    } else {
        counter.take(wall, claim.seen, tokens)
    };
    let (token, tokens) = taken.ok_or(Overruled::NoTokenLeft)?;
    Ok(Minted::Run(token, tokens))
}
