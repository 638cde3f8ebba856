//! The arithmetic of a quorum: how many decide, what is proposed, and what follows from the votes. Pure, so that a model
//! checks the very formulas that ship.

use std::time::Duration;

use crate::{ServerTime, Token, fault};

/// How many of so many nodes decide: of the full list, whoever of them answers. Two majorities share a node.
#[must_use]
pub fn majority(nodes: usize) -> usize {
    if fault!("quorum_of_half") { nodes / 2 } else { nodes / 2 + 1 }
}

/// The token to propose: by the nodes' clocks, and above every counter that was seen. `None` at the end of the scale.
///
/// The clock is the one in the middle, so that one node whose clock is far off neither makes the others refuse nor
/// uses up the scale; without any, it is the caller's own.
#[must_use]
pub fn proposal(clocks: &mut [ServerTime], own: ServerTime, seen: Option<Token>) -> Option<Token> {
    clocks.sort_unstable();
    let clock = clocks.get(clocks.len() / 2).copied().unwrap_or(own).as_micros();
    let above = seen.map_or(1, |seen| seen.get() + 1);
    Token::new(clock.max(above))
}

/// What one node said to a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Vote {
    /// It granted this token; so much is left there, counted from when it was asked.
    Accepted {
        /// The token that it has for the claim.
        token: Token,
        /// How much is left.
        left: Duration,
    },
    /// Its counter stands here, and the proposal is not above it.
    Above(Token),
    /// Somebody else has it there, or it is kept shut.
    Taken,
    /// The id is spent there.
    Spent,
    /// It answered, but its word does not count: it lost what it knew, or its clock jumped.
    Mute,
    /// It did not answer, or not in a way that tells.
    Silent,
}

/// What follows from the votes so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// More votes may change it.
    Open,
    /// A majority accepted this very proposal, and holds it for so long.
    Won {
        /// How much is left on the last node that is needed.
        left: Duration,
    },
    /// It may be accepted above this.
    Higher(Token),
    /// A majority is out of reach: others have nodes that it would take.
    Beaten,
    /// Too few answered.
    Unanswered,
}

/// The votes on one proposal. Votes for another never add up with these: a token of which some nodes know a lower
/// one is known by no majority.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tally {
    nodes: usize,
    proposal: Token,
    votes: Vec<Vote>,
}

impl Tally {
    /// No votes yet, on this proposal to so many nodes.
    #[must_use]
    pub fn new(nodes: usize, proposal: Token) -> Self {
        Self { nodes, proposal, votes: Vec::with_capacity(nodes) }
    }

    /// Counts a vote.
    pub fn count(&mut self, vote: Vote) {
        self.votes.push(vote);
    }

    /// What follows.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let needed = majority(self.nodes);
        let open = self.nodes.saturating_sub(self.votes.len());
        let mut lefts: Vec<Duration> = self.votes.iter().filter_map(|vote| self.accepts(*vote)).collect();
        lefts.sort_unstable_by(|one, other| other.cmp(one));
        if let Some(left) = lefts.get(needed - 1) {
            return Verdict::Won { left: *left };
        }
        if lefts.len() + open >= needed {
            return Verdict::Open;
        }
        let above = self.votes.iter().filter_map(|vote| match vote {
            Vote::Above(counter) => Some(*counter),
            _ => None,
        });
        let (refusals, highest) = (above.clone().count(), above.max());
        if let Some(highest) = highest.filter(|_| lefts.len() + refusals + open >= needed) {
            return Verdict::Higher(highest);
        }
        // As many as no majority can do without.
        let decide = self.nodes + 1 - needed;
        let of = |kinds: [Vote; 2]| self.votes.iter().filter(|vote| kinds.contains(vote)).count();
        let (silent, taken) = (of([Vote::Silent, Vote::Mute]), of([Vote::Taken, Vote::Spent]));
        if silent >= decide {
            Verdict::Unanswered
        } else if taken >= decide || open == 0 {
            Verdict::Beaten
        } else {
            Verdict::Open
        }
    }

    /// Whether the id is spent somewhere: then it will never be held by all.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.votes.contains(&Vote::Spent)
    }

    fn accepts(&self, vote: Vote) -> Option<Duration> {
        match vote {
            Vote::Accepted { token, left } if token == self.proposal || fault!("quorum_adds_up") => {
                Some(left)
            }
            _ => None,
        }
    }
}

/// What a node said to a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Word {
    /// It holds the claim for so long.
    Kept(Duration),
    /// It holds nothing.
    Lost,
    /// It did not say, or its word does not count.
    Silent,
}

