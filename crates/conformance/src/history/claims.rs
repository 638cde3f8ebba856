//! The story of each claim, put together from its records.

use std::collections::HashMap;
use std::time::Duration;

use leasehold_core::{BootTime, LockName, PLACE_LIFE, Share, Token, Turn};

use super::check::Violation;
use super::{FaultKind, Happened, Record};

/// A place is refreshed in time, beyond doubt, when the answers come closer together than this: the store's clock
/// may go a little faster.
const SURELY_KEPT: Duration = PLACE_LIFE.saturating_sub(Duration::from_millis(100));

/// A claim, by its process and its number there.
pub type ClaimKey = (u32, u64);

/// What became of one claim.
#[derive(Debug, Clone)]
pub(super) struct Story {
    pub(super) key: ClaimKey,
    pub(super) name: LockName,
    pub(super) share: Share,
    pub(super) turn: Turn,
    /// When it was first asked for.
    pub(super) asked: BootTime,
    /// After when it was granted by the store, beyond doubt: when the last ask went out that was answered with
    /// "wait", or the first of all.
    pub(super) since: BootTime,
    /// When it was first answered that it has a place in line.
    pub(super) queued: Option<BootTime>,
    /// Whether it kept that place beyond doubt.
    pub(super) steady: bool,
    /// When the grant was returned, with which token.
    pub(super) granted: Option<(BootTime, Token)>,
    /// Until when the holder may have acted on it.
    pub(super) end: BootTime,
    last_ask: BootTime,
    valid_until: BootTime,
    ended: Option<BootTime>,
    releasing: bool,
}

/// All stories, and what cannot be a story.
#[derive(Debug, Default)]
pub(super) struct Stories {
    pub(super) all: Vec<Story>,
    pub(super) renewals: u64,
    pub(super) faults: u64,
    pub(super) violations: Vec<Violation>,
}

impl Stories {
    /// Puts the records together. They may come in any order, each process's own being in order of time.
    pub(super) fn from_records(records: &[Record]) -> Self {
        let mut ordered: Vec<&Record> = records.iter().collect();
        // Stable, so that what a process wrote at one moment stays in its order.
        ordered.sort_by_key(|record| record.at);
        let mut stories = Self::default();
        let mut at: HashMap<ClaimKey, usize> = HashMap::new();
        let mut killed: HashMap<u32, BootTime> = HashMap::new();
        for record in ordered {
            let key = (record.process, record.claim);
            if let Happened::Fault(kind) = &record.what {
                stories.faults += 1;
                if *kind == FaultKind::Killed {
                    killed.entry(record.process).or_insert(record.at);
                }
                continue;
            }
            stories.renewals += u64::from(matches!(record.what, Happened::Renewed { .. }));
            let told = match at.get(&key) {
                Some(index) => stories.all[*index].tell(record),
                None => Story::begin(record).map(|story| {
                    at.insert(key, stories.all.len());
                    stories.all.push(story);
                }),
            };
            stories.violations.extend(told.err());
        }
        for story in &mut stories.all {
            let ends = [Some(story.valid_until), story.ended, killed.get(&story.key.0).copied()];
            story.end = ends.into_iter().flatten().min().unwrap_or(story.valid_until);
        }
        stories
    }
}

impl Story {
    fn begin(record: &Record) -> Result<Self, Violation> {
        let key = (record.process, record.claim);
        let Happened::Asked { name, attempt: _, turn, share } = &record.what else {
            return Err(Violation::Impossible { key, why: "it was never asked for" });
        };
        let asked = record.at;
        Ok(Self {
            key,
            name: name.clone(),
            share: *share,
            turn: *turn,
            asked,
            since: asked,
            queued: None,
            steady: true,
            granted: None,
            end: asked,
            last_ask: asked,
            valid_until: asked,
            ended: None,
            releasing: false,
        })
    }

    fn tell(&mut self, record: &Record) -> Result<(), Violation> {
        let (key, at) = (self.key, record.at);
        let impossible = |why| Err(Violation::Impossible { key, why });
        match &record.what {
            Happened::Asked { name, attempt: _, turn, share } => {
                self.last_ask = at;
                if (name, turn, share) != (&self.name, &self.turn, &self.share) {
                    return impossible("it was asked for again as something else");
                }
            }
            Happened::Queued if self.granted.is_some() => return impossible("it waits after it was granted"),
            Happened::Queued => {
                self.answered(at);
                self.since = self.last_ask;
                self.queued.get_or_insert(at);
            }
            Happened::Granted { .. } if self.granted.is_some() => {
                return Err(Violation::GrantedTwice { key });
            }
            Happened::Granted { token, valid_until } => {
                self.answered(at);
                self.granted = Some((at, *token));
                self.valid_until = *valid_until;
            }
            Happened::Renewed { .. } if self.granted.is_none() => {
                return impossible("renewed, never granted");
            }
            Happened::Renewed { valid_until } => {
                if self.ended.is_some() || at > self.valid_until {
                    return Err(Violation::Revived { key });
                }
                self.valid_until = *valid_until;
            }
            Happened::ReleaseCalled => {
                self.releasing = true;
                self.ended.get_or_insert(at);
            }
            Happened::Released if !self.releasing => return impossible("released without a call"),
            Happened::Lost if self.granted.is_none() => return impossible("lost, never granted"),
            Happened::Lost => {
                self.ended.get_or_insert(at);
            }
            Happened::Released | Happened::GaveUp | Happened::Fault(_) => {}
        }
        Ok(())
    }

    /// Between two answers that are far apart the place may have lapsed, and been taken anew at the end.
    fn answered(&mut self, at: BootTime) {
        if self.queued.is_some() && at.since(self.since) > SURELY_KEPT {
            self.steady = false;
        }
    }

    /// The grant, if there was one: when it was returned, its token, and until when it may have been acted on.
    pub(super) fn held(&self) -> Option<(BootTime, Token, BootTime)> {
        self.granted.map(|(from, token)| (from, token, self.end))
    }

    /// Whether this one, standing in line before the other was asked for, must be granted first.
    pub(super) fn goes_before(&self, other: &Self) -> bool {
        let strict = self.turn == Turn::Fifo || other.turn == Turn::Fifo;
        strict && self.steady && self.share.excludes(other.share)
    }
}
