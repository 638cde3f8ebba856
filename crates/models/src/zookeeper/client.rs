//! A client: one session at a time, one connection at a time, one claim at a time.
//!
//! It counts a lease from the last touch of its session that surely reached the leader before a quorum wrote for it.

use std::collections::{BTreeSet, VecDeque};

use leasehold_core::BootTime;

use super::ensemble::{Forward, Health, Node, Session, SessionId, Write};
use super::{Id, Mutant, World, ZooKeeper};
use crate::clock::{at, holds_until};

/// What a client does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Nothing.
    #[default]
    Idle,
    /// It has sent for a node, over the connection that it has.
    Asking(Id),
    /// Whether its node was made is not known: the connection broke.
    Searching {
        /// Which claim's.
        id: Id,
        /// Whether it is asking.
        asked: bool,
    },
    /// Its node stands, behind another.
    Waiting {
        /// Which claim's.
        id: Id,
        /// The node.
        node: Node,
        /// How far it is.
        stage: Stage,
    },
    /// It was granted.
    Holding {
        /// To which claim.
        id: Id,
        /// Under which token.
        token: u8,
        /// From when it counts.
        base: u8,
        /// Until when it believes in it.
        until: BootTime,
        /// Whether it is asking for more.
        renewing: bool,
    },
    /// Its node goes, wherever it is.
    Leaving {
        /// Which claim's.
        id: Id,
        /// Whether that was sent over the connection that it has.
        asked: bool,
    },
}

/// How far a client is that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// It is to read the line.
    Look,
    /// It is to watch this claim's node.
    Arm(Id),
    /// It watches it.
    Armed(Id),
    /// Nobody is ahead of it.
    First,
    /// It has asked a quorum whether its own node still stands.
    Confirming,
}

/// What a server has answered, in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reply {
    /// To a cheap request that touches the session.
    Touched {
        /// When it was sent.
        sent: u8,
    },
    /// What was watched is gone.
    Gone,
    /// To what a quorum has written.
    Done {
        /// By which transaction.
        zxid: u8,
        /// From when what it proves counts.
        base: u8,
        /// What was asked.
        write: Write,
        /// Whether it was done.
        ok: bool,
        /// The node of the claim, as the server has it then.
        mine: Option<Node>,
        /// Who is next ahead of it.
        ahead: Option<Id>,
    },
}

/// A client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Client {
    /// The server that it is connected to.
    pub link: Option<u8>,
    /// How many connections it has had.
    pub connection: u8,
    /// Its session, as far as it knows.
    pub session: Option<SessionId>,
    /// The last transaction that it has heard of: it connects to no server that is behind.
    pub zxid: u8,
    /// The sending of the last touch that the leader knows of before anything that is sent from now on.
    pub ripe: Option<u8>,
    /// The sending of a touch that was answered less than half a tick ago.
    pub fresh: Option<u8>,
    /// When it has touched last.
    pub touched: Option<u8>,
    /// What it has not read yet.
    pub replies: VecDeque<Reply>,
    /// What it does.
    pub phase: Phase,
    /// How many claims it has made.
    pub claims: u8,
    /// How often it has prolonged.
    pub renewals: u8,
}

/// The node of a claim, and who is next ahead of it.
fn place(line: &[Node], id: Id) -> (Option<Node>, Option<Id>) {
    let mine = line.iter().position(|node| node.id == id);
    let ahead = mine.and_then(|place| place.checked_sub(1)).map(|place| line[place].id);
    (mine.map(|place| line[place]), ahead)
}

impl Client {
    /// Which claim it is about.
    pub(super) fn id(&self) -> Option<Id> {
        match self.phase {
            Phase::Idle => None,
            Phase::Asking(id)
            | Phase::Searching { id, .. }
            | Phase::Waiting { id, .. }
            | Phase::Holding { id, .. }
            | Phase::Leaving { id, .. } => Some(id),
        }
    }

    /// Whether it believes that it holds it.
    pub(super) fn holds(&self, time: u8) -> bool {
        matches!(self.phase, Phase::Holding { until, .. } if at(time) < until)
    }

    /// Half a tick passes.
    pub(super) fn ripen(&mut self) {
        self.ripe = self.ripe.max(self.fresh.take());
    }

