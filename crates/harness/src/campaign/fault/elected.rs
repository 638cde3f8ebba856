//! The tables of servers that choose their leader.

use std::time::Duration;

use super::{Blow, Fault, Harm, Kind, fault};
use crate::servers::elected::Maker;

/// No session of ZooKeeper and no lease of etcd is shorter, as these servers are set up.
const SESSION: Duration = Duration::from_secs(2);

/// Where leases last as long as a session does.
const fn of_session(fault: Fault) -> Fault {
    Fault { ttl: SESSION, ..fault }
}

const fn etcd(name: &'static str, about: &'static str, lasting: (u64, u64), harm: Harm) -> Fault {
    of_session(fault(name, about, lasting, Blow::Elected(Maker::Etcd, harm)))
}

/// The leader stands still, and wakes.
const fn revokes(name: &'static str, maker: Maker) -> Fault {
    let about = "SIGSTOP of the leader: as it wakes, etcd before 3.5.13 revokes what another leader has prolonged, so two \
                 may believe until the first is told";
    Fault {
        exclusion: false,
        ..of_session(fault(name, about, (50, 250), Blow::Elected(maker, Harm::LeaderStopped)))
    }
}

/// What befalls three members of etcd, or one and the ways to it.
pub const ETCD: &[Fault] = &[
    etcd(
        "etcd_leader_killed",
        "SIGKILL of the leader, which comes back with its data",
        (50, 200),
        Harm::LeaderKilled,
    ),
    revokes("etcd_leader_stopped", Maker::Etcd),
    etcd("etcd_member_killed", "SIGKILL of one that does not lead", (0, 150), Harm::MemberKilled),
    etcd("etcd_member_stopped", "SIGSTOP of one that does not lead", (30, 200), Harm::MemberStopped),
    etcd("etcd_all_stopped", "SIGSTOP of all members for three ttl", (300, 300), Harm::AllStopped),
    etcd(
        "etcd_replies_eaten",
        "Replies of some clients are lost, with their connection",
        (30, 150),
        Harm::EatReplies,
    ),
    etcd(
        "etcd_frozen",
        "The ways of some clients freeze for longer than a lease lasts, and all comes later at once",
        (110, 250),
        Harm::Freeze,
    ),
    Fault {
        exclusion: false,
        forgets: true,
        ..etcd("etcd_revoked", "Somebody revokes all leases", (0, 0), Harm::Revoke)
    },
    etcd(
        "etcd_compacted",
        "All that was is forgotten while some clients are away, who go on from before",
        (10, 80),
        Harm::Compact,
    ),
    of_session(fault(
        "etcd_split",
        "The network between three members and their clients falls apart",
        (30, 400),
        Blow::Split(Kind::Elected(Maker::Etcd)),
    )),
    revokes("etcd_newer_leader_stopped", Maker::NewerEtcd),
    of_session(fault(
        "etcd_newer_split",
        "The same network, and etcd 3.5",
        (30, 400),
        Blow::Split(Kind::Elected(Maker::NewerEtcd)),
    )),
];

const fn zookeeper(name: &'static str, about: &'static str, lasting: (u64, u64), harm: Harm) -> Fault {
    of_session(fault(name, about, lasting, Blow::Elected(Maker::ZooKeeper, harm)))
}

/// What befalls an ensemble of ZooKeeper, or one server and the ways to it.
pub const ZOOKEEPER: &[Fault] = &[
    zookeeper(
        "zookeeper_leader_killed",
        "SIGKILL of the leader, which comes back with its data",
        (50, 200),
        Harm::LeaderKilled,
    ),
    zookeeper("zookeeper_leader_stopped", "SIGSTOP of the leader", (50, 250), Harm::LeaderStopped),
    zookeeper("zookeeper_member_killed", "SIGKILL of a follower", (0, 150), Harm::MemberKilled),
    zookeeper("zookeeper_member_stopped", "SIGSTOP of a follower", (30, 200), Harm::MemberStopped),
    zookeeper("zookeeper_all_stopped", "SIGSTOP of all members for three ttl", (300, 300), Harm::AllStopped),
    zookeeper(
        "zookeeper_replies_eaten",
        "Replies of some clients are lost, with their connection, those to the making of nodes too",
        (30, 150),
        Harm::EatReplies,
    ),
    zookeeper(
        "zookeeper_frozen",
        "The ways of some clients freeze until their sessions have ended, and all comes later at once",
        (110, 250),
        Harm::Freeze,
    ),
    of_session(fault(
        "zookeeper_split",
        "The network between three members and their clients falls apart",
        (30, 400),
        Blow::Split(Kind::Elected(Maker::ZooKeeper)),
    )),
];
