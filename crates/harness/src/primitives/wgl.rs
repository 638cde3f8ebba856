//! Whether what happened to a name can be put into one order that its primitive allows: the search of Wing and
//! Gong with the memory of Lowe, one name at a time.
//!
//! Each operation takes effect at one moment between its start and its end. The search tries the orders which agree
//! with that, and remembers what it has tried: the same operations in another order that lead to the same state
//! lead nowhere new.

use std::collections::HashSet;

use super::model::{Kind, State, Step, Want};

/// The number of an event in the history of a run.
pub type Stamp = u32;
/// The end of what may happen at any later time, or not at all.
pub const NEVER: Stamp = Stamp::MAX;

/// A step, and between which events it took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// Not before this.
    pub from: Stamp,
    /// Not after this; [`NEVER`] for what may as well not have happened.
    pub to: Stamp,
    /// What.
    pub step: Step,
}

impl Operation {
    pub(super) fn lurks(&self) -> bool {
        matches!(self.step, Step::Lurks { .. })
    }

    /// Whether it is part of each order.
    pub(super) fn must(&self) -> bool {
        self.to != NEVER && !self.lurks()
    }
}

/// What the search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// An order that is allowed: the places of the operations.
    Allowed(Vec<usize>),
    /// There is none. The longest beginning of one, and what could not follow it.
    Forbidden {
        /// The places of the operations.
        longest: Vec<usize>,
        /// The places of those that might have come next.
        stuck: Vec<usize>,
    },
    /// So many states were looked at in vain. It counts as a failure.
    GaveUp(usize),
}

impl Verdict {
    /// Whether an order was found.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }
}

/// Looks for an order, at no more than `most` states.
#[must_use]
pub fn search(kind: Kind, operations: &[Operation], most: usize) -> Verdict {
    let mut search =
        Search { kind, operations, order: Vec::new(), longest: Vec::new(), seen: HashSet::new(), most };
    let open = Set::all(operations.len());
    match search.go(&open, &State::default()) {
        Some(true) => Verdict::Allowed(search.order),
        Some(false) => {
            let mut open = open;
            search.longest.iter().for_each(|at| open.remove(*at));
            let stuck = search.may_be_next(&open);
            Verdict::Forbidden { longest: search.longest, stuck }
        }
        None => Verdict::GaveUp(most),
    }
}

/// The operations that are not in the order yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Set(Vec<u64>);

impl Set {
    fn all(len: usize) -> Self {
        let mut words = vec![u64::MAX; len.div_ceil(64)];
        if let (Some(last), true) = (words.last_mut(), !len.is_multiple_of(64)) {
            *last = (1 << (len % 64)) - 1;
        }
        Self(words)
    }

    fn remove(&mut self, at: usize) {
        self.0[at / 64] &= !(1 << (at % 64));
    }

    fn iter(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        self.0.iter().enumerate().flat_map(|(word, bits)| {
            let mut bits = *bits;
            std::iter::from_fn(move || {
                let at = bits.trailing_zeros() as usize;
                bits &= bits.wrapping_sub(1);
                (at < 64).then_some(word * 64 + at)
            })
        })
    }
}

struct Search<'a> {
    kind: Kind,
    operations: &'a [Operation],
    order: Vec<usize>,
    longest: Vec<usize>,
    seen: HashSet<(Set, State)>,
    most: usize,
}

