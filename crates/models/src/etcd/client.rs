//! A client: one claim at a time, with a lease of its own.
//!
//! A keep-alive counts from its sending, and only if a quorum has written for the key in the term in which it was answered.

use leasehold_core::BootTime;

use super::cluster::{Entry, Message};
use super::{Etcd, Id, Mutant, World};
use crate::clock::{at, holds_until};

/// What a client does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Nothing.
    #[default]
    Idle,
    /// It has asked for a lease.
    Granting(Id),
    /// It has sent for a key.
    Placing(Id),
    /// Its key stands.
    Waiting {
        /// Which claim's.
        id: Id,
        /// Its revision.
        created: u8,
        /// How far it is.
        stage: Stage,
    },
    /// It was granted.
    Holding {
        /// To which claim.
        id: Id,
        /// Under which token.
        token: u8,
        /// Until when it believes in it.
        until: BootTime,
        /// Whether it is asking for more.
        renewing: bool,
    },
    /// Its lease is to be revoked.
    Leaving(Id),
}

/// How far a client is that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// It is to read the line.
    Look,
    /// It has asked for the line.
    Looking,
    /// It is to watch, from what it has seen.
    Open {
        /// Who is ahead of it.
        ahead: Id,
        /// The last revision that it has seen.
        at: u8,
    },
    /// It watches.
    Watching {
        /// Who is ahead of it.
        ahead: Id,
        /// The last revision that it has seen.
        at: u8,
    },
    /// Nobody is ahead of it.
    First,
    /// It has asked for proof.
    Confirming,
}

/// The last word about its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Proof {
    /// When it was asked for.
    pub sent: u8,
    /// In whose term it was said.
    pub term: u8,
}

/// A client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Client {
    /// What it does.
    pub phase: Phase,
    /// When the lease was asked for, if it was made for that very request.
    pub made: Option<u8>,
    /// The last word about its lease.
    pub proof: Option<Proof>,
    /// What a quorum has said of its key, if that came before the word about its lease: when it was asked, and the term.
    pub owns: Option<Proof>,
    /// How many claims it has made.
    pub claims: u8,
    /// How often it has prolonged.
    pub renewals: u8,
}

impl Client {
    /// Which claim it is about.
    pub(super) fn id(&self) -> Option<Id> {
        match self.phase {
            Phase::Idle => None,
            Phase::Granting(id)
            | Phase::Placing(id)
            | Phase::Waiting { id, .. }
            | Phase::Holding { id, .. }
            | Phase::Leaving(id) => Some(id),
        }
    }

    /// Whether it believes that it holds it.
    pub(super) fn holds(&self, time: u8) -> bool {
        matches!(self.phase, Phase::Holding { until, .. } if at(time) < until)
    }

    fn rests(&mut self) {
        (self.phase, self.made, self.proof, self.owns) = (Phase::Idle, None, None, None);
    }
}

impl Etcd {
    pub(super) fn ask(&self, world: &mut World, client: u8) {
        let me = &mut world.clients[usize::from(client)];
        me.claims += 1;
        let id = (client, me.claims);
        me.phase = Phase::Granting(id);
        world.network.insert(Message::Grant { id, sent: world.time });
    }

    /// Asks again for what it has heard nothing of.
    pub(super) fn ask_again(&self, world: &mut World, client: u8) {
        let sent = world.time;
        let me = &mut world.clients[usize::from(client)];
        match &mut me.phase {
            Phase::Granting(id) => _ = world.network.insert(Message::Grant { id: *id, sent }),
            Phase::Placing(id) => _ = world.network.insert(Message::Put { id: *id }),
            Phase::Leaving(id) => _ = world.network.insert(Message::Revoke { id: *id }),
            Phase::Waiting { stage, .. } => match stage {
                Stage::Looking => *stage = Stage::Look,
                Stage::Confirming => *stage = Stage::First,
                _ => {}
            },
            Phase::Holding { renewing, .. } => *renewing = false,
            Phase::Idle => {}
        }
    }

    /// Whether it waits for an answer.
    pub(super) fn expects(&self, world: &World, client: u8) -> bool {
        match world.clients[usize::from(client)].phase {
            Phase::Granting(_) | Phase::Placing(_) | Phase::Leaving(_) => true,
            Phase::Waiting { stage, .. } => matches!(stage, Stage::Looking | Stage::Confirming),
            Phase::Holding { renewing, .. } => renewing,
            Phase::Idle => false,
        }
    }

