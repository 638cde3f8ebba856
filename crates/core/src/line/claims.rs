//! How claims are judged, prolonged and ended.

use std::sync::Arc;

use super::{Held, LONG_WAIT, Line, Member, Moment, PLACE_LIFE, SHORT_GRANT, Shut, TOMBSTONE_LIFE};
use crate::{
    Aftermath, BootTime, Claim, ClaimId, Counter, Error, Grant, Leave, Op, Owner, Release, Renewal, Share,
    State, StoreError, StoreErrorKind, Tenure, Token, Turn, Verdict, admit,
};

/// Why a claim was not even judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overruled {
    /// It came after its time: it was given up long ago.
    Late,
    /// Somebody else thinks that there are a different number of permits.
    Disagrees {
        /// What the other claims.
        theirs: Share,
    },
    /// It holds, and wants more beside others of its kind: two of them would wait for each other.
    CannotGrow {
        /// What it holds.
        held: Share,
    },
    /// The tokens are used up.
    NoTokenLeft,
}

impl Overruled {
    /// The error for the claimant.
    #[must_use]
    pub fn into_error(self, store: &str, claim: &Claim) -> Error {
        let error = |kind| StoreError::new(kind, Op::Claim, store).about(&claim.name);
        match self {
            Self::Late => error(StoreErrorKind::Unavailable).saying("the claim came too late to be judged"),
            Self::Disagrees { theirs } => {
                let mine = claim.share;
                return crate::ConfigError::new(format!(
                    "{}: {mine} permits here, {theirs} elsewhere: one name has one number of permits",
                    claim.name
                ))
                .code(crate::Code::DISAGREES)
                .help("give every user of the name the same number, or wait until the others have ended")
                .into();
            }
            Self::CannotGrow { held } => {
                return crate::ConfigError::new(format!(
                    "{}: a lease that is {held} cannot become {}: two such would wait for each other",
                    claim.name, claim.share
                ))
                .help("take it upgradeable, or give it back and ask anew")
                .into();
            }
            Self::NoTokenLeft => {
                error(StoreErrorKind::Unexpected).saying("no fencing token is left below 2^53")
            }
        }
        .into()
    }
}

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
        if let (Some(old), None) = (claim.succeeds, mine) {
            return self.succeed(at, old, claim, counter, life);
        }
        if let Some(index) = mine {
            if self.members[index].held.is_some() {
                return self.restate(at, index, claim, counter);
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
            if mine.is_none() {
                self.join(at.boot, claim, life);
            }
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
        let (token, tokens) = if let Some(proposed) = claim.proposed {
            if !counter.accept(at.wall.as_micros(), proposed) {
                let counter = counter.token().unwrap_or(proposed);
                return Ok(State::Refused { counter });
            }
            (proposed, 1)
        } else if crate::fault!("token_per_tenure") {
            (Token::new(1).ok_or(Overruled::NoTokenLeft)?, 1)
        } else {
            let taken = counter.take(at.wall.as_micros(), claim.seen, claim.tokens);
            taken.ok_or(Overruled::NoTokenLeft)?
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

    fn join(&mut self, now: BootTime, claim: &Claim, life: Option<Arc<str>>) {
        if claim.turn != Turn::Now || crate::fault!("try_leaves_place") {
            self.push(now, claim, life);
        }
    }

    fn push(&mut self, now: BootTime, claim: &Claim, life: Option<Arc<str>>) -> usize {
        let Claim {
            name: _,
            id,
            owner,
            share,
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
