//! A node: it takes a proposal if it is free and the proposal is above its counter.

use std::collections::BTreeSet;

use super::{Id, Mutant, Quorum};

/// What a node knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Node {
    /// The last token that it took.
    pub counter: u64,
    /// What it has granted.
    pub lock: Option<Lock>,
    /// Ids that it will not grant any more.
    pub spent: BTreeSet<Id>,
    /// By how many seconds its clock is ahead.
    pub ahead: u8,
    /// When it lost what it knew.
    pub born: Option<u8>,
}

/// What a node has granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lock {
    /// To which claim.
    pub id: Id,
    /// Under which token.
    pub token: u64,
    /// Until when by its own clock.
    pub ends: u8,
}

/// What a node says to a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Said {
    /// It took this token.
    Accepted(u64),
    /// Its counter stands here.
    Above(u64),
    /// Somebody else has it.
    Taken,
    /// The id is spent.
    Spent,
    /// It has no say.
    Mute,
    /// Nothing was heard of it.
    Silent,
}

impl Node {
    fn sweep(&mut self, time: u8) {
        if let Some(lock) = self.lock.filter(|lock| time + self.ahead >= lock.ends) {
            self.lock = None;
            self.spent.insert(lock.id);
        }
    }

    pub(super) fn is_held(&self, time: u8) -> bool {
        self.lock.is_some_and(|lock| time + self.ahead < lock.ends)
    }
}

impl Quorum {
    fn is_mute(&self, node: &Node, time: u8) -> bool {
        node.born.is_some_and(|born| time < born + self.ttl) && !self.is(Mutant::RestartedVotes)
    }

    pub(super) fn propose_to(&self, node: &mut Node, time: u8, id: Id, token: u64) -> Said {
        node.sweep(time);
        let said = self.judge(node, time, id, token);
        if self.is_mute(node, time) { Said::Mute } else { said }
    }

    fn judge(&self, node: &mut Node, time: u8, id: Id, token: u64) -> Said {
        if node.spent.contains(&id) && !self.is(Mutant::ForgetsReleased) {
            return Said::Spent;
        }
        let token = if self.is(Mutant::HighestOfCounters) { node.counter + 1 } else { token };
        match &node.lock {
            Some(lock) if lock.id == id => {
                let raised = token > lock.token && token > node.counter;
                if !raised && token != lock.token {
                    return Said::Above(node.counter);
                }
            }
            Some(_) => return Said::Taken,
            None => {
                let equal = token == node.counter && self.is(Mutant::TakesEqual);
                if token <= node.counter && !equal && !self.is(Mutant::IgnoresCounter) {
                    return Said::Above(node.counter);
                }
            }
        }
        node.counter = node.counter.max(token);
        node.lock = Some(Lock { id, token, ends: time + node.ahead + self.ttl });
        Said::Accepted(token)
    }

    pub(super) fn renew_on(&self, node: &mut Node, time: u8, id: Id) -> Option<bool> {
        node.sweep(time);
        let ends = time + node.ahead + self.ttl;
        if self.is(Mutant::RenewalCreates) && node.lock.is_none() {
            node.lock = Some(Lock { id, token: node.counter, ends });
        }
        let kept = match &mut node.lock {
            Some(lock) if lock.id == id => {
                lock.ends = ends;
                true
            }
            _ => false,
        };
        if kept && self.is_mute(node, time) { None } else { Some(kept) }
    }

    pub(super) fn release_on(&self, node: &mut Node, time: u8, id: Id) {
        node.sweep(time);
        node.spent.insert(id);
        if node.lock.is_some_and(|lock| lock.id == id) {
            node.lock = None;
        }
    }
}
