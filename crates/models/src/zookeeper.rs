//! The line of ZooKeeper: sessions, ephemeral nodes and the servers between a client and its leader.
//!
//! Half a tick is a second here, and so often a server that follows tells its leader which sessions it has heard of. A
//! client that pauses is one that does nothing while time passes.

mod client;
mod ensemble;
mod size;

use leasehold_core::BootTime;
use stateright::{Model, Property};

pub use client::{Client, Phase, Reply, Stage};
pub use ensemble::{Conn, Forward, Health, Node, Server, Session, SessionId, Txn, Write};
pub use size::{Mutant, ZooKeeper};

use crate::clock::at;

/// What happens somewhere, or the world is too small to mean anything.
pub const WON_BY_WAITING: &str = "a lease is granted to who has waited";
/// .. to a claim whose node was found again.
pub const ADOPTED: &str = "a node whose making was not answered is found";
/// .. and prolonged.
pub const RENEWED: &str = "a lease is prolonged";
/// A request that a session has left behind.
pub const MOVED: &str = "a session has moved before its request is dealt with";
/// A holder's session ends, and it hears of it in time.
pub const EXPIRED: &str = "a holder is told that its session has ended";
/// The directory begins anew between two grants.
pub const REAPED: &str = "the directory is made anew between two grants";

/// The id of a claim: the client's number and how many it has made.
pub type Id = (u8, u8);

/// What has been seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Seen {
    /// A lease was granted to who had waited.
    pub waited: bool,
    /// A node was found again.
    pub adopted: bool,
    /// A lease was prolonged.
    pub renewed: bool,
    /// A request was refused since its session had moved.
    pub moved: bool,
    /// A holder was told that its session had ended.
    pub expired: bool,
}

/// Everything at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    /// Halves of a tick since the beginning.
    pub time: u8,
    /// What a quorum has written.
    pub log: Vec<Txn>,
    /// What the leader knows of sessions.
    pub sessions: Vec<Session>,
    /// The servers.
    pub servers: Vec<Server>,
    /// The clients.
    pub clients: Vec<Client>,
    /// What else may befall them.
    pub left: Trouble,
    /// Whether the leader has failed to ask in time: from then on only tokens protect.
    pub stalled: bool,
    /// The grants, by the transaction that decided each, and their tokens.
    pub granted: Vec<(u8, u8)>,
    /// A token that did not rise, with the one that it should have risen above.
    pub fallen: Option<(u8, u8)>,
    /// What has been seen.
    pub seen: Seen,
}

/// What may still go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Trouble {
    /// Connections that break.
    pub breaks: u8,
    /// Servers that are cut off.
    pub cuts: u8,
    /// Servers that die.
    pub deaths: u8,
    /// Leaders that are elected.
    pub elections: u8,
    /// Claims that are given up.
    pub cancels: u8,
    /// Times that the leader does not ask.
    pub stalls: u8,
}

/// What may happen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// Half a tick passes.
    Tick,
    /// .. and the leader has asked nobody whom it has heard of.
    Stall,
    /// The leader deals with what this server has forwarded next.
    Lead(u8),
    /// A server hears of the next transaction.
    Apply(u8),
    /// The leader ends a session.
    Expire(u8),
    /// The empty directory is taken away.
    Reap,
    /// A server is cut off from its leader.
    Cut(u8),
    /// .. and is not any more.
    Heal(u8),
    /// A server dies.
    Die(u8),
    /// What a dead server has forwarded does not arrive.
    Drop(u8),
    /// The others elect a leader.
    Elect,
    /// A client makes a session on a server.
    Open(u8, u8),
    /// A client connects to a server.
    Connect(u8, u8),
    /// A client's connection breaks.
    Break(u8),
    /// A client gives up its session.
    Forsake(u8),
    /// A client asks for the lock.
    Ask(u8),
    /// A client touches its session.
    Touch(u8),
    /// A client reads an answer.
    Read(u8),
    /// A client reads the line.
    Look(u8),
    /// A client watches the node ahead.
    Arm(u8),
    /// A client whose turn it is has that confirmed.
    Confirm(u8),
    /// A client looks for its own node.
    Search(u8),
    /// A client prolongs.
    Renew(u8),
    /// A client gives back, gives up, or finds that its lease has run out.
    Leave(u8),
    /// .. and sends so over a new connection.
    Delete(u8),
}

impl World {
    /// Notes a grant, and whether its token rises among those that were decided before and after it.
    fn won(&mut self, zxid: u8, token: u8) {
        let wrong = |(other, of): &&(u8, u8)| (*other < zxid) != (*of < token) || *of == token;
        if let Some((_, of)) = self.granted.iter().find(wrong) {
            self.fallen = self.fallen.or(Some((token, *of)));
        }
        self.granted.push((zxid, token));
    }

