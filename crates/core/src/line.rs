//! The whole law of one name's line of claims: no I/O, no clock of its own, the same for every store that
//! keeps its lines itself.
//!
//! The memory store holds a [`Line`] for each name; the SQLite store loads one from its tables, lets it rule,
//! and writes back what changed. Stores whose server rules (scripts, SQL functions) restate this law and are
//! held to it by random operations against the memory store.

use std::sync::Arc;
use std::time::Duration;

use crate::{
    BootTime, Claim, ClaimId, Closure, Counter, Cursor, Entry, Error, Grant, Leave, LockName, Note, Op,
    Owner, Release, Renewal, ServerTime, Share, Snapshot, State, StoreError, StoreErrorKind, Tenure, Token,
    Turn, Verdict, admit,
};

/// How long a place in line lives without being refreshed, whatever the ttl: so a dead waiter costs the others
/// at most this.
pub const PLACE_LIFE: Duration = Duration::from_secs(2);
/// How long a grant to a claim that has waited holds until it is renewed: its waiter may have died while the
/// grant was on its way, and must not cost the others a whole ttl.
pub const SHORT_GRANT: Duration = Duration::from_millis(1400);
/// From when on a waiter is served before newcomers. Below it a newcomer may take a free name, which saves a
/// change of process for each short tenure; above it somebody would starve.
pub const LONG_WAIT: Duration = Duration::from_millis(100);
/// How long an ended id is remembered: twice as long as a claim may be under way.
pub const TOMBSTONE_LIFE: Duration = Duration::from_secs(10);

/// Now, by the store's clocks.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Judges what has run out.
    pub boot: BootTime,
    /// Dates tokens, and late claims.
    pub wall: ServerTime,
}

/// One claim in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub id: ClaimId,
    /// Whose it is.
    pub owner: Owner,
    /// How much it takes.
    pub share: Share,
    /// How it takes its turn.
    pub turn: Turn,
    /// The ttl it asked for.
    pub ttl: Duration,
    /// What its owner wants others to read.
    pub note: Note,
    /// Its place: lower is earlier.
    pub place: u64,
    /// Since when it has stood here.
    pub since: BootTime,
    /// Until when it stands, or holds, unless refreshed or renewed.
    pub until: BootTime,
    /// When it was last refreshed or renewed.
    pub renewed: BootTime,
    /// What it got, if it holds.
    pub held: Option<Held>,
    /// Whatever the store knows the living process behind it by.
    pub life: Option<Arc<str>>,
}

/// What a member that holds got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The token of the present tenure.
    pub token: Token,
    /// The first token of the run.
    pub first: Token,
    /// How many tokens the run has.
    pub run: u32,
    /// Since when it has held.
    pub since: BootTime,
    /// How often it was renewed.
    pub renewals: u32,
    /// The how-manieth tenure under this claim.
    pub tenure: u32,
}

/// A name that is kept shut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shut {
    /// Until when.
    pub until: BootTime,
    /// Who shut it.
    pub by: Owner,
    /// Why.
    pub note: Note,
}

/// An id that ended, and must not be granted any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tombstone {
    /// The id.
    pub id: ClaimId,
    /// Until when it is remembered.
    pub until: BootTime,
}

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
            Self::NoTokenLeft => {
                error(StoreErrorKind::Unexpected).saying("no fencing token is left below 2^53")
            }
        }
        .into()
    }
}

/// What a wait waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// "Is it this claim's turn?"
    Turn(ClaimId),
    /// "Has this claim gone?"
    Hold(ClaimId),
    /// "Did anything change since this version?"
    Any(u64),
}

impl Watch {
    /// The cursor that says this.
    #[must_use]
    pub fn cursor(self) -> Cursor {
        let (tag, number) = match self {
            Self::Turn(id) => (b't', id.to_bytes()),
            Self::Hold(id) => (b'h', id.to_bytes()),
            Self::Any(version) => (b'a', u128::from(version).to_be_bytes()),
        };
        Cursor::new([&[tag][..], &number].concat())
    }

    /// What a cursor says; `None` when it is not of this kind.
    #[must_use]
    pub fn parse(cursor: &Cursor) -> Option<Self> {
        let (tag, number) = cursor.as_bytes().split_first()?;
        let number: [u8; 16] = number.try_into().ok()?;
        match tag {
            b't' => Some(Self::Turn(ClaimId::from_bytes(number))),
            b'h' => Some(Self::Hold(ClaimId::from_bytes(number))),
            b'a' => u64::try_from(u128::from_be_bytes(number)).ok().map(Self::Any),
            _ => None,
        }
    }
}

