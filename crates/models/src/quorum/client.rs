//! A client: it judges what it hears by the formulas that ship.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_core::quorum::{Tally, Upshot, Verdict, Vote, Word, majority, proposal, upshot};
use leasehold_core::{BootTime, ServerTime, Token, valid_until};

use super::{Id, Message, Mutant, Quorum, Said, World};
use crate::clock::at;

/// A client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Client {
    /// What it does.
    pub phase: Phase,
    /// How many claims it has made.
    pub claims: u8,
    /// The highest counter that it has seen.
    pub seen: u64,
    /// How often it has asked again.
    pub again: u8,
    /// The last claim that it was not granted, until all nodes have said what they have of it.
    pub left: Option<Left>,
}

/// A claim that was given up.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Left {
    /// Which.
    pub id: Id,
    /// What was proposed for it last.
    pub token: u64,
    /// How many proposals it had.
    pub round: u8,
    /// The nodes to which an earlier proposal may still be on its way.
    pub unheard: BTreeSet<u8>,
    /// The nodes that are still to answer.
    pub late: BTreeSet<u8>,
    /// Whether some node is told to give it back: then it is not claimed again.
    pub spent: bool,
}

impl Client {
    /// Whether it has nothing, and nothing more to say of what it had.
    pub(super) fn has_left(&self) -> bool {
        matches!(self.phase, Phase::Idle) && self.late().next().is_none()
    }

    /// The nodes that are still to say whether they have anything of what was given up.
    pub(super) fn late(&self) -> impl Iterator<Item = u8> + '_ {
        self.left.iter().flat_map(|left| left.late.iter().copied())
    }
}

/// What a client does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Nothing.
    #[default]
    Idle,
    /// It has put a proposal to all nodes.
    Asking {
        /// For this claim.
        id: Id,
        /// The token it proposed.
        token: u64,
        /// When it sent it.
        sent: u8,
        /// The highest token that anybody had won by then.
        floor: u64,
        /// How many proposals it has made for the claim.
        round: u8,
        /// Whether it had asked under this id before.
        again: bool,
        /// The nodes of which an earlier proposal was not heard.
        unheard: BTreeSet<u8>,
        /// What the nodes have said.
        votes: Vec<Option<Said>>,
    },
    /// It believes that it holds it.
    Holding {
        /// By this claim.
        id: Id,
        /// Under this token.
        token: u64,
        /// Until then.
        until: BootTime,
        /// How often it has prolonged it.
        renewals: u8,
        /// The renewal under way: when it was sent, and what was said to it.
        renewing: Option<(u8, Vec<Option<Word>>)>,
    },
}

/// More proposals than these are not made for one claim.
const ROUNDS: u8 = 3;

fn token(number: u64) -> Token {
    // The model counts from 1, and not far.
    Token::new(number.max(1)).unwrap_or(Token::new(1).unwrap_or_else(|| unreachable!("1 is a token")))
}

impl Quorum {
    fn left(&self) -> Duration {
        Duration::from_secs(self.ttl.into())
    }

    fn to_all(&self, world: &mut World, message: impl Fn(u8) -> Message) {
        world.network.extend((0..self.nodes).map(message));
    }

    pub(super) fn ask(&self, world: &mut World, client: u8) {
        let me = &mut world.clients[usize::from(client)];
        me.claims += 1;
        let id = (client, me.claims);
        // Whatever late nodes may have of the one before they are told to give back.
        if let Some(left) = me.left.take() {
            let told = |node| Message::Release { node, id: left.id };
            world.network.extend(left.late.into_iter().map(told));
        }
        self.propose(world, id, 1, false, BTreeSet::new());
    }

    /// Whether the claim that was given up may be asked for once more under its id: when no node can have any of it.
    pub(super) fn may_ask_again(&self, client: &Client) -> bool {
        let nowhere = |left: &Left| !left.spent && left.late.is_empty();
        client.left.as_ref().is_some_and(|left| nowhere(left) || self.is(Mutant::ClaimsWhatItGivesBack))
    }

    pub(super) fn ask_again(&self, world: &mut World, client: u8) {
        let me = &mut world.clients[usize::from(client)];
        let Some((id, last)) = me.left.as_ref().map(|left| (left.id, left.token)) else { return };
        me.again += 1;
        // Clocks count microseconds, so that no two proposals of one client are the same.
        me.seen = me.seen.max(last);
        self.propose(world, id, 1, true, BTreeSet::new());
    }