impl Search<'_> {
    /// Until when the next one has to take effect.
    fn limit(&self, open: &Set) -> Stamp {
        let must = open.iter().map(|at| &self.operations[at]).filter(|operation| operation.must());
        must.map(|operation| operation.to).min().unwrap_or(NEVER)
    }

    fn may_be_next(&self, open: &Set) -> Vec<usize> {
        let limit = self.limit(open);
        let next = |at: &usize| !self.operations[*at].lurks() && self.operations[*at].from <= limit;
        open.iter().filter(next).collect()
    }

    /// The state after this one, if it may follow now.
    fn after(&self, at: usize, open: &Set, limit: Stamp, state: &State) -> Option<State> {
        let operation = self.operations[at];
        let waits = |other: usize| -> Option<Want> {
            let Operation { from, to, step } = self.operations[other];
            let there = other != at && from <= limit && to >= operation.from;
            step.waits_for().filter(|_| there)
        };
        self.kind.step(state, operation.step, open.iter().filter_map(waits))
    }

    /// Whether the open ones can follow from here; `None` once there were too many states.
    fn go(&mut self, open: &Set, state: &State) -> Option<bool> {
        let limit = self.limit(open);
        if limit == NEVER {
            return Some(true);
        }
        if self.seen.len() >= self.most {
            return None;
        }
        if !self.seen.insert((open.clone(), state.clone())) {
            return Some(false);
        }
        let mut next = self.may_be_next(open);
        // What only looks changes nothing: if it fits here, no order is lost by taking it here.
        let looks = |at: &&usize| {
            self.operations[**at].step.only_looks() && self.after(**at, open, limit, state).is_some()
        };
        if let Some(at) = next.iter().find(looks).copied() {
            next = vec![at];
        }
        // What need not happen is tried last, and of the rest what ended first.
        next.sort_by_key(|at| self.operations[*at].to);
        for at in next {
            let Some(after) = self.after(at, open, limit, state) else { continue };
            let mut left = open.clone();
            left.remove(at);
            self.order.push(at);
            if self.order.len() > self.longest.len() {
                self.longest.clone_from(&self.order);
            }
            if self.go(&left, &after)? {
                return Some(true);
            }
            self.order.pop();
        }
        Some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(from: Stamp, to: Stamp, hold: u32, token: u64) -> Operation {
        Operation { from, to, step: Step::Granted { hold, want: Want::All, token } }
    }

    fn ended(from: Stamp, to: Stamp, hold: u32) -> Operation {
        Operation { from, to, step: Step::Ended { hold } }
    }

    fn allowed(operations: &[Operation]) -> bool {
        search(Kind::Mutex, operations, 10_000).is_allowed()
    }

    #[test]
    fn two_that_overlap_are_put_in_the_order_of_their_tokens() {
        assert!(allowed(&[granted(1, 9, 1, 2), ended(10, 11, 1), granted(0, 5, 2, 1), ended(6, 8, 2)]));
        assert!(!allowed(&[granted(1, 2, 1, 2), ended(3, 4, 1), granted(5, 6, 2, 1), ended(7, 8, 2)]));
    }

    #[test]
    fn what_may_not_have_happened_helps_only_where_it_fits() {
        assert!(allowed(&[granted(1, 2, 1, 1), ended(3, NEVER, 1), granted(0, 5, 2, 2)]));
        assert!(!allowed(&[granted(1, 2, 1, 1), ended(6, NEVER, 1), granted(0, 5, 2, 2)]));
    }

    #[test]
    fn a_try_is_told_taken_only_because_of_somebody() {
        let busy = |from, to| Operation { from, to, step: Step::Busy { want: Want::All } };
        let lurks = |from, to| Operation { from, to, step: Step::Lurks { want: Want::All } };
        assert!(!allowed(&[busy(3, 4)]));
        assert!(allowed(&[busy(3, 4), lurks(1, NEVER)]));
        assert!(allowed(&[busy(3, 4), lurks(1, 3)]));
        assert!(!allowed(&[busy(3, 4), lurks(1, 2)]));
        assert!(!allowed(&[busy(3, 4), lurks(5, 9)]));
        assert!(allowed(&[busy(3, 5), granted(4, 6, 1, 1)]));
        assert!(!allowed(&[busy(3, 5), granted(6, 7, 1, 1)]));
    }

    #[test]
    fn too_many_states_are_no_verdict() {
        let many: Vec<Operation> = (0..20).map(|hold| granted(0, 99, hold, 50 - u64::from(hold))).collect();
        assert_eq!(search(Kind::Mutex, &many, 3), Verdict::GaveUp(3));
    }

    #[test]
    fn more_operations_than_bits_in_a_word_are_no_matter() {
        let pair =
            |at: u32| [granted(at * 4, at * 4 + 1, at, u64::from(at) + 1), ended(at * 4 + 2, at * 4 + 3, at)];
        let many: Vec<Operation> = (0..100).flat_map(pair).collect();
        assert!(allowed(&many));
        let mut late = many.clone();
        late[131].from = 300;
        late[131].to = 301;
        assert!(!allowed(&late));
    }
}
