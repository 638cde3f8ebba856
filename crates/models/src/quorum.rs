//! A quorum: clients that propose, hold and prolong, nodes that take or leave, and a network that loses, repeats and
//! delays.
//!
//! Loss is a message that is never delivered, and a pause is a client that does nothing while time passes. Time goes in
//! whole seconds, and a client finds out that a node is silent whenever it likes.

mod client;
mod node;

use std::collections::BTreeSet;

use stateright::{Model, Property};

use crate::clock::at;

pub use client::{Client, Phase};
pub use node::{Lock, Node, Said};

/// What happens somewhere, or the world is too small to mean anything.
pub const WON_TWICE: &str = "it is won twice";
/// .. by a proposal above the first, too.
pub const WON_HIGHER: &str = "it is won by a second proposal";
/// .. and by a claim that was asked for again, when it could be.
pub const WON_AGAIN: &str = "it is won by asking again";

/// The id of a claim: the client's number and how many it has made.
pub type Id = (u8, u8);

/// A break of the protocol, which a search must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mutant {
    /// Half of the nodes decide.
    HalfDecides,
    /// Validity is counted from the reply.
    CountsFromReply,
    /// Each node counts by itself, and the highest of what it said is the token.
    HighestOfCounters,
    /// Accepts of different proposals add up.
    AddsUp,
    /// What silent nodes may have taken is not given back.
    ForgetsSilent,
    /// A node that lost its data has its say at once.
    RestartedVotes,
    /// A node takes a proposal that equals its counter.
    TakesEqual,
    /// A free node takes any proposal.
    IgnoresCounter,
    /// A released id may be granted later.
    ForgetsReleased,
    /// A renewal creates what was lost.
    RenewalCreates,
    /// A renewal counts as kept if any node kept it.
    OneKeeps,
    /// A claim that is still being given back on some node is claimed again under the same id.
    ClaimsWhatItGivesBack,
    /// A node that has nothing of the last proposal is believed to have nothing of an earlier one that it has not heard.
    ForgetsEarlier,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::HalfDecides,
        Self::CountsFromReply,
        Self::HighestOfCounters,
        Self::AddsUp,
        Self::ForgetsSilent,
        Self::RestartedVotes,
        Self::TakesEqual,
        Self::IgnoresCounter,
        Self::ForgetsReleased,
        Self::RenewalCreates,
        Self::OneKeeps,
        Self::ClaimsWhatItGivesBack,
        Self::ForgetsEarlier,
    ];
}

/// How large the world is.
#[derive(Debug, Clone)]
pub struct Quorum {
    /// How many nodes.
    pub nodes: u8,
    /// How many clients.
    pub clients: u8,
    /// How many claims each may make.
    pub claims: u8,
    /// How often each client may ask again under the same id, when it was not granted.
    pub again: u8,
    /// How often each lease is prolonged.
    pub renewals: u8,
    /// The ttl, in seconds.
    pub ttl: u8,
    /// When the world ends.
    pub horizon: u8,
    /// How many nodes lose all they know.
    pub losses: u8,
    /// How many clocks of nodes jump ahead by a ttl.
    pub jumps: u8,
    /// How many messages are delivered twice.
    pub repeats: u8,
    /// Whether clients may give up on nodes.
    pub gives_up: bool,
    /// What is broken, if something is.
    pub mutant: Option<Mutant>,
}

impl Quorum {
    /// Three nodes and two clients: small enough to be searched through.
    #[must_use]
    pub fn small(mutant: Option<Mutant>) -> Self {
        Self {
            nodes: 3,
            clients: 2,
            claims: 2,
            again: 1,
            renewals: 1,
            ttl: 2,
            horizon: 4,
            losses: 1,
            jumps: 1,
            repeats: 1,
            gives_up: true,
            mutant,
        }
    }

    /// The smallest world in which a mutant can be seen, so that it is found soon.
    #[must_use]
    pub fn for_mutant(mutant: Mutant) -> Self {
        let still = Self {
            claims: 1,
            again: 0,
            renewals: 0,
            horizon: 1,
            losses: 0,
            jumps: 0,
            repeats: 0,
            gives_up: false,
            ..Self::small(Some(mutant))
        };
        match mutant {
            Mutant::HalfDecides | Mutant::TakesEqual | Mutant::IgnoresCounter => still,
            Mutant::HighestOfCounters => Self { repeats: 2, ..still },
            Mutant::AddsUp => Self { claims: 2, ..still },
            Mutant::CountsFromReply => Self { horizon: 3, ..still },
            Mutant::ForgetsSilent => Self { clients: 1, gives_up: true, ..still },
            Mutant::RestartedVotes => Self { losses: 1, ..still },
            Mutant::ForgetsReleased => Self { clients: 1, repeats: 1, ..still },
            Mutant::RenewalCreates => Self { clients: 1, renewals: 1, ..still },
            Mutant::OneKeeps => Self { claims: 3, renewals: 1, horizon: 4, ..still },
            Mutant::ClaimsWhatItGivesBack => Self { claims: 2, again: 1, ..still },
            Mutant::ForgetsEarlier => Self { claims: 2, ..still },
        }
    }