    pub(super) fn look(&self, world: &mut World, client: u8) {
        if let Phase::Waiting { id, stage, .. } = &mut world.clients[usize::from(client)].phase {
            *stage = Stage::Looking;
            world.network.insert(Message::Read { id: *id });
        }
    }

    /// Opens its watch, at what it has seen last.
    pub(super) fn watch(&self, world: &mut World, client: u8) {
        let (now, compacted) = (world.revision(), world.compacted);
        if let Phase::Waiting { stage, .. } = &mut world.clients[usize::from(client)].phase
            && let Stage::Open { ahead, at } = *stage
        {
            let past = at < compacted;
            *stage = if self.is(Mutant::WatchesFromNow) || (past && self.is(Mutant::ForgetsCompaction)) {
                Stage::Watching { ahead, at: now }
            } else if past {
                Stage::Look
            } else {
                Stage::Watching { ahead, at }
            };
        }
    }

    /// The next event of its watch.
    pub(super) fn see(&self, world: &mut World, client: u8) {
        let me = &mut world.clients[usize::from(client)];
        let Phase::Waiting { id, stage, .. } = &mut me.phase else { return };
        let Stage::Watching { ahead, at } = stage else { return };
        let entry = world.log[usize::from(*at)];
        *at += 1;
        if entry == Entry::Gone(*ahead) {
            *stage = Stage::Look;
        } else if entry == Entry::Gone(*id) {
            me.rests();
        }
    }

    /// Keeps its lease alive, through whoever it takes for the leader; and has a quorum say whether its key stands.
    pub(super) fn prove(&self, world: &mut World, client: u8, to: u8) {
        let sent = world.time;
        let me = &mut world.clients[usize::from(client)];
        let id = match &mut me.phase {
            Phase::Waiting { id, stage, .. } => {
                *stage = Stage::Confirming;
                *id
            }
            Phase::Holding { id, renewing, .. } => {
                *renewing = true;
                me.renewals += 1;
                *id
            }
            _ => return,
        };
        let confirms = matches!(me.phase, Phase::Waiting { .. });
        if confirms && self.is(Mutant::CountsFromEvent) {
            world.network.insert(Message::Own { id, sent });
            return;
        }
        (me.proof, me.owns) = (None, None);
        world.network.insert(Message::Keep { id, sent, to });
        if self.is(Mutant::Together) {
            world.network.insert(Message::Own { id, sent });
        }
    }

    /// Gives back, or gives up.
    pub(super) fn leave(&self, world: &mut World, client: u8) {
        let me = &mut world.clients[usize::from(client)];
        let Some(id) = me.id() else { return };
        me.phase = Phase::Leaving(id);
        if self.is(Mutant::LeaseNotRevoked) {
            me.rests();
            return;
        }
        world.network.insert(Message::Revoke { id });
        if self.is(Mutant::RevokesOnce) {
            me.rests();
        }
    }

    /// An answer arrives.
    pub(super) fn hear(&self, world: &mut World, message: Message) {
        let id = message.id();
        let client = id.0;
        let me = &mut world.clients[usize::from(client)];
        if me.id() != Some(id) {
            return;
        }
        match message {
            Message::Granted { sent, made, .. } => {
                if let Phase::Granting(_) = me.phase {
                    // A quorum has made it: it counts in any term.
                    let proves = made || self.is(Mutant::CountsFoundLease);
                    (me.phase, me.made) = (Phase::Placing(id), proves.then_some(sent));
                    world.network.insert(Message::Put { id });
                }
            }
            Message::Placed { created, ahead, revision, .. } => {
                let Phase::Placing(_) = me.phase else { return };
                let Some(created) = created else { return me.rests() };
                let stage = ahead.map_or(Stage::First, |ahead| Stage::Open { ahead, at: revision });
                me.phase = Phase::Waiting { id, created, stage };
                if stage == Stage::First
                    && let Some(sent) = me.made
                {
                    self.grant(world, client, revision, sent);
                }
            }
            Message::Line { stands, ahead, revision, .. } => {
                if let Phase::Waiting { stage: stage @ Stage::Looking, .. } = &mut me.phase {
                    *stage = ahead.map_or(Stage::First, |ahead| Stage::Open { ahead, at: revision });
                    if !stands {
                        self.leave(world, client);
                    }
                }
            }
            Message::Kept { sent, term, ok, .. } => self.kept(world, client, Proof { sent, term }, ok),
            Message::Owns { sent, term, ok, revision, .. } => {
                self.owns(world, client, Proof { sent, term }, ok, revision);
            }
            Message::Revoked { .. } => {
                if let Phase::Leaving(_) = me.phase {
                    me.rests();
                }
            }
            _ => {}
        }
    }

