//! The ways to a server on which the store is held to its contract: each with a server, and the URL of a store in it.

use std::io;
use std::sync::LazyLock;

use leasehold_harness::servers::redis::{self as servers, Redis, VALKEY};

use super::host::Host;
use super::server::{Server, missing, missing_program, told};

/// A way to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// At its port, without anything.
    Plain,
    /// At a socket of this machine.
    Socket,
    /// Over TLS, with the authority named in the URL; in a database and under a prefix of its own.
    Tls,
    /// As a user who may do what the documentation says is needed, and nothing else; in a database of its own.
    LeastRights,
    /// A Valkey.
    Valkey,
    /// A cluster, with names in all slots.
    Cluster,
    /// A cluster, with all names in one slot.
    OneSlot,
    /// Found by sentinels, with replicas.
    Sentinel,
}

impl Way {
    /// Why it cannot be tested, if it cannot.
    pub(crate) fn missing(self) -> Option<String> {
        match self {
            Self::Valkey => missing_program(VALKEY),
            _ => missing(),
        }
    }

    /// Starts a server for it, which goes by the clock of a test.
    pub(crate) fn start(self) -> io::Result<Host> {
        let redis = match self {
            Self::Sentinel => return Server::watched(told(Redis::default())?).map(Host::Server),
            Self::Plain | Self::Socket => Redis::default(),
            Self::Tls => Redis { tls: true, ..Redis::default() },
            Self::LeastRights => Redis::default().line(format!("user {}", *LEAST_RIGHTS)),
            Self::Valkey => Redis { program: Some(VALKEY), ..Redis::default() },
            Self::Cluster | Self::OneSlot => return Host::cluster(),
        };
        Ok(Host::Server(Server::like(told(redis)?)?))
    }

    /// The URL of the store in such a server.
    pub(crate) fn url(self, server: &Server) -> String {
        let running = server.running();
        match self {
            Self::Plain => servers::url(running),
            Self::Socket => server.url(),
            Self::Tls => servers::tls_url(running).replace('?', "/5?prefix=app:&"),
            Self::LeastRights => format!("redis://locks:password@{}/3", running.address()),
            Self::Sentinel => server.sentinel_url().to_owned(),
            Self::Valkey => format!("valkey://{}", running.address()),
            Self::Cluster | Self::OneSlot => unreachable!("a cluster is no one server"),
        }
    }
}

/// The user of the documentation, as a configuration has it: its name, and what it may.
pub(crate) static LEAST_RIGHTS: LazyLock<String> = LazyLock::new(|| {
    let page = include_str!("../../../../docs/design/redis.md");
    let (_, after) = page.split_once("ACL SETUSER ").unwrap();
    let (user, _) = after.split_once("```").unwrap();
    user.split_whitespace().collect::<Vec<_>>().join(" ")
});

/// What it may besides in a cluster.
pub(crate) static CLUSTER_RIGHTS: LazyLock<String> = LazyLock::new(|| {
    let page = include_str!("../../../../docs/design/redis.md");
    let (_, after) = page.split_once("In a cluster also\n\n```\n").unwrap();
    after.split_once("\n```").unwrap().0.trim().to_owned()
});
