//! The ensemble: a log that a quorum writes, servers that follow it, and a leader that ends sessions.
//!
//! What a server forwards reaches the leader in order, the touches of sessions among it; what is committed reaches each
//! server in order, and late. A server that is cut off answers what it can by itself, and so does one whose leader was
//! deposed and has not heard of it.

use std::collections::{BTreeSet, VecDeque};

use super::{Id, Mutant, World, ZooKeeper};

/// A session's number.
pub type SessionId = u8;

/// What the leader knows of a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Session {
    /// Through which server it speaks.
    pub owner: u8,
    /// When the leader may end it.
    pub ends: u8,
    /// Whether it has not ended.
    pub open: bool,
}

/// How a server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Health {
    /// It follows the leader.
    Follows,
    /// It hears nothing of the leader, and has not noticed.
    Cut,
    /// The others have elected a leader meanwhile.
    Deposed,
    /// It died. What it forwarded may still arrive.
    Dead,
}

/// A connection of a client: its number, and which of its connections.
pub type Conn = (u8, u8);

/// What a client has a server do that a quorum must write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Write {
    /// A node at the end of the line.
    Create(Id),
    /// Whether the node stands.
    Check(Id),
    /// The node goes.
    Delete(Id),
    /// Nothing, but it is written: whoever hears of it sees all that was before.
    Nothing,
}

/// What a server sends its leader.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Forward {
    /// Its answer to a ping: the sessions that it heard of since the last.
    Touched(BTreeSet<SessionId>),
    /// A request.
    Request {
        /// Under which session.
        session: SessionId,
        /// Over which connection it came.
        conn: Conn,
        /// From when what it proves counts.
        base: u8,
        /// What is asked.
        write: Write,
    },
}

/// A server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Server {
    /// How it does.
    pub health: Health,
    /// How much of the log it has.
    pub applied: u8,
    /// What it has forwarded that has not been dealt with.
    pub queue: VecDeque<Forward>,
    /// The sessions that it has heard of and has not told its leader of.
    pub touched: BTreeSet<SessionId>,
}

/// One line of the log. Its place is its zxid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Txn {
    /// A request that was let through, and whether it did what it says.
    Done {
        /// Under which session.
        session: SessionId,
        /// Over which connection the answer goes.
        conn: Conn,
        /// From when what it proves counts.
        base: u8,
        /// What was asked.
        write: Write,
        /// Whether it was done.
        ok: bool,
    },
    /// A session ended.
    Closed(SessionId),
    /// The empty directory was taken away: numbers begin anew in the next.
    Reaped,
}

/// A node of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Node {
    /// Whose claim it is.
    pub id: Id,
    /// The transaction that made it.
    pub czxid: u8,
    /// Its place in line.
    pub sequence: u8,
    /// With which session it goes.
    pub session: SessionId,
}

/// What so much of a log has made, in order, and the number of the next node.
pub(super) fn line(log: &[Txn]) -> (Vec<Node>, u8) {
    let (mut nodes, mut next) = (Vec::new(), 0);
    for (txn, zxid) in log.iter().zip(1..) {
        match *txn {
            Txn::Done { ok: false, .. } => {}
            Txn::Done { session, write, .. } => match write {
                Write::Create(id) => {
                    nodes.push(Node { id, czxid: zxid, sequence: next, session });
                    next += 1;
                }
                Write::Delete(id) => nodes.retain(|node: &Node| node.id != id),
                Write::Check(_) | Write::Nothing => {}
            },
            Txn::Closed(session) => nodes.retain(|node| node.session != session),
            Txn::Reaped => next = 0,
        }
    }
    (nodes, next)
}

impl World {
    /// The line as this server has it.
    pub(super) fn seen_by(&self, server: u8) -> Vec<Node> {
        line(&self.log[..usize::from(self.servers[usize::from(server)].applied)]).0
    }

    /// Whether a session stands as this server has it.
    pub(super) fn knows_open(&self, server: u8, session: SessionId) -> bool {
        let applied = usize::from(self.servers[usize::from(server)].applied);
        !self.log[..applied].contains(&Txn::Closed(session))
    }