    /// Whether a word about a lease counts when a quorum has written in that term.
    fn counts(&self, proof: Proof, term: u8) -> bool {
        proof.term == term || self.is(Mutant::TermsNotCompared)
    }

    fn kept(&self, world: &mut World, client: u8, proof: Proof, ok: bool) {
        let (time, revision) = (world.time, world.revision());
        let me = &mut world.clients[usize::from(client)];
        let asks = matches!(
            me.phase,
            Phase::Waiting { stage: Stage::Confirming, .. } | Phase::Holding { renewing: true, .. }
        );
        if !asks || me.proof.is_some() {
            return;
        }
        if !ok {
            // What its lease held is gone, or will be.
            self.leave(world, client);
            return;
        }
        let Some(id) = me.id() else { return };
        me.proof = Some(proof);
        let alone = match me.phase {
            Phase::Waiting { .. } => self.is(Mutant::ConfirmsByRead),
            _ => self.is(Mutant::KeepAliveAlone),
        };
        if alone {
            self.proved(world, client, revision, proof.sent);
        } else if !self.is(Mutant::Together) {
            world.network.insert(Message::Own { id, sent: time });
        } else if let Some(owns) = me.owns {
            self.weigh(world, client, proof, owns.term, revision);
        }
    }

    fn owns(&self, world: &mut World, client: u8, said: Proof, ok: bool, revision: u8) {
        let me = &mut world.clients[usize::from(client)];
        let asks = matches!(
            me.phase,
            Phase::Waiting { stage: Stage::Confirming, .. } | Phase::Holding { renewing: true, .. }
        );
        if !asks {
            return;
        }
        if !ok {
            self.leave(world, client);
            return;
        }
        if matches!(me.phase, Phase::Waiting { .. }) && self.is(Mutant::CountsFromEvent) {
            self.proved(world, client, revision, said.sent);
            return;
        }
        match me.proof {
            Some(proof) if proof.sent <= said.sent => self.weigh(world, client, proof, said.term, revision),
            _ => me.owns = Some(said),
        }
    }

    /// Both are there: the word about the lease, and what a quorum wrote for the key.
    fn weigh(&self, world: &mut World, client: u8, proof: Proof, term: u8, revision: u8) {
        if self.counts(proof, term) {
            self.proved(world, client, revision, proof.sent);
        } else {
            // It is asked again, of whoever leads now.
            world.seen.doubted = true;
            self.ask_again(world, client);
        }
    }

    fn proved(&self, world: &mut World, client: u8, revision: u8, sent: u8) {
        let time = world.time;
        let sent = if self.is(Mutant::CountsFromReply) { time } else { sent };
        let me = &mut world.clients[usize::from(client)];
        match &mut me.phase {
            Phase::Waiting { .. } => {
                world.seen.waited = true;
                self.grant(world, client, revision, sent);
            }
            Phase::Holding { until, renewing, .. } => {
                *renewing = false;
                if at(time) >= *until {
                    self.leave(world, client);
                } else {
                    *until = (*until).max(holds_until(sent, self.ttl));
                    world.seen.renewed = true;
                }
            }
            _ => {}
        }
    }

    fn grant(&self, world: &mut World, client: u8, revision: u8, sent: u8) {
        let sent = if self.is(Mutant::CountsFromReply) { world.time } else { sent };
        let Phase::Waiting { id, created, .. } = world.clients[usize::from(client)].phase else { return };
        let until = holds_until(sent, self.ttl);
        if at(world.time) >= until {
            self.leave(world, client);
            return;
        }
        let number = world.leases.get(&id).map_or(0, |lease| lease.number);
        let token = if self.is(Mutant::TokenIsLease) { number } else { created };
        world.won(revision, token);
        world.clients[usize::from(client)].phase = Phase::Holding { id, token, until, renewing: false };
    }
}