    /// Its connection is gone, and whatever was to come over it.
    pub(super) fn disconnect(&mut self) {
        (self.link, self.ripe, self.fresh) = (None, None, None);
        self.replies.clear();
        match &mut self.phase {
            Phase::Idle => {}
            Phase::Asking(id) => self.phase = Phase::Searching { id: *id, asked: false },
            Phase::Searching { asked, .. } | Phase::Leaving { asked, .. } => *asked = false,
            Phase::Waiting { stage, .. } => *stage = Stage::Look,
            Phase::Holding { renewing, .. } => *renewing = false,
        }
    }

    /// The line as its server has it has changed.
    pub(super) fn notice(&mut self, before: &[Node], now: &[Node]) {
        let Phase::Waiting { stage: Stage::Armed(ahead), .. } = self.phase else { return };
        let stands = |line: &[Node]| line.iter().any(|node| node.id == ahead);
        if stands(before) && !stands(now) {
            self.replies.push_back(Reply::Gone);
        }
    }

    /// Its server answers what a quorum has written.
    pub(super) fn answer(&mut self, zxid: u8, base: u8, write: Write, ok: bool, line: &[Node]) {
        let (mine, ahead) = self.id().map_or((None, None), |id| place(line, id));
        self.replies.push_back(Reply::Done { zxid, base, write, ok, mine, ahead });
    }
}

impl ZooKeeper {
    /// From when what is sent now counts, once a quorum has written it.
    fn base(&self, world: &World, client: u8) -> Option<u8> {
        let me = &world.clients[usize::from(client)];
        if self.is(Mutant::CountsOwnSending) {
            return Some(world.time);
        }
        if self.is(Mutant::CountsUnripe) { me.ripe.max(me.fresh) } else { me.ripe }
    }

    /// Has a quorum write something, over the connection that it has.
    pub(super) fn send(&self, world: &mut World, client: u8, write: Write) {
        let base = self.base(world, client);
        let me = &world.clients[usize::from(client)];
        if let (Some(server), Some(session), Some(base)) = (me.link, me.session, base) {
            let request = Forward::Request { session, conn: (client, me.connection), base, write };
            let server = &mut world.servers[usize::from(server)];
            server.touched.insert(session);
            server.queue.push_back(request);
        }
    }

    /// A session of its own: the leader counts from now at the earliest.
    pub(super) fn open(&self, world: &mut World, client: u8, server: u8) {
        let number = u8::try_from(world.sessions.len()).unwrap_or(u8::MAX);
        world.sessions.push(Session { owner: server, ends: world.time + self.timeout, open: true });
        world.clients[usize::from(client)].session = Some(number);
        self.linked(world, client, server);
    }

    /// Connects with the session that it has. A server whose leader was deposed lets it in without anybody knowing.
    pub(super) fn connect(&self, world: &mut World, client: u8, server: u8) {
        let Some(session) = world.clients[usize::from(client)].session else { return };
        let deposed = world.servers[usize::from(server)].health == Health::Deposed;
        let open = if deposed {
            world.knows_open(server, session)
        } else {
            world.sessions[usize::from(session)].open
        };
        let time = world.time;
        let me = &mut world.clients[usize::from(client)];
        if !open {
            world.seen.expired |= matches!(me.phase, Phase::Holding { .. });
            (me.session, me.phase) = (None, Phase::Idle);
            return;
        }
        if !deposed {
            let of = &mut world.sessions[usize::from(session)];
            (of.owner, of.ends) = (server, of.ends.max(time + self.timeout));
        }
        if self.is(Mutant::ReconnectCounts)
            && let Phase::Holding { until, .. } = &mut me.phase
            && at(time) < *until
        {
            *until = holds_until(time, self.timeout);
        }
        self.linked(world, client, server);
    }

    fn linked(&self, world: &mut World, client: u8, server: u8) {
        let time = world.time;
        let me = &mut world.clients[usize::from(client)];
        (me.link, me.ripe, me.fresh) = (Some(server), Some(time), None);
        me.connection += 1;
        if let Phase::Searching { id, .. } = me.phase {
            if self.is(Mutant::NeverSearches) {
                me.phase = Phase::Idle;
            } else if self.is(Mutant::SearchesByRead) {
                let (mine, ahead) = place(&world.seen_by(server), id);
                let zxid = world.servers[usize::from(server)].applied;
                self.found(world, client, zxid, time, mine, ahead);
            }
        }
    }

