//! What each primitive promises, as a program of one thread would see it: who may hold together, and which token
//! comes next.

/// Tells the leases of one history apart.
pub type Hold = u32;

/// Which primitive a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// One at a time, each under a higher token.
    Mutex,
    /// Any number of readers, or one writer.
    ReadWrite,
    /// So many permits.
    Permits(u32),
    /// One scope at a time, which may take it again and again under the same token.
    Reentrant,
    /// Done once, and then never again.
    Once,
}

/// What somebody wants of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Want {
    /// All of it: a mutex, or to be the one who does it.
    All,
    /// To read.
    Read,
    /// To read, and perhaps to write later.
    Upgradeable,
    /// To write.
    Write,
    /// So many permits.
    Permits(u32),
    /// All of it, for this scope.
    Scope(u32),
}

impl Want {
    /// Whether who has `self` and becomes `other` has more than before.
    fn grows_to(self, other: Self) -> bool {
        let size = |want| match want {
            Self::Read => 0,
            Self::Upgradeable => 1,
            Self::All | Self::Write | Self::Permits(_) | Self::Scope(_) => 2,
        };
        size(other) > size(self)
    }
}

/// What happened to a name, as far as the order of such steps matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// Somebody got it.
    Granted {
        /// What is known from here on by this number.
        hold: Hold,
        /// What was asked for.
        want: Want,
        /// The token.
        token: u64,
    },
    /// A try was told that it is taken.
    Busy {
        /// What was asked for.
        want: Want,
    },
    /// A holder was told that it holds.
    Holds {
        /// Which.
        hold: Hold,
        /// The token that it was told.
        token: u64,
    },
    /// A holder has less or more than before.
    Changed {
        /// Which.
        hold: Hold,
        /// What it has now.
        want: Want,
        /// The token from here on.
        token: u64,
    },
    /// It is held no longer by this one.
    Ended {
        /// Which.
        hold: Hold,
    },
    /// What had to be done once is done, by one who holds it.
    Done {
        /// Which.
        hold: Hold,
    },
    /// It is marked as done, by a mark that was under way when its lease ended; one mark stands at a time.
    DoneLate,
    /// Somebody was told that it has been done.
    AlreadyDone,
    /// Somebody made it forgotten that it has been done.
    Forgotten,
    /// Somebody was told that it has not been done.
    NotDone,
    /// Nothing that is known to have happened: somebody gave up, or does not know, and may stand in line or hold
    /// unseen. It is never part of an order; a try may be told "taken" because of it.
    Lurks {
        /// What was asked for.
        want: Want,
    },
}

/// A name between two steps.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct State {
    /// Who holds what under which token, in order of their numbers.
    holders: Vec<(Hold, Want, u64)>,
    /// The highest token so far.
    last: u64,
    done: bool,
}

impl Kind {
    /// Whether all of them can have at once what they want.
    fn together(self, wants: impl Iterator<Item = Want> + Clone) -> bool {
        let count = wants.clone().count();
        let of = |wanted| wants.clone().filter(|want| *want == wanted).count();
        match self {
            Self::Mutex | Self::Once => count <= 1,
            Self::ReadWrite => count <= 1 || (of(Want::Write) == 0 && of(Want::Upgradeable) <= 1),
            Self::Permits(all) => {
                let taken = wants.map(|want| if let Want::Permits(some) = want { some } else { all });
                taken.sum::<u32>() <= all
            }
            Self::Reentrant => wants.clone().all(|want| wants.clone().next() == Some(want)),
        }
    }

    /// The state after a step; `None` where the primitive does not allow it. `in_line` is what others wait for at
    /// that moment, as far as anybody can know.
    #[must_use]
    pub fn step(
        self,
        state: &State,
        step: Step,
        in_line: impl Iterator<Item = Want> + Clone,
    ) -> Option<State> {
        let wants = state.holders.iter().map(|(_, want, _)| *want);
        let place = |hold: Hold| state.holders.iter().position(|(other, ..)| *other == hold);
        let mut next = state.clone();
        match step {
            Step::Granted { hold, want, token } => {
                let again = self == Self::Reentrant && !state.holders.is_empty();
                let right = if again { token == state.last } else { token > state.last };
                let fits = self.together(wants.chain([want])) && place(hold).is_none();
                if !right || !fits || state.done {
                    return None;
                }
                next.last = token;
                next.holders.push((hold, want, token));
                next.holders.sort_unstable();
            }
            Step::Busy { want } => {
                // A scope that waits for its own has left a lease whose end the store has not heard of yet.
                let own = self == Self::Reentrant && in_line.clone().next().is_some();
                if state.done || (!own && self.together(wants.chain(in_line).chain([want]))) {
                    return None;
                }
            }
            Step::Holds { hold, token } => {
                place(hold).filter(|at| state.holders[*at].2 == token)?;
            }
            Step::Changed { hold, want, token } => {
                let at = place(hold)?;
                let (_, had, old) = next.holders.remove(at);
                let right = if had.grows_to(want) { token > state.last } else { token == old };
                let others = next.holders.iter().map(|(_, want, _)| *want);
                if !right || !self.together(others.chain([want])) {
                    return None;
                }
                next.last = next.last.max(token);
                next.holders.insert(at, (hold, want, token));
            }
            Step::Ended { hold } => drop(next.holders.remove(place(hold)?)),
            Step::Done { .. } | Step::DoneLate if state.done => return None,
            Step::Done { hold } => {
                place(hold)?;
                next.done = true;
            }
            Step::AlreadyDone | Step::Forgotten if !state.done => return None,
            Step::NotDone if state.done => return None,
            Step::AlreadyDone | Step::NotDone => {}
            Step::DoneLate => next.done = true,
            Step::Forgotten => next.done = false,
            Step::Lurks { .. } => return None,
        }
        Some(next)
    }
}