    fn holders(&self) -> usize {
        self.clients.iter().filter(|client| client.holds(self.time)).count()
    }

    /// Whether a node stands that nobody knows of, and whose session is in use: it would stand for ever.
    fn is_littered(&self) -> bool {
        let idle = self.clients.iter().all(|client| client.phase == Phase::Idle);
        if !idle || self.servers.iter().any(|server| !server.queue.is_empty()) {
            return false;
        }
        let (line, _) = ensemble::line(&self.log);
        let used = |node: &Node| self.clients.iter().any(|client| client.session == Some(node.session));
        line.iter().any(|node| self.sessions[usize::from(node.session)].open && used(node))
    }

    /// Whether a client waits for what is gone, on a server that knows so, and will not be told.
    fn is_stuck(&self) -> bool {
        self.clients.iter().any(|client| {
            let (Some(server), Phase::Waiting { stage: Stage::Armed(ahead), .. }) =
                (client.link, &client.phase)
            else {
                return false;
            };
            client.replies.is_empty() && !self.seen_by(server).iter().any(|node| node.id == *ahead)
        })
    }

    fn reaped_between(&self) -> bool {
        let between = |zxid: u8| {
            let (first, last) = (self.granted.iter().min(), self.granted.iter().max());
            first.is_some_and(|first| first.0 < zxid) && last.is_some_and(|last| zxid < last.0)
        };
        self.log.iter().zip(1..).any(|(txn, zxid)| *txn == Txn::Reaped && between(zxid))
    }
}

impl ZooKeeper {
    fn events_of_servers(&self, world: &World, events: &mut Vec<Event>) {
        let left = world.left;
        for (server, number) in world.servers.iter().zip(0..) {
            let follows = server.health == Health::Follows;
            if !server.queue.is_empty() && (follows || server.health == Health::Dead) {
                events.push(Event::Lead(number));
            }
            if follows && usize::from(server.applied) < world.log.len() {
                events.push(Event::Apply(number));
            }
            if follows && left.cuts > 0 {
                events.push(Event::Cut(number));
            }
            if self.heals && matches!(server.health, Health::Cut | Health::Deposed) {
                events.push(Event::Heal(number));
            }
            if server.health != Health::Dead && left.deaths > 0 {
                events.push(Event::Die(number));
            }
            if server.health == Health::Dead && !server.queue.is_empty() {
                events.push(Event::Drop(number));
            }
        }
        for (session, number) in world.sessions.iter().zip(0..) {
            if session.open && world.time >= session.ends {
                events.push(Event::Expire(number));
            }
        }
        let (line, next) = ensemble::line(&world.log);
        if line.is_empty() && next > 0 {
            events.push(Event::Reap);
        }
        if left.elections > 0 {
            events.push(Event::Elect);
        }
    }

    fn events_of_client(&self, world: &World, number: u8, events: &mut Vec<Event>) {
        let client = &world.clients[usize::from(number)];
        let over = |until: &BootTime| at(world.time) >= *until;
        if let Phase::Holding { until, .. } = &client.phase
            && (over(until) || client.link.is_some())
        {
            events.push(Event::Leave(number));
        }
        if client.link.is_none() {
            for (server, at) in world.servers.iter().zip(0..) {
                let lets_in = matches!(server.health, Health::Follows | Health::Deposed);
                if lets_in && client.session.is_some() && server.applied >= client.zxid {
                    events.push(Event::Connect(number, at));
                }
                let room = world.sessions.len() < usize::from(self.sessions);
                if server.health == Health::Follows && client.session.is_none() && room {
                    events.push(Event::Open(number, at));
                }
            }
            let valid = matches!(&client.phase, Phase::Holding { until, .. } if !over(until));
            if client.session.is_some() && !valid && world.sessions.len() < usize::from(self.sessions) {
                events.push(Event::Forsake(number));
            }
            return;
        }
        if world.left.breaks > 0 {
            events.push(Event::Break(number));
        }
        if client.touched != Some(world.time) && client.ripe != Some(world.time) {
            events.push(Event::Touch(number));
        }
        if !client.replies.is_empty() {
            events.push(Event::Read(number));
        }
        match &client.phase {
            Phase::Idle if client.claims < self.claims => events.push(Event::Ask(number)),
            Phase::Idle => {}
            Phase::Asking(_) if world.left.cancels > 0 => events.push(Event::Leave(number)),
            Phase::Asking(_) => {}
            Phase::Searching { asked: false, .. } => events.push(Event::Search(number)),
            Phase::Searching { .. } => {}
            Phase::Leaving { asked: false, .. } => events.push(Event::Delete(number)),
            Phase::Leaving { .. } => {}
            Phase::Waiting { stage, .. } => {
                match stage {
                    Stage::Look => events.push(Event::Look(number)),
                    Stage::Arm(_) => events.push(Event::Arm(number)),
                    Stage::First => events.push(Event::Confirm(number)),
                    Stage::Armed(_) | Stage::Confirming => {}
                }
                if world.left.cancels > 0 {
                    events.push(Event::Leave(number));
                }
            }
            Phase::Holding { .. } => {
                if self.may_renew(world, number) {
                    events.push(Event::Renew(number));
                }
            }
        }
    }
}

