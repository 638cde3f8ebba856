//! The cluster: a log that a quorum writes, leases that end, and leaders of which one may not know that it is none.

use super::{Etcd, Id, Mutant, World};

/// What a quorum has written. Its place is its revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entry {
    /// A key at the end of the line.
    Put(Id),
    /// A key is gone.
    Gone(Id),
    /// Something that is no key of the line: a proof that the quorum is there.
    Wrote,
}

/// A lease, as the leader counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// When the leader may end it.
    pub ends: u8,
    /// The how manieth it is.
    pub number: u8,
}

/// What is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Message {
    /// A lease, please.
    Grant {
        /// For this claim.
        id: Id,
        /// When it was sent.
        sent: u8,
    },
    /// It is there.
    Granted {
        /// For this claim.
        id: Id,
        /// When it was asked for.
        sent: u8,
        /// Whether it was made then; it is not prolonged if it was there.
        made: bool,
    },
    /// A key under the lease, unless it is there.
    Put {
        /// Of this claim.
        id: Id,
    },
    /// Where the key stands.
    Placed {
        /// Of this claim.
        id: Id,
        /// Its revision; `None` if its lease is gone.
        created: Option<u8>,
        /// Who is next ahead of it.
        ahead: Option<Id>,
        /// As of this revision.
        revision: u8,
    },
    /// A lease to be kept alive.
    Keep {
        /// Of this claim.
        id: Id,
        /// When it was sent.
        sent: u8,
        /// To the leader of this term, who may be none any more.
        to: u8,
    },
    /// Whether it was.
    Kept {
        /// Of this claim.
        id: Id,
        /// When it was asked for.
        sent: u8,
        /// In whose term.
        term: u8,
        /// What was said.
        ok: bool,
    },
    /// Writes if the key still stands.
    Own {
        /// Of this claim.
        id: Id,
        /// When it was sent.
        sent: u8,
    },
    /// Whether it does.
    Owns {
        /// Of this claim.
        id: Id,
        /// When it was asked.
        sent: u8,
        /// In whose term.
        term: u8,
        /// Whether it stands.
        ok: bool,
        /// As of this revision.
        revision: u8,
    },
    /// The line, please.
    Read {
        /// For this claim.
        id: Id,
    },
    /// The line.
    Line {
        /// For this claim.
        id: Id,
        /// Whether its key stands.
        stands: bool,
        /// Who is next ahead of it.
        ahead: Option<Id>,
        /// As of this revision.
        revision: u8,
    },
    /// The lease is to end, and its key with it.
    Revoke {
        /// Of this claim.
        id: Id,
    },
    /// It has.
    Revoked {
        /// Of this claim.
        id: Id,
    },
}

impl Message {
    /// Whose claim it is about.
    pub(super) fn id(&self) -> Id {
        match *self {
            Self::Grant { id, .. }
            | Self::Granted { id, .. }
            | Self::Put { id }
            | Self::Placed { id, .. }
            | Self::Keep { id, .. }
            | Self::Kept { id, .. }
            | Self::Own { id, .. }
            | Self::Owns { id, .. }
            | Self::Read { id }
            | Self::Line { id, .. }
            | Self::Revoke { id }
            | Self::Revoked { id } => id,
        }
    }
}

/// The keys that so much of a log has left, in order, with their revisions.
pub(super) fn line(log: &[Entry]) -> Vec<(Id, u8)> {
    let mut keys = Vec::new();
    for (entry, revision) in log.iter().zip(1..) {
        match *entry {
            Entry::Put(id) => keys.push((id, revision)),
            Entry::Gone(id) => keys.retain(|(of, _)| *of != id),
            Entry::Wrote => {}
        }
    }
    keys
}

/// The revision of a claim's key, and who is next ahead of it.
fn place(keys: &[(Id, u8)], id: Id) -> (Option<u8>, Option<Id>) {
    let mine = keys.iter().position(|(of, _)| *of == id);
    let ahead = mine.and_then(|place| place.checked_sub(1)).map(|place| keys[place].0);
    (mine.map(|place| keys[place].1), ahead)
}

impl World {
    pub(super) fn revision(&self) -> u8 {
        u8::try_from(self.log.len()).unwrap_or(u8::MAX)
    }

    /// The lease is gone, and its key with it.
    pub(super) fn end(&mut self, id: Id) {
        self.leases.remove(&id);
        if line(&self.log).iter().any(|(of, _)| *of == id) {
            self.log.push(Entry::Gone(id));
        }
    }

    /// The line as of a revision.
    pub(super) fn line_at(&self, id: Id, revision: u8) -> Message {
        let (created, ahead) = place(&line(&self.log[..usize::from(revision)]), id);
        Message::Line { id, stands: created.is_some(), ahead, revision }
    }
}

impl Etcd {
    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Another leader: it starts each lease anew.
    pub(super) fn elect(&self, world: &mut World) {
        world.term += 1;
        for lease in world.leases.values_mut() {
            lease.ends = world.time + self.ttl;
        }
    }

    /// What a member says to a request.
    pub(super) fn serve(&self, world: &mut World, message: Message) -> Option<Message> {
        let (time, term) = (world.time, world.term);
        Some(match message {
            Message::Grant { id, sent } => {
                let made = !world.leases.contains_key(&id);
                if made {
                    world.grants += 1;
                    world.leases.insert(id, Lease { ends: time + self.ttl, number: world.grants });
                }
                Message::Granted { id, sent, made }
            }
            Message::Put { id } => {
                let stands = line(&world.log).iter().any(|(of, _)| *of == id);
                if world.leases.contains_key(&id) && !stands {
                    world.log.push(Entry::Put(id));
                }
                let (created, ahead) = place(&line(&world.log), id);
                Message::Placed { id, created, ahead, revision: world.revision() }
            }
            // Nobody is asked whether it still leads.
            Message::Keep { id, sent, to } if to < term => Message::Kept { id, sent, term: to, ok: true },
            Message::Keep { id, sent, .. } => {
                let ends = time + self.ttl;
                let ok = world.leases.get_mut(&id).map(|lease| lease.ends = lease.ends.max(ends)).is_some();
                Message::Kept { id, sent, term, ok }
            }
            Message::Own { id, sent } => {
                let ok = line(&world.log).iter().any(|(of, _)| *of == id);
                if ok {
                    world.log.push(Entry::Wrote);
                }
                Message::Owns { id, sent, term, ok, revision: world.revision() }
            }
            Message::Read { id } => world.line_at(id, world.revision()),
            Message::Revoke { id } => {
                if self.is(Mutant::DeletesKeyOnly) {
                    if line(&world.log).iter().any(|(of, _)| *of == id) {
                        world.log.push(Entry::Gone(id));
                    }
                } else {
                    world.end(id);
                }
                Message::Revoked { id }
            }
            _ => return None,
        })
    }
}