    /// What the client's library does when a session is beyond hope: the next is another.
    pub(super) fn forsake(&self, world: &mut World, client: u8) {
        let me = &mut world.clients[usize::from(client)];
        me.session = None;
        if let Some(id) = me.id()
            && !matches!(me.phase, Phase::Searching { .. })
        {
            me.phase = Phase::Leaving { id, asked: false };
        }
    }

    pub(super) fn ask(&self, world: &mut World, client: u8) {
        let me = &mut world.clients[usize::from(client)];
        me.claims += 1;
        let id = (client, me.claims);
        me.phase = Phase::Asking(id);
        self.send(world, client, Write::Create(id));
    }

    /// Reads the line, as its server has it.
    pub(super) fn look(&self, world: &mut World, client: u8) {
        let me = &world.clients[usize::from(client)];
        let (Some(server), Some(id)) = (me.link, me.id()) else { return };
        let (mine, ahead) = place(&world.seen_by(server), id);
        let me = &mut world.clients[usize::from(client)];
        match (mine, &mut me.phase) {
            (Some(_), Phase::Waiting { stage, .. }) => *stage = ahead.map_or(Stage::First, Stage::Arm),
            (None, _) => me.phase = Phase::Idle,
            _ => {}
        }
    }

    /// Watches the node ahead of it; what is gone already is not waited for.
    pub(super) fn arm(&self, world: &mut World, client: u8) {
        let Some(server) = world.clients[usize::from(client)].link else { return };
        let line = world.seen_by(server);
        if let Phase::Waiting { stage, .. } = &mut world.clients[usize::from(client)].phase
            && let Stage::Arm(ahead) = *stage
        {
            let stands = line.iter().any(|node| node.id == ahead) || self.is(Mutant::WatchesFromNow);
            *stage = if stands { Stage::Armed(ahead) } else { Stage::Look };
        }
    }

    /// Its turn has come: a quorum says whether its own node stands.
    pub(super) fn confirm(&self, world: &mut World, client: u8) {
        let me = &mut world.clients[usize::from(client)];
        let (Some(server), ripe) = (me.link, me.ripe) else { return };
        let Phase::Waiting { id, node, stage } = &mut me.phase else { return };
        let (id, node) = (*id, *node);
        if self.is(Mutant::ConfirmsByRead) {
            let zxid = world.servers[usize::from(server)].applied;
            self.grant(world, client, zxid, ripe.unwrap_or(0), node);
            return;
        }
        *stage = Stage::Confirming;
        self.send(world, client, Write::Check(id));
    }

    pub(super) fn touch(&self, world: &mut World, client: u8) {
        let time = world.time;
        let me = &mut world.clients[usize::from(client)];
        let (Some(server), Some(session)) = (me.link, me.session) else { return };
        me.touched = Some(time);
        me.replies.push_back(Reply::Touched { sent: time });
        let touched: &mut BTreeSet<SessionId> = &mut world.servers[usize::from(server)].touched;
        touched.insert(session);
    }

    /// Gives back, or gives up.
    pub(super) fn leave(&self, world: &mut World, client: u8) {
        let me = &mut world.clients[usize::from(client)];
        let Some(id) = me.id() else { return };
        me.phase = Phase::Leaving { id, asked: false };
        if me.link.is_some() {
            self.delete(world, client);
        }
    }

    pub(super) fn delete(&self, world: &mut World, client: u8) {
        if let Phase::Leaving { id, asked } = &mut world.clients[usize::from(client)].phase {
            *asked = true;
            let id = *id;
            self.send(world, client, Write::Delete(id));
        }
    }

    pub(super) fn search(&self, world: &mut World, client: u8) {
        if let Phase::Searching { asked, .. } = &mut world.clients[usize::from(client)].phase {
            *asked = true;
            self.send(world, client, Write::Nothing);
        }
    }

    pub(super) fn renew(&self, world: &mut World, client: u8) {
        let me = &mut world.clients[usize::from(client)];
        if let Phase::Holding { id, renewing, .. } = &mut me.phase {
            *renewing = true;
            me.renewals += 1;
            let id = *id;
            self.send(world, client, Write::Check(id));
        }
    }

    /// Whether a renewal would prolong anything.
    pub(super) fn may_renew(&self, world: &World, client: u8) -> bool {
        let me = &world.clients[usize::from(client)];
        let Phase::Holding { base, renewing: false, .. } = me.phase else { return false };
        me.renewals < self.renewals && self.base(world, client).is_some_and(|now| now > base)
    }