    /// What a node says to a claim that was given up meanwhile: it is told to give back what it took, and a client that
    /// hears so does not claim it again.
    pub(super) fn hear_late(&self, world: &mut World, id: Id, node: u8, token: u64, said: Said) {
        let me = &mut world.clients[usize::from(id.0)];
        let Some(left) = me.left.as_mut().filter(|left| (left.id, left.token) == (id, token)) else { return };
        if left.late.remove(&node) && !self.has_nothing(said, left.round, left.unheard.contains(&node)) {
            left.spent = true;
            world.network.insert(Message::Release { node, id });
        }
    }

    /// Waits for a node no longer.
    pub(super) fn give_up_on(&self, world: &mut World, client: u8, node: u8) {
        let me = &world.clients[usize::from(client)];
        match me.left.as_ref().filter(|left| left.late.contains(&node)) {
            Some(left) => {
                let (id, token) = (left.id, left.token);
                self.hear_late(world, id, node, token, Said::Silent);
            }
            None => self.vote(world, client, node, Said::Silent),
        }
    }

    /// Whether a node has surely nothing of a claim to whose first or later proposal it said so.
    fn has_nothing(&self, said: Said, round: u8, unheard: bool) -> bool {
        match said {
            Said::Spent => true,
            Said::Taken => !unheard || self.is(Mutant::ForgetsEarlier),
            // What an earlier proposal got stands.
            Said::Above(_) => round == 1,
            Said::Silent => self.is(Mutant::ForgetsSilent),
            Said::Accepted(_) | Said::Mute => false,
        }
    }

    /// Puts a proposal to all nodes, by the formula that ships.
    fn propose(&self, world: &mut World, id: Id, round: u8, again: bool, unheard: BTreeSet<u8>) {
        let me = &mut world.clients[usize::from(id.0)];
        // Clocks differ: that of the second client is a second behind.
        let clock = ServerTime::from_micros(u64::from(world.time).saturating_sub(id.0.into()));
        let Some(proposed) = proposal(&mut [], clock, Token::new(me.seen)) else { return };
        let (token, sent) = (proposed.get(), world.time);
        let floor = world.won.last().copied().unwrap_or(0);
        let earlier = match &me.phase {
            Phase::Asking { votes, .. } if self.is(Mutant::AddsUp) => votes.clone(),
            _ => vec![None; self.nodes.into()],
        };
        let accepted = |said: Option<Said>| said.filter(|said| matches!(said, Said::Accepted(_)));
        let votes = earlier.into_iter().map(accepted).collect();
        me.phase = Phase::Asking { id, token, sent, floor, round, again, unheard, votes };
        self.to_all(world, |node| Message::Propose { node, id, token });
    }

    pub(super) fn vote(&self, world: &mut World, client: u8, node: u8, said: Said) {
        let me = &mut world.clients[usize::from(client)];
        let Phase::Asking { id, token: proposed, sent, floor, round, again, unheard, votes } = &mut me.phase
        else {
            return;
        };
        let slot = &mut votes[usize::from(node)];
        if slot.is_some() {
            return;
        }
        *slot = Some(said);
        let (id, proposed, sent, floor, round, again) = (*id, *proposed, *sent, *floor, *round, *again);
        match self.verdict(proposed, votes) {
            Verdict::Open => {}
            Verdict::Won { left } => {
                let proposed = self.token_of(proposed, votes);
                let sent = if self.is(Mutant::CountsFromReply) { world.time } else { sent };
                let until = valid_until(at(sent), left);
                me.seen = me.seen.max(proposed);
                if at(world.time) >= until {
                    return self.leave(world, client);
                }
                me.phase = Phase::Holding { id, token: proposed, until, renewals: 0, renewing: None };
                if proposed <= floor || !world.won.insert(proposed) {
                    world.fallen = world.fallen.or(Some((proposed, floor)));
                }
                world.raised |= round > 1;
                world.won_again |= again;
            }
            Verdict::Higher(counter) if round < ROUNDS => {
                me.seen = me.seen.max(counter.get());
                let mut unheard = unheard.clone();
                let silent = |said: &Option<Said>| matches!(said, None | Some(Said::Silent));
                unheard.extend(votes.iter().zip(0..).filter(|(said, _)| silent(said)).map(|(_, node)| node));
                self.propose(world, id, round + 1, again, unheard);
            }
            Verdict::Higher(_) | Verdict::Beaten | Verdict::Unanswered => self.leave(world, client),
        }
    }