impl Step {
    /// Whether it only tells how things stand.
    #[must_use]
    pub fn only_looks(self) -> bool {
        matches!(self, Self::Busy { .. } | Self::Holds { .. } | Self::AlreadyDone | Self::NotDone)
    }

    /// What is waited for until it has happened.
    #[must_use]
    pub fn waits_for(self) -> Option<Want> {
        match self {
            Self::Granted { want, .. } | Self::Changed { want, .. } | Self::Lurks { want } => Some(want),
            Self::Busy { .. } | Self::Holds { .. } | Self::Ended { .. } | Self::Done { .. } => None,
            Self::DoneLate | Self::AlreadyDone | Self::NotDone | Self::Forgotten => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plays(kind: Kind, steps: &[Step]) -> bool {
        let mut state = State::default();
        steps.iter().all(|step| match kind.step(&state, *step, std::iter::empty()) {
            Some(next) => {
                state = next;
                true
            }
            None => false,
        })
    }

    const fn granted(hold: Hold, want: Want, token: u64) -> Step {
        Step::Granted { hold, want, token }
    }

    #[test]
    fn a_mutex_is_held_by_one_under_rising_tokens() {
        let (one, two) = (granted(1, Want::All, 5), granted(2, Want::All, 6));
        let (ended, busy) = (Step::Ended { hold: 1 }, Step::Busy { want: Want::All });
        assert!(plays(Kind::Mutex, &[one, busy, Step::Holds { hold: 1, token: 5 }, ended, two]));
        assert!(!plays(Kind::Mutex, &[one, two]));
        assert!(!plays(Kind::Mutex, &[one, ended, busy]));
        assert!(!plays(Kind::Mutex, &[one, ended, granted(2, Want::All, 5)]));
        assert!(!plays(Kind::Mutex, &[one, ended, Step::Holds { hold: 1, token: 5 }]));
        assert!(!plays(Kind::Mutex, &[one, ended, ended]));
    }

    #[test]
    fn readers_share_and_only_an_upgradeable_one_becomes_the_writer_under_a_higher_token() {
        let (read, maybe) = (granted(1, Want::Read, 5), granted(2, Want::Upgradeable, 6));
        let write = |token| Step::Changed { hold: 2, want: Want::Write, token };
        let back = Step::Changed { hold: 2, want: Want::Read, token: 7 };
        let ended = Step::Ended { hold: 1 };
        assert!(plays(Kind::ReadWrite, &[read, maybe, ended, write(7), back, granted(3, Want::Read, 8)]));
        assert!(!plays(Kind::ReadWrite, &[read, maybe, write(7)]));
        assert!(!plays(Kind::ReadWrite, &[read, maybe, ended, write(6)]));
        assert!(!plays(Kind::ReadWrite, &[maybe, granted(3, Want::Upgradeable, 7)]));
        assert!(!plays(Kind::ReadWrite, &[read, Step::Busy { want: Want::Read }]));
        assert!(!plays(Kind::ReadWrite, &[read, granted(3, Want::Write, 7)]));
    }

    #[test]
    fn permits_add_up() {
        let some = |hold, permits| granted(hold, Want::Permits(permits), hold.into());
        let busy = |permits| Step::Busy { want: Want::Permits(permits) };
        assert!(plays(Kind::Permits(3), &[some(1, 2), busy(2), some(2, 1), busy(1)]));
        assert!(!plays(Kind::Permits(3), &[some(1, 2), some(2, 2)]));
        assert!(!plays(Kind::Permits(3), &[some(1, 2), busy(1)]));
    }

    #[test]
    fn a_scope_takes_it_again_under_the_same_token() {
        let take = |hold, scope, token| granted(hold, Want::Scope(scope), token);
        let ended = |hold| Step::Ended { hold };
        assert!(plays(Kind::Reentrant, &[take(1, 7, 5), take(2, 7, 5), ended(1), ended(2), take(3, 8, 6)]));
        assert!(!plays(Kind::Reentrant, &[take(1, 7, 5), take(2, 7, 6)]));
        assert!(!plays(Kind::Reentrant, &[take(1, 7, 5), take(2, 7, 5), ended(1), take(3, 8, 6)]));
        assert!(!plays(Kind::Reentrant, &[take(1, 7, 5), ended(1), take(2, 7, 5)]));
    }

    #[test]
    fn what_is_done_once_is_not_done_again() {
        let (start, done) = (granted(1, Want::All, 5), Step::Done { hold: 1 });
        let (ended, again) = (Step::Ended { hold: 1 }, granted(2, Want::All, 6));
        assert!(plays(Kind::Once, &[start, ended, Step::NotDone, again]));
        assert!(plays(Kind::Once, &[start, done, Step::AlreadyDone, ended, Step::Forgotten, again]));
        assert!(!plays(Kind::Once, &[start, done, ended, again]));
        assert!(!plays(Kind::Once, &[start, ended, done]));
        assert!(plays(Kind::Once, &[start, ended, Step::DoneLate, Step::AlreadyDone]));
        assert!(!plays(Kind::Once, &[start, done, Step::DoneLate]));
        assert!(!plays(Kind::Once, &[start, Step::AlreadyDone]));
        assert!(!plays(Kind::Once, &[start, Step::Forgotten]));
    }
}