    fn clear(&mut self, server: usize) {
        self.servers[server].queue.clear();
        self.servers[server].touched.clear();
    }

    /// Whoever was connected to it is not any more.
    pub(super) fn hang_up(&mut self, server: u8) {
        for client in &mut self.clients {
            if client.link == Some(server) {
                client.disconnect();
            }
        }
    }
}

impl ZooKeeper {
    /// The leader deals with the next of what a server has forwarded.
    pub(super) fn lead(&self, world: &mut World, server: u8) {
        let Some(forward) = world.servers[usize::from(server)].queue.pop_front() else { return };
        match forward {
            Forward::Touched(sessions) => {
                for session in sessions {
                    let session = &mut world.sessions[usize::from(session)];
                    session.ends = session.ends.max(world.time + self.timeout);
                }
            }
            Forward::Request { session, conn, base, write } => {
                let of = &world.sessions[usize::from(session)];
                if !of.open {
                    return;
                }
                if of.owner != server {
                    world.seen.moved = true;
                    return;
                }
                let (nodes, _) = line(&world.log);
                let ok = match write {
                    Write::Create(_) | Write::Nothing => true,
                    Write::Check(id) | Write::Delete(id) => nodes.iter().any(|node| node.id == id),
                };
                world.log.push(Txn::Done { session, conn, base, write, ok });
            }
        }
    }

    /// A server hears of the next transaction.
    pub(super) fn apply(&self, world: &mut World, server: u8) {
        let before = world.seen_by(server);
        let it = &mut world.servers[usize::from(server)];
        let txn = world.log[usize::from(it.applied)];
        it.applied += 1;
        let now = world.seen_by(server);
        for number in 0..self.clients {
            let client = &mut world.clients[usize::from(number)];
            if client.link != Some(server) {
                continue;
            }
            if matches!(txn, Txn::Closed(session) if client.session == Some(session)) {
                client.disconnect();
                continue;
            }
            client.notice(&before, &now);
            if let Txn::Done { conn, base, write, ok, .. } = txn
                && conn == (number, client.connection)
            {
                client.answer(world.servers[usize::from(server)].applied, base, write, ok, &now);
            }
        }
    }

    /// Another leader: it starts each session anew, and what had not been committed is lost.
    pub(super) fn elect(&self, world: &mut World) {
        for session in &mut world.sessions {
            session.ends = world.time + self.timeout;
        }
        for server in 0..self.servers {
            let at = usize::from(server);
            match world.servers[at].health {
                Health::Follows => {
                    world.clear(at);
                    world.servers[at].applied = u8::try_from(world.log.len()).unwrap_or(u8::MAX);
                    world.hang_up(server);
                }
                // What it sends goes to a leader that is none.
                Health::Cut => world.servers[at].health = Health::Deposed,
                Health::Deposed => {}
                Health::Dead => world.clear(at),
            }
        }
    }

    /// A server that was cut off follows again.
    pub(super) fn heal(&self, world: &mut World, server: u8) {
        let at = usize::from(server);
        if world.servers[at].health == Health::Deposed {
            world.clear(at);
            world.servers[at].applied = u8::try_from(world.log.len()).unwrap_or(u8::MAX);
            world.hang_up(server);
        }
        world.servers[at].health = Health::Follows;
    }

    /// A second passes, and each half of a tick the leader has asked who was heard of.
    pub(super) fn tick(&self, world: &mut World, stalled: bool) {
        world.time += 1;
        world.stalled |= stalled;
        for server in &mut world.servers {
            // A server that is cut off is asked nothing, so that it has nothing to answer.
            let asked = server.health == Health::Follows && !stalled;
            if asked && !server.touched.is_empty() {
                let touched = std::mem::take(&mut server.touched);
                server.queue.push_back(Forward::Touched(touched));
            }
        }
        for client in &mut world.clients {
            client.ripen();
        }
    }

    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}
