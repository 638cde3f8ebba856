//! Servers that choose the one who leads among themselves, of either kind: what a test does to them, and what is left.

use std::io;

use super::etcd::{Etcd, Members, NEWER};
use super::net::Host;
use super::zookeeper::{Ensemble, ZooKeeper};
use super::{NoServer, Server, until};

/// Whose they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    /// An ensemble of ZooKeeper.
    ZooKeeper,
    /// A cluster of etcd, as the distribution has it.
    Etcd,
    /// .. and a newer one.
    NewerEtcd,
}

/// All of them.
#[derive(Debug)]
pub enum Elected {
    /// The members of an ensemble.
    ZooKeeper(Ensemble),
    /// The members of a cluster.
    Etcd(Members),
}

impl Maker {
    fn etcd(self) -> Etcd {
        let etcd = Etcd::default();
        if self == Self::NewerEtcd { etcd.program(NEWER) } else { etcd }
    }
}

impl Elected {
    /// Starts so many, and returns once they serve.
    ///
    /// # Errors
    ///
    /// When there is no such server on this machine, or they do not come together.
    pub fn start(maker: Maker, count: usize) -> Result<Self, NoServer> {
        Ok(match maker {
            Maker::ZooKeeper => Self::ZooKeeper(Ensemble::start(count, &ZooKeeper::default())?),
            Maker::Etcd | Maker::NewerEtcd => Self::Etcd(Members::start(count, &maker.etcd())?),
        })
    }

    /// Starts one on each of these hosts.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn on(maker: Maker, hosts: &[Host]) -> Result<Self, NoServer> {
        Ok(match maker {
            Maker::ZooKeeper => Self::ZooKeeper(Ensemble::on(hosts, &ZooKeeper::default())?),
            Maker::Etcd | Maker::NewerEtcd => Self::Etcd(Members::on(hosts, &maker.etcd())?),
        })
    }

    /// The scheme of the store's URL, and the options that suit servers which are as quick as these.
    #[must_use]
    pub fn url_of(&self, addresses: &[String]) -> String {
        let all = addresses.join(",");
        match self {
            Self::ZooKeeper(_) => {
                format!("zookeeper://{all}?timeout=500ms&tick={}ms", super::zookeeper::TICK)
            }
            Self::Etcd(_) => format!("etcd://{all}?timeout=500ms"),
        }
    }

    /// The URL of the store in all of them.
    #[must_use]
    pub fn url(&self) -> String {
        let addresses: Vec<_> = self.servers().iter().map(|server| server.address().to_string()).collect();
        self.url_of(&addresses)
    }

    /// Each of them.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        match self {
            Self::ZooKeeper(Ensemble { servers, .. }) | Self::Etcd(Members { servers, .. }) => servers,
        }
    }

    /// Each of them, to kill it and to start it again.
    pub fn servers_mut(&mut self) -> &mut [Server] {
        match self {
            Self::ZooKeeper(Ensemble { servers, .. }) | Self::Etcd(Members { servers, .. }) => servers,
        }
    }

    /// The number of the one that leads.
    ///
    /// # Errors
    ///
    /// When none does.
    pub fn leader(&self) -> io::Result<usize> {
        match self {
            Self::ZooKeeper(ensemble) => ensemble.leader(),
            Self::Etcd(members) => members.leader(),
        }
    }

    /// Returns once another than this one leads, with its number.
    ///
    /// # Errors
    ///
    /// When none does in time.
    pub fn leader_after(&self, old: usize) -> io::Result<usize> {
        let mut new = old;
        until("another leads", || {
            new = self.leader().unwrap_or(old);
            Ok(new != old)
        })?;
        Ok(new)
    }

    /// Waits until all is well: every one serves, and they agree who leads.
    ///
    /// # Errors
    ///
    /// When it is not in time.
    pub fn settled(&self) -> io::Result<()> {
        match self {
            Self::ZooKeeper(ensemble) => ensemble.settled(),
            Self::Etcd(members) => members.settled(),
        }
    }

    /// How many stand in the line of a plain name, holders included.
    ///
    /// # Errors
    ///
    /// When nobody answers.
    pub fn in_line(&self, name: &str) -> io::Result<usize> {
        Ok(self.claims()?.iter().filter(|claim| claim.contains(&format!("/{name}/"))).count())
    }

    /// All that stands in any line, and every lease or session of a client that is alive.
    ///
    /// # Errors
    ///
    /// When nobody answers.
    pub fn left(&self) -> io::Result<Vec<String>> {
        let mut left = self.claims()?;
        left.extend(match self {
            Self::ZooKeeper(ensemble) => ensemble.sessions(ensemble.leader()?)?,
            Self::Etcd(members) => members.leases(members.leader()?)?,
        });
        Ok(left)
    }

    /// All that stands in any line.
    ///
    /// # Errors
    ///
    /// When nobody answers.
    pub fn claims(&self) -> io::Result<Vec<String>> {
        match self {
            Self::ZooKeeper(ensemble) => ensemble.ephemerals(ensemble.leader()?),
            Self::Etcd(members) => members.line_keys(members.leader()?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_in_etcd_is_seen_until_it_is_revoked() {
        let members = match Elected::start(Maker::Etcd, 1) {
            Ok(Elected::Etcd(members)) => members,
            Err(NoServer::Missing(tool)) => return eprintln!("skipped: there is no {tool} here"),
            other => panic!("{other:?}"),
        };
        members.ask(0, "/v3/lease/grant", r#"{"ID":"77","TTL":"5"}"#).unwrap();
        // "lock/x/4d", as `etcdctl lock` has it.
        members.ask(0, "/v3/kv/put", r#"{"key":"bG9jay94LzRk","value":"","lease":"77"}"#).unwrap();
        let elected = Elected::Etcd(members);
        assert_eq!((elected.in_line("x").unwrap(), elected.in_line("y").unwrap()), (1, 0));
        assert_eq!(elected.left().unwrap(), ["lock/x/4d", "lease 77 of 5 s"]);
        let Elected::Etcd(members) = &elected else { unreachable!() };
        members.revoke_all(0).unwrap();
        assert_eq!(elected.left().unwrap(), [""; 0]);
        for _ in 0..2 {
            members.compact(0).unwrap();
        }
    }
}