    /// Reads the next of what was answered.
    pub(super) fn read(&self, world: &mut World, client: u8) {
        let time = world.time;
        let me = &mut world.clients[usize::from(client)];
        match me.replies.pop_front() {
            None => {}
            Some(Reply::Touched { sent }) => {
                me.fresh = me.fresh.max(Some(sent));
                if self.is(Mutant::RenewsByRead)
                    && let Phase::Holding { until, .. } = &mut me.phase
                    && at(time) < *until
                {
                    *until = (*until).max(holds_until(sent, self.timeout));
                }
            }
            Some(Reply::Gone) => {
                if let Phase::Waiting { stage, .. } = &mut me.phase {
                    *stage = Stage::Look;
                }
            }
            Some(Reply::Done { zxid, base, write, ok, mine, ahead }) => {
                me.zxid = me.zxid.max(zxid);
                let base = if self.is(Mutant::CountsFromReply) { time } else { base };
                self.hear(world, client, (zxid, base, write, ok), mine, ahead);
            }
        }
    }

    fn hear(
        &self,
        world: &mut World,
        client: u8,
        (zxid, base, write, ok): (u8, u8, Write, bool),
        mine: Option<Node>,
        ahead: Option<Id>,
    ) {
        let time = world.time;
        let me = &mut world.clients[usize::from(client)];
        match (&mut me.phase, write) {
            (Phase::Asking(id), Write::Create(of)) if *id == of => {
                self.place(world, client, zxid, base, mine, ahead);
            }
            (Phase::Searching { .. }, Write::Nothing) => self.found(world, client, zxid, base, mine, ahead),
            (Phase::Waiting { id, node, stage: Stage::Confirming }, Write::Check(of)) if *id == of => {
                let node = *node;
                if ok {
                    world.seen.waited = true;
                    self.grant(world, client, zxid, base, node);
                } else {
                    me.phase = Phase::Idle;
                }
            }
            (Phase::Holding { id, base: counts, until, renewing, .. }, Write::Check(of)) if *id == of => {
                *renewing = false;
                if !ok {
                    me.phase = Phase::Idle;
                } else if at(time) >= *until {
                    self.leave(world, client);
                } else {
                    *counts = (*counts).max(base);
                    *until = (*until).max(holds_until(base, self.timeout));
                    world.seen.renewed = true;
                }
            }
            (Phase::Leaving { id, .. }, Write::Delete(of)) if *id == of => me.phase = Phase::Idle,
            _ => {}
        }
    }

    /// It stands in line, with nobody ahead of it or somebody.
    fn place(
        &self,
        world: &mut World,
        client: u8,
        zxid: u8,
        base: u8,
        mine: Option<Node>,
        ahead: Option<Id>,
    ) {
        let me = &mut world.clients[usize::from(client)];
        let Some(node) = mine else {
            me.phase = Phase::Idle;
            return;
        };
        match ahead {
            None => self.grant(world, client, zxid, base, node),
            Some(ahead) => me.phase = Phase::Waiting { id: node.id, node, stage: Stage::Arm(ahead) },
        }
    }

    /// A search for its own node has ended.
    fn found(
        &self,
        world: &mut World,
        client: u8,
        zxid: u8,
        base: u8,
        mine: Option<Node>,
        ahead: Option<Id>,
    ) {
        let me = &mut world.clients[usize::from(client)];
        match mine {
            // It goes with a session that nobody keeps: whoever held it would be told by nobody.
            Some(node) if me.session != Some(node.session) && !self.is(Mutant::AdoptsAnothers) => {
                self.leave(world, client);
            }
            Some(_) => {
                world.seen.adopted = true;
                self.place(world, client, zxid, base, mine, ahead);
            }
            None => me.phase = Phase::Idle,
        }
    }

    fn grant(&self, world: &mut World, client: u8, zxid: u8, base: u8, node: Node) {
        let until = holds_until(base, self.timeout);
        if at(world.time) >= until {
            self.leave(world, client);
            return;
        }
        let token = if self.is(Mutant::TokenIsSequence) { node.sequence + 1 } else { node.czxid };
        world.won(zxid, token);
        let id = node.id;
        world.clients[usize::from(client)].phase = Phase::Holding { id, token, base, until, renewing: false };
    }
}
