//! Several Redis that know nothing of each other: the nodes of a quorum.

use super::net::Host;
use super::redis::{Redis, ask};
use super::{NoServer, Server, start_all};

/// Independent servers.
#[derive(Debug)]
pub struct Nodes {
    /// Each of them.
    pub servers: Vec<Server>,
}

impl Nodes {
    /// Starts so many that are like this.
    ///
    /// # Errors
    ///
    /// When there is no such server on this machine, or one does not start.
    pub fn start(count: usize, redis: &Redis) -> Result<Self, NoServer> {
        // All at once: each takes a while until it answers.
        let servers = start_all(vec![redis.clone(); count], Redis::start)?;
        Ok(Self { servers })
    }

    /// Starts one that is like this on each of these hosts.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn on(hosts: &[Host], redis: &Redis) -> Result<Self, NoServer> {
        let servers = hosts.iter().map(|host| redis.clone().on(host).start()).collect::<Result<_, _>>()?;
        Ok(Self { servers })
    }

    /// The URL of the quorum of all, with this behind it, such as `?node_timeout=1s`.
    #[must_use]
    pub fn url(&self, more: &str) -> String {
        url(self.servers.iter().map(|server| server.address().to_string()), more)
    }

    /// How many have a key; those that do not answer have none.
    #[must_use]
    pub fn having(&self, key: &str) -> usize {
        let has = |server: &&Server| ask(server, &["EXISTS", key]).is_ok_and(|said| said.starts_with(":1"));
        self.servers.iter().filter(has).count()
    }
}

/// The URL of the quorum of these.
pub fn url(addresses: impl Iterator<Item = String>, more: &str) -> String {
    format!("redlock+redis://{}{more}", addresses.collect::<Vec<_>>().join(","))
}