/// What follows from the words of the nodes to a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Upshot {
    /// More words may change it.
    Open,
    /// A majority holds it for so long.
    Kept(Duration),
    /// No majority holds it, nor will.
    Lost,
    /// Too few answered to tell.
    Unknown,
}

/// What follows from the words so far, of so many nodes.
#[must_use]
pub fn upshot(nodes: usize, words: &[Word]) -> Upshot {
    let needed = majority(nodes);
    let mut kept: Vec<Duration> = words
        .iter()
        .filter_map(|word| match word {
            Word::Kept(left) => Some(*left),
            Word::Lost | Word::Silent => None,
        })
        .collect();
    kept.sort_unstable_by(|one, other| other.cmp(one));
    if let Some(left) = kept.get(needed - 1) {
        return Upshot::Kept(*left);
    }
    let lost = words.iter().filter(|word| **word == Word::Lost).count();
    if nodes - lost < needed {
        return Upshot::Lost;
    }
    if words.len() < nodes { Upshot::Open } else { Upshot::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> Token {
        Token::new(number).unwrap()
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn tally(votes: &[Vote]) -> Tally {
        let mut tally = Tally::new(5, token(10));
        votes.iter().for_each(|vote| tally.count(*vote));
        tally
    }

    #[test]
    fn two_majorities_share_a_node() {
        for nodes in [3, 5, 7, 9] {
            assert!(2 * majority(nodes) > nodes);
        }
    }

    #[test]
    fn one_node_with_a_mad_clock_does_not_decide_what_is_proposed() {
        let at = ServerTime::from_micros;
        let mut clocks = [at(100), at(1 << 60), at(102)];
        assert_eq!(proposal(&mut clocks, at(7), None), Some(token(102)));
        assert_eq!(proposal(&mut clocks, at(7), Some(token(500))), Some(token(501)));
        assert_eq!(proposal(&mut [], at(7), None), Some(token(7)));
    }

    #[test]
    fn validity_is_that_of_the_last_node_that_is_needed() {
        let yes = |left| Vote::Accepted { token: token(10), left: ms(left) };
        let votes = [yes(30), Vote::Silent, yes(10), yes(20)];
        assert_eq!(tally(&votes).verdict(), Verdict::Won { left: ms(10) });
        assert_eq!(tally(&[yes(30), yes(10), yes(20), yes(15)]).verdict(), Verdict::Won { left: ms(15) });
    }

    #[test]
    fn accepts_of_different_tokens_never_add_up() {
        let yes = |number| Vote::Accepted { token: token(number), left: ms(10) };
        assert_eq!(tally(&[yes(10), yes(10), yes(9), Vote::Taken, Vote::Taken]).verdict(), Verdict::Beaten);
    }

    #[test]
    fn it_is_open_as_long_as_a_vote_may_decide() {
        let yes = Vote::Accepted { token: token(10), left: ms(10) };
        assert_eq!(tally(&[yes, Vote::Taken, Vote::Taken]).verdict(), Verdict::Open);
        assert_eq!(tally(&[yes, Vote::Taken, Vote::Taken, Vote::Taken]).verdict(), Verdict::Beaten);
        // Whether others have it, or nobody answers, is known by the last vote only.
        let mut mixed = tally(&[Vote::Spent, Vote::Spent, Vote::Silent, Vote::Silent]);
        assert_eq!(mixed.verdict(), Verdict::Open);
        mixed.count(Vote::Silent);
        assert_eq!(mixed.verdict(), Verdict::Unanswered);
        assert_eq!(
            tally(&[Vote::Above(token(12)), Vote::Above(token(11)), Vote::Above(token(9))]).verdict(),
            { Verdict::Higher(token(12)) }
        );
        assert_eq!(tally(&[Vote::Silent, Vote::Mute, Vote::Silent]).verdict(), Verdict::Unanswered);
    }

    #[test]
    fn a_renewal_is_kept_lost_or_unknown() {
        let kept = |left| Word::Kept(ms(left));
        assert_eq!(upshot(3, &[kept(5), kept(4)]), Upshot::Kept(ms(4)));
        assert_eq!(upshot(3, &[kept(5), Word::Lost]), Upshot::Open);
        assert_eq!(upshot(3, &[Word::Lost, Word::Lost]), Upshot::Lost);
        assert_eq!(upshot(3, &[kept(5), Word::Lost, Word::Silent]), Upshot::Unknown);
    }
}
