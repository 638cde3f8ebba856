//! Whose turn it is, and when to look again.

use super::{Line, Member};
use crate::{BootTime, ClaimId, Cursor, Share, State, Verdict, admit};

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

impl Line {
    /// The waiters whose turn has come, and who therefore should be woken.
    pub fn ready(&self) -> impl Iterator<Item = &Member> {
        let open = self.shut.is_none() && !crate::fault!("wake_nobody");
        let mut ahead: Vec<Share> = Vec::new();
        let mut waiters: Vec<&Member> = Vec::new();
        for member in self.members.iter().filter(|_| open) {
            if member.held.is_some() { ahead.push(member.claims()) } else { waiters.push(member) }
        }
        // What is ahead only grows: once it fills even the widest limit, nobody further back can be admitted.
        let full = |ahead: &[Share]| admit(ahead, Share::SHARED) != Verdict::Admit;
        let growing = self.members.iter().enumerate().filter(move |(index, member)| {
            let fits = |wanted| admit(&self.other_holders(*index, |_| true), wanted) == Verdict::Admit;
            open && member.held.is_some() && member.wanted.is_some_and(fits)
        });
        let waiting = waiters
            .into_iter()
            .map_while(move |member| {
                if full(&ahead) {
                    return None;
                }
                let admitted = admit(&ahead, member.share) == Verdict::Admit;
                ahead.push(member.share);
                Some(admitted.then_some(member))
            })
            .flatten();
        growing.map(|(_, member)| member).chain(waiting)
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
        if mine.until <= now {
            return Ruling::Ready;
        }
        if mine.held.is_some() {
            return mine.wanted.map_or(Ruling::Ready, |wanted| self.rule_growth(now, index, wanted, wakes));
        }
        if let Some(shut) = self.shut_at(now) {
            return Ruling::NotBefore(shut.until.min(mine.until));
        }
        let members = self.members.iter().enumerate();
        let ahead = members.filter(|(other, _)| self.is_ahead(*other, index)).map(|(_, member)| member);
        let (lapsed, stand): (Vec<_>, Vec<_>) = ahead.partition(|member| member.until <= now);
        let shares: Vec<Share> = stand.iter().map(|member| member.claims()).collect();
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

    fn rule_growth(&self, now: BootTime, index: usize, wanted: Share, wakes: bool) -> Ruling {
        if let Some(shut) = self.shut_at(now) {
            return Ruling::NotBefore(shut.until.min(self.members[index].until));
        }
        let stand = self.other_holders(index, |member| member.until > now);
        if admit(&stand, wanted) == Verdict::Admit && wakes {
            return Ruling::Ready;
        }
        let ends = self.members.iter().filter(|member| member.held.is_some()).map(|member| member.until);
        ends.filter(|until| *until > now).min().map_or(Ruling::NotYet, Ruling::NotBefore)
    }

    /// From what a claim that was answered so waits on.
    #[must_use]
    pub fn watch(&self, id: ClaimId, answer: &State) -> Watch {
        match self.members.iter().find(|member| member.id == id) {
            // A try for more, which left no wish.
            Some(member)
                if member.held.is_some()
                    && member.wanted.is_none()
                    && matches!(answer, State::Waiting { .. } | State::Closed(_)) =>
            {
                Watch::Any(self.version)
            }
            Some(member) if member.held.is_some() && member.wanted.is_none() => Watch::Hold(id),
            Some(_) => Watch::Turn(id),
            None => Watch::Any(self.version),
        }
    }
}