    /// Three nodes and two clients that ask again, in which hardly anything else happens.
    #[must_use]
    pub fn asks_again() -> Self {
        Self { mutant: None, ..Self::for_mutant(Mutant::ClaimsWhatItGivesBack) }
    }

    /// Five nodes and three clients: walked through at random.
    #[must_use]
    pub fn large(mutant: Option<Mutant>) -> Self {
        let small = Self::small(mutant);
        Self { nodes: 5, clients: 3, claims: 4, again: 2, renewals: 2, horizon: 12, losses: 2, ..small }
    }

    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}

/// What is on its way.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Message {
    /// A claim with a proposed token, to a node.
    Propose {
        /// To which node.
        node: u8,
        /// For which claim.
        id: Id,
        /// The token.
        token: u64,
    },
    /// A node's answer to a proposal.
    Voted {
        /// By which node.
        node: u8,
        /// For which claim.
        id: Id,
        /// To which proposal.
        token: u64,
        /// What it said.
        said: Said,
    },
    /// A lease to prolong, on a node.
    Renew {
        /// On which node.
        node: u8,
        /// Which claim.
        id: Id,
        /// When it was sent, by which the answer is known.
        sent: u8,
    },
    /// A node's answer to a renewal.
    Kept {
        /// By which node.
        node: u8,
        /// Which claim.
        id: Id,
        /// To the renewal that was sent then.
        sent: u8,
        /// Whether it holds it; `None` if it has no say.
        kept: Option<bool>,
    },
    /// A claim given back, to a node.
    Release {
        /// To which node.
        node: u8,
        /// Which claim.
        id: Id,
    },
}

/// Everything at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    /// Seconds since the beginning.
    pub time: u8,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The clients.
    pub clients: Vec<Client>,
    /// What is on its way, in no order that means anything.
    pub network: BTreeSet<Message>,
    /// How many more nodes may lose what they know.
    pub losses: u8,
    /// How many more clocks may jump.
    pub jumps: u8,
    /// How many more messages may come twice.
    pub repeats: u8,
    /// The tokens that were won.
    pub won: BTreeSet<u64>,
    /// Whether a clock has jumped: from then on no quorum promises exclusion.
    pub jumped: bool,
    /// A token that did not rise, with what it should have risen above.
    pub fallen: Option<(u64, u64)>,
    /// Whether something was won by a second proposal.
    pub raised: bool,
    /// Whether something was won by asking again under the same id.
    pub won_again: bool,
}

/// What may happen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// A second passes.
    Tick,
    /// A client asks for the lock.
    Ask(u8),
    /// A client that was not granted asks again, under the same id.
    AskAgain(u8),
    /// A message arrives.
    Deliver(Message),
    /// A message arrives, and will once more.
    Repeat(Message),
    /// A client waits for a node no longer.
    GiveUpOn(u8, u8),
    /// A client gives its lease back.
    Finish(u8),
    /// A client prolongs its lease.
    Prolong(u8),
    /// A client finds that its lease has run out.
    Expire(u8),
    /// A node loses all it knows.
    Lose(u8),
    /// A node's clock jumps.
    Jump(u8),
}

impl World {
    /// The clients that believe at this moment that they hold it.
    fn holders(&self) -> usize {
        let now = at(self.time);
        let holds = |client: &&Client| matches!(client.phase, Phase::Holding { until, .. } if now < until);
        self.clients.iter().filter(holds).count()
    }

    /// Whether a node has something of a claim that was given up, with nothing under way that would end it. One that
    /// lost its data has lost, too, that an id is spent; what arrives after that goes with its ttl.
    fn is_littered(&self) -> bool {
        if self.nodes.iter().any(|node| node.born.is_some()) {
            return false;
        }
        let idle = self.clients.iter().all(Client::has_left);
        idle && self.network.is_empty() && self.nodes.iter().any(|node| node.is_held(self.time))
    }
}

