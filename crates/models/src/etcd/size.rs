//! How large the world of etcd is, and what is broken in it.

use super::{Event, Message};

/// A break of the protocol, which a search must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mutant {
    /// A keep-alive prolongs by itself.
    KeepAliveAlone,
    /// A keep-alive counts with whatever a quorum writes after it, in any term.
    TermsNotCompared,
    /// What a quorum writes is sent beside it, so that it may be written before.
    Together,
    /// A lease that was there already counts from when it was asked for again.
    CountsFoundLease,
    /// Validity is counted from the reply.
    CountsFromReply,
    /// Whoever waited is granted without asking a quorum whether its key stands.
    ConfirmsByRead,
    /// Whoever waited counts from when its turn came.
    CountsFromEvent,
    /// A watch begins at what is written next.
    WatchesFromNow,
    /// .. when what it had not seen is compacted.
    ForgetsCompaction,
    /// Whoever gives up or gives back leaves its lease to run out.
    LeaseNotRevoked,
    /// .. or revokes it once, whatever comes of that.
    RevokesOnce,
    /// .. or deletes the key, and leaves the lease for what is still under way.
    DeletesKeyOnly,
    /// The token is the lease's number.
    TokenIsLease,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::KeepAliveAlone,
        Self::TermsNotCompared,
        Self::Together,
        Self::CountsFoundLease,
        Self::CountsFromReply,
        Self::ConfirmsByRead,
        Self::CountsFromEvent,
        Self::WatchesFromNow,
        Self::ForgetsCompaction,
        Self::LeaseNotRevoked,
        Self::RevokesOnce,
        Self::DeletesKeyOnly,
        Self::TokenIsLease,
    ];
}

/// How large the world is.
#[derive(Debug, Clone)]
pub struct Etcd {
    /// How many clients.
    pub clients: u8,
    /// How many claims each may make.
    pub claims: u8,
    /// How often each client may prolong.
    pub renewals: u8,
    /// The ttl of leases, in seconds.
    pub ttl: u8,
    /// When the world ends.
    pub horizon: u8,
    /// How many leaders are elected while the one before is stopped.
    pub elections: u8,
    /// How many live leases a leader ends that was stopped and has been replaced.
    pub betrayals: u8,
    /// How often a keep-alive is answered well though the lease is gone.
    pub lies: u8,
    /// How many reads are answered from the past.
    pub stale: u8,
    /// How often what is past is compacted.
    pub compactions: u8,
    /// How many watches break.
    pub breaks: u8,
    /// How many messages are lost.
    pub losses: u8,
    /// How many claims are given up.
    pub cancels: u8,
    /// Whether who holds it may give it back before it runs out.
    pub finishes: bool,
    /// What has happened when it begins.
    pub before: Vec<Event>,
    /// What is broken, if something is.
    pub mutant: Option<Mutant>,
}

impl Etcd {
    /// Two clients: small enough to be searched.
    #[must_use]
    pub fn small(mutant: Option<Mutant>) -> Self {
        Self {
            clients: 2,
            claims: 1,
            renewals: 1,
            ttl: 2,
            horizon: 5,
            elections: 1,
            betrayals: 0,
            lies: 1,
            stale: 1,
            compactions: 1,
            breaks: 1,
            losses: 1,
            cancels: 1,
            finishes: true,
            before: Vec::new(),
            mutant,
        }
    }

    /// Three clients: walked through at random.
    #[must_use]
    pub fn large(mutant: Option<Mutant>) -> Self {
        Self {
            clients: 3,
            claims: 2,
            renewals: 2,
            ttl: 3,
            horizon: 12,
            elections: 2,
            lies: 2,
            stale: 2,
            breaks: 2,
            losses: 3,
            ..Self::small(mutant)
        }
    }

    /// .. with a leader that ends what its successor keeps.
    #[must_use]
    pub fn betrayed() -> Self {
        Self { clients: 2, betrayals: 1, losses: 0, lies: 0, stale: 0, cancels: 0, ..Self::large(None) }
    }

    /// The smallest world in which a mutant can be seen, so that it is found soon.
    #[must_use]
    pub fn for_mutant(mutant: Mutant) -> Self {
        let still = Self {
            renewals: 0,
            horizon: 4,
            elections: 0,
            lies: 0,
            stale: 0,
            compactions: 0,
            breaks: 0,
            losses: 0,
            cancels: 0,
            ..Self::small(Some(mutant))
        };
        match mutant {
            Mutant::KeepAliveAlone | Mutant::TermsNotCompared => {
                let before = [second_watches(), vec![Event::Elect, Event::Tick, Event::Prove(0, 1)]].concat();
                Self { renewals: 1, elections: 1, horizon: 3, finishes: false, before, ..still }
            }
            Mutant::CountsFoundLease => Self { losses: 1, ..still },
            Mutant::CountsFromReply => still,
            Mutant::CountsFromEvent | Mutant::Together => {
                let gone = Event::Deliver(Message::Revoke { id: (0, 1) });
                let before = [second_watches(), vec![Event::Leave(0), gone, Event::Tick]].concat();
                Self { claims: 2, lies: 1, horizon: 3, before, ..still }
            }
            Mutant::ConfirmsByRead => Self { claims: 2, lies: 1, ..still },
            Mutant::WatchesFromNow => Self { horizon: 1, ..still },
            Mutant::ForgetsCompaction => Self { horizon: 1, compactions: 1, ..still },
            Mutant::LeaseNotRevoked => Self { clients: 1, horizon: 1, ..still },
            Mutant::RevokesOnce => Self { clients: 1, horizon: 1, losses: 1, ..still },
            Mutant::DeletesKeyOnly => Self { clients: 1, horizon: 1, cancels: 1, ..still },
            Mutant::TokenIsLease => Self { horizon: 1, ..still },
        }
    }
}

/// The first client has been granted what it asked for, and the second watches it.
fn second_watches() -> Vec<Event> {
    let stands = |client, revision, ahead| {
        let id = (client, 1);
        let placed = Message::Placed { id, created: Some(revision), ahead, revision };
        vec![
            Event::Ask(client),
            Event::Deliver(Message::Grant { id, sent: 1 }),
            Event::Deliver(Message::Granted { id, sent: 1, made: true }),
            Event::Deliver(Message::Put { id }),
            Event::Deliver(placed),
        ]
    };
    [stands(0, 1, None), stands(1, 2, Some((0, 1))), vec![Event::Watch(1)]].concat()
}