    fn verdict(&self, proposed: u64, votes: &[Option<Said>]) -> Verdict {
        let mut tally = Tally::new(votes.len(), token(proposed));
        let any = self.is(Mutant::AddsUp) || self.is(Mutant::HighestOfCounters);
        for said in votes.iter().flatten() {
            tally.count(match said {
                Said::Accepted(accepted) => {
                    let accepted = if any { proposed } else { *accepted };
                    Vote::Accepted { token: token(accepted), left: self.left() }
                }
                Said::Above(counter) => Vote::Above(token(*counter)),
                Said::Taken => Vote::Taken,
                Said::Spent => Vote::Spent,
                Said::Mute => Vote::Mute,
                Said::Silent => Vote::Silent,
            });
        }
        let accepts = votes.iter().flatten().filter(|said| matches!(said, Said::Accepted(_))).count();
        if self.is(Mutant::HalfDecides) && accepts >= majority(votes.len()) - 1 {
            return Verdict::Won { left: self.left() };
        }
        tally.verdict()
    }

    fn token_of(&self, proposed: u64, votes: &[Option<Said>]) -> u64 {
        if !self.is(Mutant::HighestOfCounters) {
            return proposed;
        }
        let accepted = votes.iter().flatten().filter_map(|said| match said {
            Said::Accepted(token) => Some(*token),
            _ => None,
        });
        accepted.max().unwrap_or(proposed)
    }

    /// Gives back what any node may have, and does nothing from then on, but for telling those that answer late.
    pub(super) fn leave(&self, world: &mut World, client: u8) {
        let me = &mut world.clients[usize::from(client)];
        let told: Vec<u8>;
        let id = match std::mem::take(&mut me.phase) {
            Phase::Idle => return,
            Phase::Holding { id, .. } => {
                me.left = None;
                told = (0..self.nodes).collect();
                id
            }
            Phase::Asking { id, token, round, unheard, votes, .. } => {
                let has = |said, node| !self.has_nothing(said, round, unheard.contains(&node));
                let of_nodes = || votes.iter().copied().zip(0..);
                told = of_nodes()
                    .filter(|(said, node)| said.is_some_and(|said| has(said, *node)))
                    .map(|(_, node)| node)
                    .collect();
                let late = of_nodes().filter(|(said, _)| said.is_none()).map(|(_, node)| node).collect();
                me.left = Some(Left { id, token, round, unheard, late, spent: !told.is_empty() });
                id
            }
        };
        world.network.extend(told.into_iter().map(|node| Message::Release { node, id }));
    }

    pub(super) fn prolong(&self, world: &mut World, client: u8) {
        let sent = world.time;
        let me = &mut world.clients[usize::from(client)];
        let Phase::Holding { id, renewals, renewing, .. } = &mut me.phase else { return };
        *renewals += 1;
        *renewing = Some((sent, vec![None; self.nodes.into()]));
        let id = *id;
        self.to_all(world, |node| Message::Renew { node, id, sent });
    }

    pub(super) fn hear(&self, world: &mut World, id: Id, node: u8, sent: u8, kept: Option<bool>) {
        let (left, time) = (self.left(), world.time);
        let me = &mut world.clients[usize::from(id.0)];
        let Phase::Holding { id: mine, token, until, renewing, .. } = &mut me.phase else { return };
        let Some((asked, words)) = renewing.as_mut().filter(|(asked, _)| *mine == id && *asked == sent)
        else {
            return;
        };
        words[usize::from(node)] = Some(match kept {
            Some(true) => Word::Kept(left),
            Some(false) => Word::Lost,
            None => Word::Silent,
        });
        let heard: Vec<Word> = words.iter().flatten().copied().collect();
        let one = self.is(Mutant::OneKeeps) && heard.contains(&Word::Kept(left));
        match if one { Upshot::Kept(left) } else { upshot(words.len(), &heard) } {
            Upshot::Open | Upshot::Unknown => {}
            Upshot::Lost => self.leave(world, id.0),
            // Its time ran out before the answer came: the holder may have acted on that.
            Upshot::Kept(_) if at(time) >= *until => self.leave(world, id.0),
            Upshot::Kept(left) => {
                *until = (*until).max(valid_until(at(*asked), left));
                let (token, forgetful) = (*token, forgetful(words));
                *renewing = None;
                // A node that has forgotten it gets it again.
                world.network.extend(forgetful.into_iter().map(|node| Message::Propose { node, id, token }));
            }
        }
    }
}

fn forgetful(words: &[Option<Word>]) -> Vec<u8> {
    words.iter().zip(0..).filter(|(word, _)| **word == Some(Word::Lost)).map(|(_, node)| node).collect()
}