/// Whether a wait is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ruling {
    /// It is: ask again.
    Ready,
    /// Not yet, but look again at this moment at the latest, since something in the way may then run out.
    NotBefore(BootTime),
    /// Not yet, and nothing in the way runs out by itself.
    NotYet,
}

/// The line of claims for one name, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Line {
    /// Holders and waiters, by place.
    pub members: Vec<Member>,
    /// Set while the name is kept shut.
    pub shut: Option<Shut>,
    /// Ended ids.
    pub tombstones: Vec<Tombstone>,
    /// Rises with each change that somebody may wait for.
    pub version: u64,
}

impl Line {
    /// Whether nothing is left that a store would have to keep.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.shut.is_none() && self.tombstones.is_empty()
    }

    /// Drops what has run out, and whose process `is_dead`. Every other step starts with this one.
    pub fn sweep(&mut self, now: BootTime, is_dead: impl Fn(&Member) -> bool) {
        let mut ended = Vec::new();
        let lapses = !crate::fault!("place_never_lapses");
        self.members.retain(|member| {
            let out = member.until <= now && (member.held.is_some() || lapses);
            let goes = out || is_dead(member);
            if goes && member.held.is_some() {
                // Long enough for a claimant that retries within its ttl to hear that the id is spent.
                ended.push((member.id, member.ttl + TOMBSTONE_LIFE));
            }
            if goes {
                self.version += 1;
            }
            !goes
        });
        for (id, life) in ended {
            self.bury(now, id, life);
        }
        if self.shut.as_ref().is_some_and(|shut| shut.until <= now) {
            self.shut = None;
            self.version += 1;
        }
        self.tombstones.retain(|tombstone| tombstone.until > now);
    }

    /// One for each id: who releases again and again must not fill the line.
    fn bury(&mut self, now: BootTime, id: ClaimId, life: Duration) {
        if crate::fault!("claim_twice_granted") {
            return;
        }
        let until = now.after(life);
        match self.tombstones.iter_mut().find(|tombstone| tombstone.id == id) {
            Some(tombstone) => tombstone.until = tombstone.until.max(until),
            None => self.tombstones.push(Tombstone { id, until }),
        }
    }

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
        if self.tombstones.iter().any(|tombstone| tombstone.id == claim.id) {
            return Ok(State::Spent);
        }
        let mine = self.members.iter().position(|member| member.id == claim.id);
        if let Some(index) = mine {
            if self.members[index].held.is_some() {
                return Ok(self.repeat(at, index, claim, counter));
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
    fn repeat(&mut self, at: Moment, index: usize, claim: &Claim, counter: &mut Counter) -> State {
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
            turn: *turn,
            ttl: *ttl,
            note: note.clone(),
            place,
            since: now,
            until: now.after(PLACE_LIFE),
            renewed: now,
            held: None,
            life,
        });
        self.version += 1;
        self.members.len() - 1
    }

    /// Whether the member at `other` is ahead of the one at `index`: every holder is, and who came earlier.
    fn is_ahead(&self, other: usize, index: usize) -> bool {
        let holds = self.members[other].held.is_some();
        if crate::fault!("rule_ignores_line") {
            return holds && other != index;
        }
        other < index || (other > index && holds)
    }

    fn ahead_of(&self, index: usize) -> Vec<Share> {
        let members = self.members.iter().enumerate();
        members.filter(|(other, _)| self.is_ahead(*other, index)).map(|(_, member)| member.share).collect()
    }

    /// What a claim that does not stand in the line yet has to fit beside.
    fn ahead_of_newcomer(&self, now: BootTime, turn: Turn) -> Vec<Share> {
        let counts = |member: &&Member| {
            let long = now.since(member.since) >= LONG_WAIT;
            let queued = turn == Turn::Fifo || member.turn == Turn::Fifo || long;
            member.held.is_some() || (queued && !crate::fault!("rule_ignores_line"))
        };
        self.members.iter().filter(counts).map(|member| member.share).collect()
    }

    /// When the first of those ahead may run out.
    fn first_to_lapse(&self, mine: Option<usize>) -> Option<BootTime> {
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
        held.token = tenure.token;
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
            turn: Turn::Any,
            ttl: TOMBSTONE_LIFE,
            note: tenure.note.clone(),
            place: self.members.iter().map(|member| member.place + 1).max().unwrap_or(1),
            since: now,
            until: now.after(TOMBSTONE_LIFE),
            renewed: now,
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
            self.bury(now, id, TOMBSTONE_LIFE);
        }
        let Some(index) = self.members.iter().position(mine) else { return Release::NotHeld };
        let member = self.members.remove(index);
        self.version += 1;
        if member.held.is_none() {
            return Release::Withdrawn;
        }
        if let Leave::Closed { lasting, note } = leave {
            let until = now.after(lasting);
            // A second closing never opens early what a first one shut for longer.
            if self.shut.as_ref().is_none_or(|shut| shut.until < until) && !lasting.is_zero() {
                self.shut = Some(Shut { until, by: member.owner, note });
            }
        }
        Release::Released
    }

    /// The waiters whose turn has come, and who therefore should be woken.
    pub fn ready(&self) -> impl Iterator<Item = &Member> {
        let open = self.shut.is_none() && !crate::fault!("wake_nobody");
        let members = self.members.iter().enumerate();
        members
            .filter(move |(index, member)| {
                open && member.held.is_none() && admit(&self.ahead_of(*index), member.share) == Verdict::Admit
            })
            .map(|(_, member)| member)
    }

    /// Whether a wait is over. Takes the line as it stands, swept or not.
    #[must_use]
    pub fn rule(&self, now: BootTime, watch: Watch) -> Ruling {
        let wakes = !crate::fault!("wake_nobody");
        match watch {
            Watch::Any(version) if self.version_at(now) != version && wakes => Ruling::Ready,
            Watch::Any(_) => self.next_lapse(now),
            Watch::Hold(id) => match self.members.iter().find(|member| member.id == id) {
                Some(member) if member.held.is_some() && member.until > now => {
                    Ruling::NotBefore(member.until)
                }
                _ => Ruling::Ready,
            },
            Watch::Turn(id) => self.rule_turn(now, id, wakes),
        }
    }

    fn rule_turn(&self, now: BootTime, id: ClaimId, wakes: bool) -> Ruling {
        let Some(index) = self.members.iter().position(|member| member.id == id) else {
            return Ruling::Ready;
        };
        let mine = &self.members[index];
        if mine.held.is_some() || mine.until <= now {
            return Ruling::Ready;
        }
        if let Some(shut) = &self.shut
            && shut.until > now
        {
            return Ruling::NotBefore(shut.until.min(mine.until));
        }
        let members = self.members.iter().enumerate();
        let ahead = members.filter(|(other, _)| self.is_ahead(*other, index)).map(|(_, member)| member);
        let (lapsed, stand): (Vec<_>, Vec<_>) = ahead.partition(|member| member.until <= now);
        let shares: Vec<Share> = stand.iter().map(|member| member.share).collect();
        let admitted = admit(&shares, mine.share) == Verdict::Admit;
        if admitted && wakes && (lapsed.is_empty() || !crate::fault!("expiry_wakes_nobody")) {
            return Ruling::Ready;
        }
        if crate::fault!("expiry_wakes_nobody") || !wakes {
            return Ruling::NotYet;
        }
        // The own place too: whoever does not refresh it in time stands nowhere after it lapsed.
        let until = stand.iter().map(|member| member.until).fold(mine.until, BootTime::min);
        Ruling::NotBefore(until)
    }

    fn lapses(&self) -> impl Iterator<Item = BootTime> {
        let members = self.members.iter().map(|member| member.until);
        members.chain(self.shut.iter().map(|shut| shut.until))
    }

    fn next_lapse(&self, now: BootTime) -> Ruling {
        let next = self.lapses().filter(|until| *until > now).min();
        next.map_or(Ruling::NotYet, Ruling::NotBefore)
    }

    /// The version once what has run out is swept. Looking sweeps nothing: by the bare version, who looked at
    /// a line with a dead holder would be told of that same expiry again and again.
    fn version_at(&self, now: BootTime) -> u64 {
        self.version + self.lapses().map(|until| u64::from(until <= now)).sum::<u64>()
    }

    /// The line as people look at it, without what has run out.
    #[must_use]
    pub fn snapshot(&self, at: Moment, name: &LockName) -> Snapshot {
        let now = at.boot;
        let live = self.members.iter().filter(|member| member.until > now);
        let (holders, waiters): (Vec<_>, Vec<_>) = live.partition(|member| member.held.is_some());
        let shut = self.shut.as_ref().filter(|shut| shut.until > now);
        Snapshot {
            name: name.clone(),
            holders: holders.into_iter().map(|member| member.entry(now)).collect(),
            waiters: waiters.into_iter().map(|member| member.entry(now)).collect(),
            closed: shut.map(|shut| shut.closure(now)),
            cursor: Watch::Any(self.version_at(now)).cursor(),
            server_time: Some(at.wall),
        }
    }

    /// From what a claim in this state waits on.
    #[must_use]
    pub fn watch(&self, id: ClaimId) -> Watch {
        match self.members.iter().find(|member| member.id == id) {
            Some(member) if member.held.is_some() => Watch::Hold(id),
            Some(_) => Watch::Turn(id),
            None => Watch::Any(self.version),
        }
    }
}

impl Shut {
    fn closure(&self, now: BootTime) -> Closure {
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