impl Model for ZooKeeper {
    type State = World;
    type Action = Event;

    fn init_states(&self) -> Vec<World> {
        let server = Server {
            health: Health::Follows,
            applied: 0,
            queue: std::collections::VecDeque::new(),
            touched: std::collections::BTreeSet::new(),
        };
        let Self { breaks, cuts, deaths, elections, cancels, stalls, .. } = *self;
        let mut world = World {
            time: 1,
            log: Vec::new(),
            sessions: Vec::new(),
            servers: vec![server; self.servers.into()],
            clients: vec![Client::default(); self.clients.into()],
            left: Trouble { breaks, cuts, deaths, elections, cancels, stalls },
            stalled: false,
            granted: Vec::new(),
            fallen: None,
            seen: Seen::default(),
        };
        for client in 0..if self.begun { self.clients } else { 0 } {
            self.open(&mut world, client, client % self.servers);
        }
        for event in &self.before {
            self.happen(&mut world, event);
        }
        vec![world]
    }

    fn actions(&self, world: &World, events: &mut Vec<Event>) {
        if world.time < self.horizon {
            events.push(Event::Tick);
            if world.left.stalls > 0 {
                events.push(Event::Stall);
            }
        }
        self.events_of_servers(world, events);
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
            Property::always("one holds it", |_, world: &World| world.stalled || world.holders() <= 1),
            Property::always("tokens rise", |_, world: &World| world.fallen.is_none()),
            Property::always("what is given up is given back", |_, world: &World| !world.is_littered()),
            Property::always("whoever waits is told", |_, world: &World| !world.is_stuck()),
            Property::sometimes(WON_BY_WAITING, |_, world: &World| world.seen.waited),
            Property::sometimes(ADOPTED, |_, world: &World| world.seen.adopted),
            Property::sometimes(RENEWED, |_, world: &World| world.seen.renewed),
            Property::sometimes(MOVED, |_, world: &World| world.seen.moved),
            Property::sometimes(EXPIRED, |_, world: &World| world.seen.expired),
            Property::sometimes(REAPED, |_, world: &World| world.reaped_between()),
        ]
    }
}

impl ZooKeeper {
    fn happen(&self, world: &mut World, event: &Event) {
        match *event {
            Event::Tick => self.tick(world, false),
            Event::Stall => {
                world.left.stalls -= 1;
                self.tick(world, true);
            }
            Event::Lead(server) => self.lead(world, server),
            Event::Apply(server) => self.apply(world, server),
            Event::Expire(session) => {
                world.sessions[usize::from(session)].open = false;
                world.log.push(Txn::Closed(session));
            }
            Event::Reap => world.log.push(Txn::Reaped),
            Event::Cut(server) => {
                world.left.cuts -= 1;
                world.servers[usize::from(server)].health = Health::Cut;
            }
            Event::Heal(server) => self.heal(world, server),
            Event::Die(server) => {
                world.left.deaths -= 1;
                let it = &mut world.servers[usize::from(server)];
                if it.health != Health::Follows {
                    it.queue.clear();
                }
                it.touched.clear();
                it.health = Health::Dead;
                world.hang_up(server);
            }
            Event::Drop(server) => world.servers[usize::from(server)].queue.clear(),
            Event::Elect => {
                world.left.elections -= 1;
                self.elect(world);
            }
            Event::Open(client, server) => self.open(world, client, server),
            Event::Connect(client, server) => self.connect(world, client, server),
            Event::Break(client) => {
                world.left.breaks -= 1;
                world.clients[usize::from(client)].disconnect();
            }
            Event::Forsake(client) => self.forsake(world, client),
            Event::Ask(client) => self.ask(world, client),
            Event::Touch(client) => self.touch(world, client),
            Event::Read(client) => self.read(world, client),
            Event::Look(client) => self.look(world, client),
            Event::Arm(client) => self.arm(world, client),
            Event::Confirm(client) => self.confirm(world, client),
            Event::Search(client) => self.search(world, client),
            Event::Renew(client) => self.renew(world, client),
            Event::Leave(client) => {
                let cancels = !matches!(world.clients[usize::from(client)].phase, Phase::Holding { .. });
                world.left.cancels -= u8::from(cancels);
                self.leave(world, client);
            }
            Event::Delete(client) => self.delete(world, client),
        }
    }
}
