//! A real Redis Cluster: masters with their replicas, slots that a test moves step by step, and failovers.

mod moving;

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use leasehold_core::Clock;
pub use moving::Move;

use super::net::Host;
use super::redis::{Redis, ask, ok, refused, said};
use super::{NoServer, Server, until};

const SLOTS: usize = 16_384;
/// A failover that a replica was told to begin is over by then, one way or the other.
const GIVEN_UP: Duration = Duration::from_secs(6);

/// What a cluster for tests is to be like.
#[derive(Debug, Clone)]
pub struct Shape {
    /// How many masters share the slots.
    pub masters: usize,
    /// How many replicas each has.
    pub replicas: usize,
    /// After how long a node that is silent counts as failed, and one that is alone stops taking writes.
    pub node_timeout: Duration,
    /// What each server is like.
    pub redis: Redis,
    /// On which host each runs, as far as there are any; the rest is on this machine.
    pub hosts: Vec<Host>,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            masters: 3,
            replicas: 1,
            node_timeout: Duration::from_millis(1500),
            redis: Redis::default(),
            hosts: Vec::new(),
        }
    }
}

/// A cluster that runs. Masters come first, then the first replica of each, then the second.
///
/// Who is master changes with failovers, so it is asked for by [`master_of`](Self::master_of).
#[derive(Debug)]
pub struct Cluster {
    /// Each node. Signals and kills go straight to them.
    pub servers: Vec<Server>,
    ids: Vec<String>,
}

/// A node as it speaks of itself or of another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    id: String,
    flags: Vec<String>,
    /// Whose replica it is.
    master: String,
    epoch: u64,
    slots: Vec<(usize, usize)>,
}

impl Cluster {
    /// Starts one, and returns once it is [settled](Self::settled).
    ///
    /// # Errors
    ///
    /// When there is no such server on this machine, or they do not come together.
    pub fn start(shape: &Shape) -> Result<Self, NoServer> {
        let Shape { masters, replicas, node_timeout, redis, hosts } = shape;
        let redis = redis
            .clone()
            .clustered()
            .line(format!("cluster-node-timeout {}", node_timeout.as_millis()))
            // Each master keeps its own.
            .line("cluster-allow-replica-migration no")
            // Else a replica waits for others that might want the same data.
            .line("repl-diskless-sync-delay 0");
        let count = masters * (1 + replicas);
        let place = |node: usize| hosts.get(node).map_or(redis.clone(), |host| redis.clone().on(host));
        let servers = (0..count).map(|node| place(node).start()).collect::<Result<Vec<_>, _>>()?;
        let ids =
            servers.iter().map(|server| said(server, &["CLUSTER", "MYID"])).collect::<Result<_, _>>()?;
        let cluster = Self { servers, ids };
        cluster.join(*masters)?;
        Ok(cluster)
    }

    fn join(&self, masters: usize) -> io::Result<()> {
        for (node, server) in self.servers.iter().enumerate() {
            // Else they begin with equal ones, and need a while to agree whose counts.
            ok(server, &["CLUSTER", "SET-CONFIG-EPOCH", &(node + 1).to_string()])?;
            if node < masters {
                let (first, end) = (node * SLOTS / masters, (node + 1) * SLOTS / masters);
                let (first, last) = (first.to_string(), (end - 1).to_string());
                ok(server, &["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
            }
            let address = self.servers[0].address();
            if node > 0 {
                let (ip, port) = (address.ip().to_string(), address.port().to_string());
                ok(server, &["CLUSTER", "MEET", &ip, &port])?;
            }
        }
        for node in masters..self.servers.len() {
            let (server, master) = (&self.servers[node], &self.ids[node % masters]);
            // Not before it has heard of its master.
            until("each replica knows its master", || {
                Ok(ask(server, &["CLUSTER", "REPLICATE", master])?.starts_with("+OK"))
            })?;
        }
        self.settled()
    }

    /// The URL of the store in it, with this behind it, such as `?min_replicas=1`.
    #[must_use]
    pub fn url(&self, more: &str) -> String {
        let addresses: Vec<_> = self.servers.iter().map(|server| server.address().to_string()).collect();
        format!("redis+cluster://{}{more}", addresses.join(","))
    }

    /// The slot of a key.
    ///
    /// # Errors
    ///
    /// When no node answers.
    pub fn slot_of(&self, key: &str) -> io::Result<usize> {
        let mut answers = self.servers.iter().map(|server| ask(server, &["CLUSTER", "KEYSLOT", key]));
        let answer = answers.find_map(Result::ok).ok_or_else(|| io::Error::other("no node answers"))?;
        answer.trim_start_matches(':').trim().parse().map_err(|_| io::Error::other(answer))
    }

    /// The number of the master of a slot: of those who say they are, the one with the highest epoch.
    ///
    /// # Errors
    ///
    /// When nobody says so.
    pub fn master_of(&self, slot: usize) -> io::Result<usize> {
        let has = |entry: &Entry| entry.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot));
        let claims = self.servers.iter().enumerate().filter_map(|(node, server)| {
            let own = view(server).ok()?.into_iter().find(|entry| entry.has("myself"))?;
            (own.has("master") && has(&own)).then_some((own.epoch, node))
        });
        let master = claims.max().map(|(_, node)| node);
        master.ok_or_else(|| io::Error::other(format!("no node says it is the master of slot {slot}")))
    }

