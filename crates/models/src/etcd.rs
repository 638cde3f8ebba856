//! The wait of etcd: a lease for each claim, keys in line, one leader that counts and another that was stopped and does not
//! know that it leads no more.
//!
//! A client that pauses is one that does nothing while time passes, and so is a leader that was stopped: what was sent to it
//! waits.

mod client;
mod cluster;
mod size;

use std::collections::{BTreeMap, BTreeSet};

use stateright::{Model, Property};

pub use client::{Client, Phase, Proof, Stage};
pub use cluster::{Entry, Lease, Message};
pub use size::{Etcd, Mutant};

use crate::clock::at;

/// What happens somewhere, or the world is too small to mean anything.
pub const WON_BY_WAITING: &str = "a lease is granted to who has waited";
/// .. and prolonged.
pub const RENEWED: &str = "a lease is prolonged";
/// .. and asked about twice, since the first word came from a leader that was none.
pub const DOUBTED: &str = "a keep-alive does not count";
/// A leader that was stopped ends what its successor keeps: as etcd does before 3.4.31 and 3.5.13.
pub const BETRAYED: &str = "two hold it, since a leader that is none has ended a lease";

/// The id of a claim, and of its lease: the client's number and how many it has made.
pub type Id = (u8, u8);

/// What has been seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Seen {
    /// A lease was granted to who had waited.
    pub waited: bool,
    /// A lease was prolonged.
    pub renewed: bool,
    /// A word about a lease did not count, since a quorum wrote in another term.
    pub doubted: bool,
}

/// What may still go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Trouble {
    /// Leaders that are elected.
    pub elections: u8,
    /// Leases that are ended by a leader that is none.
    pub betrayals: u8,
    /// Keep-alives that lie.
    pub lies: u8,
    /// Reads from the past.
    pub stale: u8,
    /// Compactions.
    pub compactions: u8,
    /// Watches that break.
    pub breaks: u8,
    /// Messages that are lost.
    pub losses: u8,
    /// Claims that are given up.
    pub cancels: u8,
}

/// Everything at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    /// Seconds since the beginning.
    pub time: u8,
    /// The term of the leader.
    pub term: u8,
    /// What a quorum has written.
    pub log: Vec<Entry>,
    /// Up to which revision no watch can begin.
    pub compacted: u8,
    /// The leases, as the leader counts them.
    pub leases: BTreeMap<Id, Lease>,
    /// How many leases there have been.
    pub grants: u8,
    /// The clients.
    pub clients: Vec<Client>,
    /// What is on its way, in no order that means anything.
    pub network: BTreeSet<Message>,
    /// What else may befall them.
    pub left: Trouble,
    /// Whether a leader that is none has ended a lease: from then on only tokens protect.
    pub betrayed: bool,
    /// The grants, by the revision that decided each, and their tokens.
    pub granted: Vec<(u8, u8)>,
    /// A token that did not rise, with the one that it should have risen above.
    pub fallen: Option<(u8, u8)>,
    /// What has been seen.
    pub seen: Seen,
}

/// What may happen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// A second passes.
    Tick,
    /// A message arrives.
    Deliver(Message),
    /// A message does not.
    Lose(Message),
    /// A keep-alive is answered well, whatever became of the lease.
    Lie(Message),
    /// A read is answered as of this revision.
    Stale(Message, u8),
    /// The leader is stopped, and another is elected.
    Elect,
    /// The leader ends a lease.
    Expire(Id),
    /// A leader that was stopped ends a lease.
    Betray(Id),
    /// What is past is compacted.
    Compact,
    /// A client asks for the lock.
    Ask(u8),
    /// A client asks again for what it has heard nothing of.
    AskAgain(u8),
    /// A client reads the line.
    Look(u8),
    /// A client opens its watch.
    Watch(u8),
    /// A client's watch shows what comes next.
    See(u8),
    /// A client's watch breaks.
    Break(u8),
    /// A client has proved what it holds, or would hold, through the leader of this term.
    Prove(u8, u8),
    /// A client gives back, gives up, or finds that its lease has run out.
    Leave(u8),
}

