//! The servers on which clients of other people contend with ours, and what stands there while one of them holds.

use std::fmt;

use super::NAME;
use crate::puppet::Trouble;
use crate::servers::etcd::{self, Etcd};
use crate::servers::nodes::Nodes;
use crate::servers::redis::{Redis, ask};
use crate::servers::zookeeper::{self, ZooKeeper};
use crate::servers::{NoServer, Server};

/// A kind of servers that others lock on as we do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    /// One Redis.
    Redis,
    /// Five that are one store.
    Quorum,
    /// One ZooKeeper.
    ZooKeeper,
    /// One etcd, as the distribution has it.
    Etcd,
    /// One etcd that is newer.
    NewerEtcd,
}

impl Ground {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Redis, Self::Quorum, Self::ZooKeeper, Self::Etcd, Self::NewerEtcd];
}

impl fmt::Display for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redis => "redis",
            Self::Quorum => "quorum",
            Self::ZooKeeper => "zookeeper",
            Self::Etcd => "etcd",
            Self::NewerEtcd => "etcd-3.5",
        })
    }
}

/// Those that run.
#[derive(Debug)]
pub(super) enum Servers {
    Redis(Nodes),
    ZooKeeper(Server),
    Etcd(Server),
}

/// What stands at the key of one that is held.
#[derive(Debug)]
pub(super) struct Held {
    /// All of it, whatever it means.
    what: String,
    /// For how many milliseconds still, where that is known.
    left: Option<i64>,
}

impl Held {
    /// Whether nobody has touched it since: it is what it was, and lasts no longer.
    pub(super) fn goes_on_as(&self, later: &Self) -> bool {
        let Self { what, left } = self;
        let lasts = match (left, later.left) {
            (Some(left), Some(later)) => 0 < later && later <= *left,
            (left, later) => left.is_none() && later.is_none(),
        };
        !what.is_empty() && *what == later.what && lasts
    }
}

impl Servers {
    pub(super) fn start(ground: Ground) -> Result<Self, NoServer> {
        Ok(match ground {
            Ground::Redis => Self::Redis(Nodes::start(1, &Redis::default())?),
            Ground::Quorum => Self::Redis(Nodes::start(5, &Redis::default())?),
            Ground::ZooKeeper => {
                // Its clients may ask for sessions that no pause of a busy machine ends.
                Self::ZooKeeper(ZooKeeper::default().line("maxSessionTimeout=60000").start()?)
            }
            Ground::Etcd => Self::Etcd(Etcd::default().start()?),
            Ground::NewerEtcd => Self::Etcd(Etcd::newer().start()?),
        })
    }

    /// As we call them.
    pub(super) fn url(&self) -> String {
        match self {
            Self::Redis(nodes) if nodes.servers.len() > 1 => nodes.url("?restart_delay=0s"),
            Self::Redis(_) => self.theirs(),
            Self::ZooKeeper(server) => zookeeper::url(server),
            Self::Etcd(server) => etcd::url(server),
        }
    }

    /// As others do.
    pub(super) fn theirs(&self) -> String {
        match self {
            Self::Redis(nodes) => {
                let each = nodes.servers.iter().map(|server| format!("redis://{}", server.address()));
                each.collect::<Vec<_>>().join(",")
            }
            Self::ZooKeeper(server) | Self::Etcd(server) => server.address().to_string(),
        }
    }

    /// What is contended for, as others know it: with what stands before a name by default.
    pub(super) fn key(&self) -> String {
        match self {
            Self::Redis(_) => format!("lock:{NAME}"),
            Self::ZooKeeper(_) => format!("/leasehold/{NAME}"),
            Self::Etcd(_) => format!("lock/{NAME}"),
        }
    }

    /// A quorum has none.
    pub(super) fn has_shared_locks(&self) -> bool {
        !matches!(self, Self::Redis(nodes) if nodes.servers.len() > 1)
    }

    /// Which server it is.
    pub(super) fn version(&self) -> Result<String, Trouble> {
        let (name, said, before) = match self {
            Self::Redis(nodes) => {
                ("redis-server", ask(&nodes.servers[0], &["INFO", "server"])?, "redis_version:")
            }
            Self::ZooKeeper(server) => ("zookeeper", zookeeper::ask(server, "srvr")?, "Zookeeper version: "),
            Self::Etcd(server) => {
                let said = etcd::ask(server, "/v3/maintenance/status", "{}")?;
                ("etcd", said.replace([',', '{'], "\n"), "\"version\":")
            }
        };
        let version = said.lines().find_map(|line| line.strip_prefix(before));
        let version = version.and_then(|version| version.split(['-', ',']).next());
        let version = version.ok_or("it does not say which version it is")?.trim_matches('"');
        Ok(format!("{name} {version}"))
    }

    /// What stands at the key, by the servers' own word.
    pub(super) fn held(&self) -> Result<Held, Trouble> {
        let key = self.key();
        match self {
            Self::Redis(nodes) => {
                let server = &nodes.servers[0];
                // Told by its digest, since it may be bytes of any kind.
                let digest = "return redis.sha1hex(redis.call('GET', KEYS[1]))";
                let what = ask(server, &["EVAL", digest, "1", &key])?;
                let left = ask(server, &["PTTL", &key])?;
                let left = left.trim().strip_prefix(':').ok_or_else(|| format!("no time: {left}"))?;
                Ok(Held { what, left: Some(left.parse()?) })
            }
            Self::ZooKeeper(server) => {
                let said = zookeeper::ask(server, "dump")?;
                let below = format!("{key}/");
                let nodes = said.lines().map(str::trim).filter(|line| line.starts_with(&below));
                Ok(Held { what: nodes.collect::<Vec<_>>().join("\n"), left: None })
            }
            Self::Etcd(server) => {
                let what = etcd::keys_from(server, &format!("{key}/"))?.join("\n");
                Ok(Held { what, left: None })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_touched_does_not_go_on_as_it_was() {
        let held = |what: &str, left| Held { what: what.to_owned(), left };
        assert!(held("a", Some(5)).goes_on_as(&held("a", Some(4))));
        assert!(held("a", None).goes_on_as(&held("a", None)));
        for later in [held("b", Some(4)), held("a", Some(6)), held("a", Some(0)), held("a", None)] {
            assert!(!held("a", Some(5)).goes_on_as(&later), "{later:?}");
        }
        assert!(!held("", None).goes_on_as(&held("", None)), "nobody holds it");
    }
}
