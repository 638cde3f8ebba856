//! How large the world of ZooKeeper is, and what is broken in it.

use super::Event;

/// A break of the protocol, which a search must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mutant {
    /// A server's answer to a read prolongs a lease.
    RenewsByRead,
    /// What a quorum has written counts from its own sending.
    CountsOwnSending,
    /// A touch counts that the leader may not have heard of yet.
    CountsUnripe,
    /// Validity is counted from the reply.
    CountsFromReply,
    /// That a server let the session in prolongs a lease.
    ReconnectCounts,
    /// A node that another session made is taken for its own.
    AdoptsAnothers,
    /// A node whose making was not answered is not looked for.
    NeverSearches,
    /// .. or is looked for on a server that may be behind.
    SearchesByRead,
    /// The token is the node's place in line.
    TokenIsSequence,
    /// Whoever waited is granted without asking a quorum whether its node stands.
    ConfirmsByRead,
    /// A node is watched without a look whether it still stands.
    WatchesFromNow,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::RenewsByRead,
        Self::CountsOwnSending,
        Self::CountsUnripe,
        Self::CountsFromReply,
        Self::ReconnectCounts,
        Self::AdoptsAnothers,
        Self::NeverSearches,
        Self::SearchesByRead,
        Self::TokenIsSequence,
        Self::ConfirmsByRead,
        Self::WatchesFromNow,
    ];
}

/// How large the world is.
#[derive(Debug, Clone)]
pub struct ZooKeeper {
    /// How many servers clients may speak to. The leader is none of them.
    pub servers: u8,
    /// How many clients.
    pub clients: u8,
    /// How many claims each may make.
    pub claims: u8,
    /// How many sessions are ever made.
    pub sessions: u8,
    /// Whether each client has one when it begins.
    pub begun: bool,
    /// What has happened when it begins.
    pub before: Vec<Event>,
    /// How often each client may prolong.
    pub renewals: u8,
    /// The session timeout, in halves of a tick.
    pub timeout: u8,
    /// When the world ends.
    pub horizon: u8,
    /// How many connections break.
    pub breaks: u8,
    /// How many servers are cut off from their leader.
    pub cuts: u8,
    /// Whether they may follow it again.
    pub heals: bool,
    /// How many servers die.
    pub deaths: u8,
    /// How many leaders are elected.
    pub elections: u8,
    /// How many claims are given up.
    pub cancels: u8,
    /// How often the leader forgets to ask its servers whom they have heard of.
    pub stalls: u8,
    /// What is broken, if something is.
    pub mutant: Option<Mutant>,
}

impl ZooKeeper {
    /// Two servers and two clients: small enough to be searched.
    #[must_use]
    pub fn small(mutant: Option<Mutant>) -> Self {
        Self {
            servers: 2,
            clients: 2,
            claims: 1,
            sessions: 3,
            begun: true,
            before: Vec::new(),
            renewals: 1,
            timeout: 4,
            horizon: 8,
            breaks: 1,
            cuts: 1,
            heals: true,
            deaths: 1,
            elections: 1,
            cancels: 1,
            stalls: 0,
            mutant,
        }
    }

    /// Three servers and three clients: walked through at random.
    #[must_use]
    pub fn large(mutant: Option<Mutant>) -> Self {
        Self {
            servers: 3,
            clients: 3,
            claims: 2,
            sessions: 6,
            begun: false,
            renewals: 3,
            horizon: 14,
            breaks: 3,
            cuts: 2,
            elections: 2,
            cancels: 1,
            stalls: 1,
            ..Self::small(mutant)
        }
    }

    /// The smallest world in which a mutant can be seen, so that it is found soon.
    #[must_use]
    pub fn for_mutant(mutant: Mutant) -> Self {
        let still = Self {
            sessions: 2,
            renewals: 0,
            breaks: 0,
            cuts: 0,
            heals: false,
            deaths: 0,
            elections: 0,
            cancels: 0,
            ..Self::small(Some(mutant))
        };
        match mutant {
            Mutant::RenewsByRead => {
                let before = [first_holds(), vec![Event::Cut(0), Event::Tick]].concat();
                Self { cuts: 1, horizon: 6, before, ..still }
            }
            Mutant::CountsOwnSending | Mutant::CountsUnripe => Self { deaths: 1, horizon: 6, ..still },
            Mutant::CountsFromReply => Self { horizon: 6, ..still },
            Mutant::ReconnectCounts => {
                let before = [first_holds(), vec![Event::Cut(0), Event::Elect]].concat();
                Self { breaks: 1, cuts: 1, elections: 1, horizon: 7, before, ..still }
            }
            // Its node was made, which it has not heard, and the other stands behind it.
            Mutant::AdoptsAnothers => {
                let made = vec![Event::Ask(0), Event::Lead(0)];
                let before = [made, second_watches(), vec![Event::Break(0)]].concat();
                Self { breaks: 1, sessions: 3, horizon: 6, before, ..still }
            }
            Mutant::NeverSearches | Mutant::SearchesByRead => {
                Self { clients: 1, sessions: 1, breaks: 1, horizon: 2, ..still }
            }
            Mutant::TokenIsSequence => Self { horizon: 3, ..still },
            Mutant::ConfirmsByRead => {
                let before = [first_holds(), second_watches()].concat();
                Self { claims: 2, cuts: 1, horizon: 6, before, ..still }
            }
            Mutant::WatchesFromNow => Self { horizon: 3, ..still },
        }
    }
}

/// The first client has been granted what it asked for.
fn first_holds() -> Vec<Event> {
    vec![Event::Ask(0), Event::Lead(0), Event::Apply(0), Event::Read(0)]
}

/// .. and the second stands behind it.
fn second_watches() -> Vec<Event> {
    let stands = vec![Event::Ask(1), Event::Lead(1), Event::Apply(1), Event::Apply(1), Event::Read(1)];
    [stands, vec![Event::Arm(1)]].concat()
}