impl World {
    /// Notes a grant, and whether its token rises among those that were decided before and after it.
    fn won(&mut self, revision: u8, token: u8) {
        let wrong = |(other, of): &&(u8, u8)| (*other < revision) != (*of < token) || *of == token;
        if let Some((_, of)) = self.granted.iter().find(wrong) {
            self.fallen = self.fallen.or(Some((token, *of)));
        }
        self.granted.push((revision, token));
    }

    fn holders(&self) -> usize {
        self.clients.iter().filter(|client| client.holds(self.time)).count()
    }

    /// Whether a key stands that nobody knows of.
    fn is_littered(&self) -> bool {
        let idle = self.clients.iter().all(|client| client.phase == Phase::Idle);
        idle && self.network.is_empty() && !cluster::line(&self.log).is_empty()
    }

    /// Whether a client waits for what is gone, and will not be told.
    fn is_stuck(&self) -> bool {
        let line = cluster::line(&self.log);
        self.clients.iter().any(|client| {
            let Phase::Waiting { id, stage: Stage::Watching { ahead, at }, .. } = client.phase else {
                return false;
            };
            let stands = |of: Id| line.iter().any(|(key, _)| *key == of);
            at == self.revision() && !stands(ahead) && stands(id)
        })
    }
}

impl Etcd {
    fn events_of_client(&self, world: &World, number: u8, events: &mut Vec<Event>) {
        let client = &world.clients[usize::from(number)];
        let silent = !world.network.iter().any(|message| Some(message.id()) == client.id());
        if self.expects(world, number) && silent {
            events.push(Event::AskAgain(number));
        }
        let proves = |events: &mut Vec<Event>| {
            events.push(Event::Prove(number, world.term));
            if world.term > 1 {
                events.push(Event::Prove(number, world.term - 1));
            }
        };
        match &client.phase {
            Phase::Idle => {
                if client.claims < self.claims {
                    events.push(Event::Ask(number));
                }
                return;
            }
            Phase::Waiting { stage, .. } => match stage {
                Stage::Look => events.push(Event::Look(number)),
                Stage::Open { .. } => events.push(Event::Watch(number)),
                Stage::Watching { at, .. } => {
                    if *at < world.revision() {
                        events.push(Event::See(number));
                    }
                    if world.left.breaks > 0 {
                        events.push(Event::Break(number));
                    }
                }
                Stage::First => proves(events),
                Stage::Looking | Stage::Confirming => {}
            },
            Phase::Holding { until, renewing, .. } => {
                let over = at(world.time) >= *until;
                if !over && !renewing && client.renewals < self.renewals {
                    proves(events);
                }
                if over || self.finishes {
                    events.push(Event::Leave(number));
                }
                return;
            }
            Phase::Leaving(_) => return,
            Phase::Granting(_) | Phase::Placing(_) => {}
        }
        if world.left.cancels > 0 {
            events.push(Event::Leave(number));
        }
    }

    fn events_of_message(&self, world: &World, message: Message, events: &mut Vec<Event>) {
        events.push(Event::Deliver(message));
        if world.left.losses > 0 {
            events.push(Event::Lose(message));
        }
        match message {
            Message::Keep { id, to, .. }
                if world.left.lies > 0 && to == world.term && !world.leases.contains_key(&id) =>
            {
                events.push(Event::Lie(message));
            }
            // A member answers what is at least as new as what it wrote itself for this client.
            Message::Read { id } if world.left.stale > 0 => {
                let Phase::Waiting { created, .. } = world.clients[usize::from(id.0)].phase else { return };
                events.extend((created..world.revision()).map(|as_of| Event::Stale(message, as_of)));
            }
            _ => {}
        }
    }

