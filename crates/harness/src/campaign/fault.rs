//! The table: each fault, how long it strikes, and what is promised meanwhile.

mod elected;

use std::time::Duration;

pub use elected::{ETCD, ZOOKEEPER};

use super::TTL;
use crate::servers::elected::Maker;

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// As the command line takes it.
    pub name: &'static str,
    /// For people.
    pub about: &'static str,
    /// Whether no two believe at once that they hold it.
    pub exclusion: bool,
    /// Whether all that was granted before is gone with it.
    pub forgets: bool,
    /// How long it strikes, in hundredths of a ttl: at least and at most.
    pub lasting: (u64, u64),
    /// The ttl of every lease.
    pub ttl: Duration,
    /// How long it takes besides until anything is granted again, in hundredths of a ttl.
    pub(super) settles: u64,
    pub(super) blow: Blow,
}

/// How it is dealt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blow {
    Stop,
    Restart { durable: bool },
    Flush,
    FlushScripts,
    KillClients,
    EatReplies,
    EatRequests,
    Freeze,
    FreezeOld,
    Delay,
    Cut,
    Refuse,
    Trickle,
    Duplicate,
    Mishaps,
    Deny,
    Fill,
    Pause,
    Busy,
    Demote,
    StepForward,
    StepBack,
    Tremble,
    Nodes,
    Split(Kind),
    Ring(Turn),
    FailOver { behind: bool },
    Elected(Maker, Harm),
}

/// What befalls servers that choose their leader, or the ways to one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Harm {
    LeaderKilled,
    LeaderStopped,
    MemberKilled,
    MemberStopped,
    AllStopped,
    EatReplies,
    Freeze,
    /// Somebody revokes all leases.
    Revoke,
    /// The past is forgotten while some clients are away.
    Compact,
}

/// Whose network falls apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Quorum,
    /// Whether a lease counts only once all replicas have it.
    Sentinel {
        all: bool,
    },
    Cluster {
        all: bool,
    },
    Elected(Maker),
}

/// What befalls a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Moved,
    HandedOver,
    Stopped,
    Killed,
    Lagging,
}

const fn fault(name: &'static str, about: &'static str, lasting: (u64, u64), blow: Blow) -> Fault {
    Fault { name, about, exclusion: true, forgets: false, lasting, ttl: TTL, settles: 0, blow }
}

/// What was granted is gone: two may believe that they hold it, until the first is told.
const fn forgets(name: &'static str, about: &'static str, lasting: (u64, u64), blow: Blow) -> Fault {
    Fault { exclusion: false, forgets: true, ..fault(name, about, lasting, blow) }
}

/// Another server takes over, which may not know what this one granted last.
const fn loses(name: &'static str, about: &'static str, lasting: (u64, u64), blow: Blow) -> Fault {
    Fault { exclusion: false, ..fault(name, about, lasting, blow) }
}

/// What befalls the nodes of a quorum, and the ways to them.
pub const QUORUM: &[Fault] = &[fault(
    "quorum",
    "Of five servers one to three are killed, stopped or cut off at a time, and replies are eaten on the way",
    (10, 150),
    Blow::Nodes,
)];

/// What befalls the network between several servers and their clients: it falls apart, in one direction or in both.
pub const SPLIT: &[Fault] = &[
    fault("quorum_split", "Five servers that are one quorum", (30, 250), Blow::Split(Kind::Quorum)),
    loses(
        "sentinel_split",
        "A master and replicas, each beside a sentinel",
        (30, 400),
        Blow::Split(Kind::Sentinel { all: false }),
    ),
    fault(
        "sentinel_split_all",
        "The same, and with min_replicas=2, which is all of them, exclusion is promised",
        (30, 400),
        Blow::Split(Kind::Sentinel { all: true }),
    ),
    loses(
        "cluster_split",
        "Three masters with a replica each",
        (30, 400),
        Blow::Split(Kind::Cluster { all: false }),
    ),
    fault(
        "cluster_split_all",
        "The same, and with min_replicas=1, which is all of them, exclusion is promised",
        (30, 400),
        Blow::Split(Kind::Cluster { all: true }),
    ),
];

/// What befalls a cluster of three masters with a replica each.
pub const CLUSTER: &[Fault] = &[
    fault(
        "moved",
        "Contended slots move from master to master, and stay half moved for a ttl",
        (0, 100),
        Blow::Ring(Turn::Moved),
    ),
    fault(
        "handed_over",
        "A master hands over to its replica, when told to",
        (0, 0),
        Blow::Ring(Turn::HandedOver),
    ),
    loses(
        "master_stopped",
        "SIGSTOP of a master, whose replica may take over",
        (30, 280),
        Blow::Ring(Turn::Stopped),
    ),
    loses(
        "master_killed",
        "SIGKILL of a master, whose replica may take over",
        (0, 250),
        Blow::Ring(Turn::Killed),
    ),
    loses(
        "replica_lags",
        "A replica that has missed what was granted last takes over at once",
        (10, 60),
        Blow::Ring(Turn::Lagging),
    ),
];