    /// The numbers of the replicas of a master, as the first node sees it that answers.
    ///
    /// # Errors
    ///
    /// When no node answers.
    pub fn replicas_of(&self, master: usize) -> io::Result<Vec<usize>> {
        let entries = self.servers.iter().find_map(|server| view(server).ok());
        let entries = entries.ok_or_else(|| io::Error::other("no node answers"))?;
        let replicas = entries.iter().filter(|entry| entry.master == self.ids[master]);
        Ok(replicas.filter_map(|entry| self.ids.iter().position(|id| *id == entry.id)).collect())
    }

    /// Makes a replica the master, with its master's agreement, or without (`FORCE`, `TAKEOVER`) where that is gone.
    /// Returns once it says that it is.
    ///
    /// # Errors
    ///
    /// When it does not become one.
    pub fn fail_over(&self, replica: usize, how: Option<&str>) -> io::Result<()> {
        let server = &self.servers[replica];
        let words: Vec<&str> = ["CLUSTER", "FAILOVER"].into_iter().chain(how).collect();
        let clock = Clock::system();
        let mut again = clock.now();
        until("the replica is master", || {
            if view(server)?.iter().any(|entry| entry.has("myself") && entry.has("master")) {
                return Ok(true);
            }
            // It gives up after five seconds, which a busy machine may well need.
            if clock.now() >= again {
                ok(server, &words)?;
                again = clock.now().after(GIVEN_UP);
            }
            Ok(false)
        })
    }

    /// Cuts a replica off from its master: it hears of nothing any more, and may be made the master all the same.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn cut_off(&self, replica: usize) -> io::Result<()> {
        let server = &self.servers[replica];
        // It knocks again at once, and is not let in.
        ok(server, &["CONFIG", "SET", "masteruser", "nobody", "masterauth", "nothing"])?;
        refused(&ask(server, &["CLIENT", "KILL", "TYPE", "master"])?)?;
        until("the link is down", || {
            Ok(said(server, &["INFO", "replication"])?.contains("master_link_status:down"))
        })
    }

    /// Lets it in again.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn let_in(&self, replica: usize) -> io::Result<()> {
        ok(&self.servers[replica], &["CONFIG", "SET", "masteruser", "", "masterauth", ""])
    }

    /// Returns once all nodes that run agree who has which slot, all slots can be used, and all replicas are linked.
    ///
    /// # Errors
    ///
    /// When it does not come to that.
    pub fn settled(&self) -> io::Result<()> {
        until("the cluster is settled", || Ok(self.is_settled().unwrap_or(false)))
    }

    fn is_settled(&self) -> io::Result<bool> {
        let mut views = BTreeSet::new();
        for server in self.servers.iter().filter(|server| server.pid().is_some()) {
            let mut view = view(server)?;
            let fails =
                |entry: &Entry| ["fail", "fail?", "handshake", "noaddr"].iter().any(|flag| entry.has(flag));
            let gone =
                |entry: &Entry| self.index(&entry.id).is_some_and(|node| self.servers[node].pid().is_none());
            if view.len() != self.servers.len() || view.iter().any(|entry| fails(entry) && !gone(entry)) {
                return Ok(false);
            }
            let well = said(server, &["CLUSTER", "INFO"])?.contains("cluster_state:ok");
            let replication = said(server, &["INFO", "replication"])?;
            if !well || (replication.contains("role:slave") && !replication.contains("master_link_status:up"))
            {
                return Ok(false);
            }
            for entry in &mut view {
                // Who is well is compared, and who is who; not who is asked.
                entry.flags.retain(|flag| flag != "myself");
            }
            view.sort();
            views.insert(view);
        }
        Ok(views.len() == 1)
    }

    fn index(&self, id: &str) -> Option<usize> {
        self.ids.iter().position(|one| one == id)
    }
}

impl Entry {
    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|one| one == flag)
    }

    /// From a line of `CLUSTER NODES`.
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let mut next = || words.next();
        let (id, _address, flags, master) = (next()?, next()?, next()?, next()?);
        let (_ping, _pong, epoch, _link) = (next()?, next()?, next()?, next()?);
        // What is being moved stands in brackets behind them.
        let slots = words.filter(|word| !word.starts_with('[')).filter_map(|word| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            Some((first.parse().ok()?, last.parse().ok()?))
        });
        Some(Self {
            id: id.to_owned(),
            flags: flags.split(',').map(str::to_owned).collect(),
            master: master.to_owned(),
            epoch: epoch.parse().ok()?,
            slots: slots.collect(),
        })
    }
}

/// All nodes, as this one sees them.
fn view(server: &Server) -> io::Result<Vec<Entry>> {
    let text = said(server, &["CLUSTER", "NODES"])?;
    Ok(text.lines().filter_map(Entry::read).collect())
}