impl Model for Quorum {
    type State = World;
    type Action = Event;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            time: 1,
            nodes: vec![Node::default(); self.nodes.into()],
            clients: vec![Client::default(); self.clients.into()],
            network: BTreeSet::new(),
            losses: self.losses,
            jumps: self.jumps,
            repeats: self.repeats,
            won: BTreeSet::new(),
            jumped: false,
            fallen: None,
            raised: false,
            won_again: false,
        }]
    }

    fn actions(&self, world: &World, events: &mut Vec<Event>) {
        if world.time < self.horizon {
            events.push(Event::Tick);
        }
        for message in &world.network {
            events.push(Event::Deliver(message.clone()));
            if world.repeats > 0 {
                events.push(Event::Repeat(message.clone()));
            }
        }
        for (client, number) in world.clients.iter().zip(0..) {
            if self.gives_up {
                events.extend(client.late().map(|node| Event::GiveUpOn(number, node)));
            }
            match &client.phase {
                Phase::Idle => {
                    if client.claims < self.claims {
                        events.push(Event::Ask(number));
                    }
                    if client.again < self.again && self.may_ask_again(client) {
                        events.push(Event::AskAgain(number));
                    }
                }
                Phase::Asking { .. } if !self.gives_up => {}
                Phase::Asking { votes, .. } => {
                    let open = votes.iter().zip(0..).filter(|(vote, _)| vote.is_none());
                    events.extend(open.map(|(_, node)| Event::GiveUpOn(number, node)));
                }
                Phase::Holding { until, renewals, .. } => {
                    let over = at(world.time) >= *until;
                    events.push(if over { Event::Expire(number) } else { Event::Finish(number) });
                    if !over && *renewals < self.renewals {
                        events.push(Event::Prolong(number));
                    }
                }
            }
        }
        for node in 0..self.nodes {
            if world.losses > 0 {
                events.push(Event::Lose(node));
            }
            if world.jumps > 0 {
                events.push(Event::Jump(node));
            }
        }
    }

    fn next_state(&self, world: &World, event: Event) -> Option<World> {
        let mut world = world.clone();
        match event {
            Event::Tick => world.time += 1,
            Event::Ask(client) => self.ask(&mut world, client),
            Event::AskAgain(client) => self.ask_again(&mut world, client),
            Event::Deliver(message) => {
                world.network.remove(&message);
                self.deliver(&mut world, message);
            }
            Event::Repeat(message) => {
                world.repeats -= 1;
                self.deliver(&mut world, message);
            }
            Event::GiveUpOn(client, node) => self.give_up_on(&mut world, client, node),
            Event::Finish(client) | Event::Expire(client) => self.leave(&mut world, client),
            Event::Prolong(client) => self.prolong(&mut world, client),
            Event::Lose(node) => {
                world.losses -= 1;
                let time = world.time;
                let node = &mut world.nodes[usize::from(node)];
                *node = Node { ahead: node.ahead, born: Some(time), ..Node::default() };
            }
            Event::Jump(node) => {
                (world.jumps, world.jumped) = (world.jumps - 1, true);
                world.nodes[usize::from(node)].ahead += self.ttl;
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one holds it", |_, world: &World| world.jumped || world.holders() <= 1),
            Property::always("tokens rise", |_, world: &World| world.fallen.is_none()),
            Property::always("what is given up is given back", |_, world: &World| !world.is_littered()),
            Property::sometimes(WON_TWICE, |_, world: &World| world.won.len() > 1),
            Property::sometimes(WON_HIGHER, |_, world: &World| world.raised),
            Property::sometimes(WON_AGAIN, |_, world: &World| world.won_again),
        ]
    }
}

impl Quorum {
    fn deliver(&self, world: &mut World, message: Message) {
        let time = world.time;
        match message {
            Message::Propose { node, id, token } => {
                let said = self.propose_to(&mut world.nodes[usize::from(node)], time, id, token);
                world.network.insert(Message::Voted { node, id, token, said });
            }
            Message::Renew { node, id, sent } => {
                let kept = self.renew_on(&mut world.nodes[usize::from(node)], time, id);
                world.network.insert(Message::Kept { node, id, sent, kept });
            }
            Message::Release { node, id } => {
                self.release_on(&mut world.nodes[usize::from(node)], time, id);
            }
            Message::Voted { node, id, token, said } => {
                let asks = |phase: &Phase| matches!(phase, Phase::Asking { id: mine, token: now, .. } if (*mine, *now) == (id, token));
                if asks(&world.clients[usize::from(id.0)].phase) {
                    self.vote(world, id.0, node, said);
                } else {
                    self.hear_late(world, id, node, token, said);
                }
            }
            Message::Kept { node, id, sent, kept } => self.hear(world, id, node, sent, kept),
        }
    }
}
