//! How several claims are judged as one: all or none.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Line, Member, Moment, Overruled, Shut};
use crate::{BootTime, Claim, ClaimId, Counter, LockName, State, Turn};

/// What several claims came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Joint {
    /// All of them hold.
    All(Vec<State>),
    /// None of them does by this step, and the lines are as they were.
    None {
        /// The first that was in the way.
        index: usize,
        /// Where it stands.
        state: State,
    },
}

impl Line {
    /// Judges several claims, each with the line of its name, as one. The lines must have been
    /// [swept](Self::sweep) at this moment.
    ///
    /// # Errors
    ///
    /// When one of them is not judged at all, by its place; nothing has changed then.
    pub fn claim_all(
        at: Moment,
        pairs: &mut [(Self, &Claim)],
        counter: &mut Counter,
        life: Option<&Arc<str>>,
    ) -> Result<Joint, (usize, Overruled)> {
        if let Some(index) = named_twice(pairs.iter().map(|(_, claim)| &claim.name)) {
            return Err((index, Overruled::NamedTwice));
        }
        let before: Vec<Before> = pairs.iter().map(|(line, claim)| Before::of(line, claim)).collect();
        let counted = *counter;
        let mut states = Vec::with_capacity(pairs.len());
        let mut failed = None;
        for (index, (line, claim)) in pairs.iter_mut().enumerate() {
            // Whatever their turn: a place in one line, kept while others are waited for, is half of it left behind.
            let now = Claim { turn: Turn::Now, ..(*claim).clone() };
            match line.claim(at, &now, counter, life.cloned()) {
                Ok(state @ State::Granted(_)) => states.push(state),
                Ok(state) => failed = Some(Ok(Joint::None { index, state })),
                Err(overruled) => failed = Some(Err((index, overruled))),
            }
            if failed.is_some() {
                break;
            }
        }
        let Some(answer) = failed else { return Ok(Joint::All(states)) };
        if !crate::fault!("half_of_all_stays") {
            for ((line, _), before) in pairs.iter_mut().zip(before) {
                before.restore(line);
            }
            *counter = counted;
        }
        answer
    }
}

/// The first claim, by its place, whose name an earlier one has too: as one step they would exclude each other.
pub(crate) fn named_twice<'a>(names: impl Iterator<Item = &'a LockName>) -> Option<usize> {
    let mut seen = HashSet::new();
    names.into_iter().position(|name| !seen.insert(name))
}

/// A line as it was, but for the tombstones that one claim cannot touch: a busy name has thousands.
struct Before {
    members: Vec<Member>,
    shut: Option<Shut>,
    version: u64,
    tombstones: Vec<(ClaimId, Option<BootTime>)>,
}

impl Before {
    fn of(line: &Line, claim: &Claim) -> Self {
        let Line { members, shut, tombstones, version } = line;
        let ids = [Some(claim.id), claim.succeeds].into_iter().flatten();
        let tombstones = ids.map(|id| (id, tombstones.until(id))).collect();
        Self { members: members.clone(), shut: shut.clone(), version: *version, tombstones }
    }

    fn restore(self, line: &mut Line) {
        let Self { members, shut, version, tombstones } = self;
        (line.members, line.shut, line.version) = (members, shut, version);
        for (id, until) in tombstones {
            line.tombstones.put_back(id, until);
        }
    }
}