/// What befalls a master and its replicas, where sentinels have another take over.
pub const SENTINEL: &[Fault] = &[
    fault(
        "failover",
        "Another server takes over, by itself or ordered; and with min_replicas=2 exclusion is promised",
        (0, 0),
        Blow::FailOver { behind: false },
    ),
    Fault {
        exclusion: false,
        ..fault(
            "failover_behind",
            "One takes over that was cut off and lacks what was granted last: the old holders are told",
            (0, 0),
            Blow::FailOver { behind: true },
        )
    },
];

/// All that can befall one server.
pub const FAULTS: &[Fault] = &[
    fault("stopped", "SIGSTOP of the server for three ttl", (300, 300), Blow::Stop),
    fault(
        "restarted",
        "SIGKILL, and started again with all its data (appendfsync always)",
        (0, 120),
        Blow::Restart { durable: true },
    ),
    forgets(
        "forgotten",
        "SIGKILL, and started again without data",
        (0, 40),
        Blow::Restart { durable: false },
    ),
    Fault {
        exclusion: true,
        settles: 250,
        ..forgets(
            "forgotten_delayed",
            "The same, and with restart_delay= of one ttl exclusion is promised",
            (0, 40),
            Blow::Restart { durable: false },
        )
    },
    forgets("flushed", "FLUSHALL", (0, 0), Blow::Flush),
    fault("scripts_flushed", "SCRIPT FLUSH", (0, 0), Blow::FlushScripts),
    fault("clients_killed", "CLIENT KILL of all connections, subscriptions too", (0, 0), Blow::KillClients),
    fault(
        "replies_eaten",
        "Replies of some clients are lost, with their connection",
        (30, 150),
        Blow::EatReplies,
    ),
    fault(
        "requests_eaten",
        "Requests of some clients are lost, with their connection",
        (30, 150),
        Blow::EatRequests,
    ),
    fault("frozen", "The ways of some clients freeze, and all comes later at once", (50, 300), Blow::Freeze),
    fault(
        "frozen_for_good",
        "The open connections of some clients go silent for good",
        (50, 200),
        Blow::FreezeOld,
    ),
    fault("delayed", "All that some clients say and hear comes late", (50, 200), Blow::Delay),
    fault("cut", "The connections of some clients are cut", (0, 0), Blow::Cut),
    fault("refused", "Some clients are cut off, and refused", (30, 200), Blow::Refuse),
    fault("trickled", "What some clients say and hear comes byte by byte", (50, 150), Blow::Trickle),
    fault(
        "duplicated",
        "Every request of some clients arrives again, up to half a ttl later",
        (100, 250),
        Blow::Duplicate,
    ),
    fault("mishaps", "Some of everything: one message in five eaten or late", (100, 250), Blow::Mishaps),
    fault("denied", "The right to run scripts is taken away, and given back", (50, 200), Blow::Deny),
    fault("full", "maxmemory is reached: renewals and releases go on", (100, 200), Blow::Fill),
    fault("paused", "CLIENT PAUSE WRITE", (50, 150), Blow::Pause),
    fault("busy", "A script of somebody that does not end, until SCRIPT KILL", (50, 150), Blow::Busy),
    fault("demoted", "The server becomes a replica of nobody, and a master again", (50, 150), Blow::Demote),
    Fault {
        exclusion: false,
        ..fault("clock_forward", "The server's clock steps 2 to 20 s forward", (0, 0), Blow::StepForward)
    },
    fault("clock_back", "The server's clock steps 2 to 20 s back", (0, 0), Blow::StepBack),
    fault(
        "clock_trembles",
        "The server's clock steps to and fro by 4 ms, less than the margin",
        (0, 0),
        Blow::Tremble,
    ),
];

impl Fault {
    /// Every one there is.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        [FAULTS, QUORUM, SPLIT, CLUSTER, SENTINEL, ETCD, ZOOKEEPER].into_iter().flatten()
    }

    /// Whether the server itself takes leases away that live, as it wakes.
    pub(super) fn revokes(&self) -> bool {
        !self.exclusion && matches!(self.blow, Blow::Elected(_, Harm::LeaderStopped))
    }

    /// The fault of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::all().find(|fault| fault.name == name)
    }
}