    fn happen(&self, world: &mut World, event: &Event) {
        match *event {
            Event::Tick => world.time += 1,
            Event::Deliver(message) => {
                world.network.remove(&message);
                match self.serve(world, message) {
                    Some(reply) => _ = world.network.insert(reply),
                    None => self.hear(world, message),
                }
            }
            Event::Lose(message) => {
                world.left.losses -= 1;
                world.network.remove(&message);
            }
            Event::Lie(message) => {
                world.left.lies -= 1;
                world.network.remove(&message);
                if let Message::Keep { id, sent, to } = message {
                    world.network.insert(Message::Kept { id, sent, term: to, ok: true });
                }
            }
            Event::Stale(message, as_of) => {
                world.left.stale -= 1;
                world.network.remove(&message);
                let line = world.line_at(message.id(), as_of);
                world.network.insert(line);
            }
            Event::Elect => {
                world.left.elections -= 1;
                self.elect(world);
            }
            Event::Expire(id) => world.end(id),
            Event::Betray(id) => {
                (world.left.betrayals, world.betrayed) = (world.left.betrayals - 1, true);
                world.end(id);
            }
            Event::Compact => {
                (world.left.compactions, world.compacted) = (world.left.compactions - 1, world.revision());
            }
            Event::Ask(client) => self.ask(world, client),
            Event::AskAgain(client) => self.ask_again(world, client),
            Event::Look(client) => self.look(world, client),
            Event::Watch(client) => self.watch(world, client),
            Event::See(client) => self.see(world, client),
            Event::Break(client) => {
                world.left.breaks -= 1;
                if let Phase::Waiting { stage, .. } = &mut world.clients[usize::from(client)].phase
                    && let Stage::Watching { ahead, at } = *stage
                {
                    *stage = Stage::Open { ahead, at };
                }
            }
            Event::Prove(client, to) => self.prove(world, client, to),
            Event::Leave(client) => {
                let cancels = !matches!(world.clients[usize::from(client)].phase, Phase::Holding { .. });
                world.left.cancels -= u8::from(cancels);
                self.leave(world, client);
            }
        }
    }
}

impl Model for Etcd {
    type State = World;
    type Action = Event;

    fn init_states(&self) -> Vec<World> {
        let Self { elections, betrayals, lies, stale, compactions, breaks, losses, cancels, .. } = *self;
        let mut world = World {
            time: 1,
            term: 1,
            log: Vec::new(),
            compacted: 0,
            leases: BTreeMap::new(),
            grants: 0,
            clients: vec![Client::default(); self.clients.into()],
            network: BTreeSet::new(),
            left: Trouble { elections, betrayals, lies, stale, compactions, breaks, losses, cancels },
            betrayed: false,
            granted: Vec::new(),
            fallen: None,
            seen: Seen::default(),
        };
        for event in &self.before {
            self.happen(&mut world, event);
        }
        vec![world]
    }

    fn actions(&self, world: &World, events: &mut Vec<Event>) {
        if world.time < self.horizon {
            events.push(Event::Tick);
        }
        for message in &world.network {
            self.events_of_message(world, *message, events);
        }
        for (id, lease) in &world.leases {
            if world.time >= lease.ends {
                events.push(Event::Expire(*id));
            } else if world.left.betrayals > 0 && world.term > 1 {
                events.push(Event::Betray(*id));
            }
        }
        if world.left.elections > 0 {
            events.push(Event::Elect);
        }
        if world.left.compactions > 0 && world.compacted < world.revision() {
            events.push(Event::Compact);
        }
        for client in 0..self.clients {
            self.events_of_client(world, client, events);
        }
    }

    fn next_state(&self, world: &World, event: Event) -> Option<World> {
        let mut world = world.clone();
        self.happen(&mut world, &event);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one holds it", |_, world: &World| world.betrayed || world.holders() <= 1),
            Property::always("tokens rise", |_, world: &World| world.fallen.is_none()),
            Property::always("what is given up is given back", |_, world: &World| !world.is_littered()),
            Property::always("whoever waits is told", |_, world: &World| !world.is_stuck()),
            Property::sometimes(WON_BY_WAITING, |_, world: &World| world.seen.waited),
            Property::sometimes(RENEWED, |_, world: &World| world.seen.renewed),
            Property::sometimes(DOUBTED, |_, world: &World| world.seen.doubted),
            Property::sometimes(BETRAYED, |_, world: &World| world.betrayed && world.holders() > 1),
        ]
    }
}
