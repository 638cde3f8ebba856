//! Several servers that know nothing of each other, from one URL: the nodes of a quorum.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{Clock, Result, Scheme, StoreErrorKind, StoreUrl, fault};

use crate::config::{LONGEST_TTL, PORT, SHORTEST, Settings, span, wrong};
use crate::fail::{self, Fail};
use crate::members::Members;
use crate::store::RedisStore;

/// How long a node may take to answer, unless the URL says otherwise; and at the most.
const NODE_TIMEOUT: &str = "500ms";
const LONGEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest lease, unless the URL says otherwise.
const USUAL_LONGEST_TTL: &str = "10m";
const SHORTEST_TTL: Duration = Duration::from_secs(1);

/// The servers of a `redlock+redis:` URL, and what it says of them all.
#[derive(Debug)]
pub struct RedisNodes {
    /// One for each host, in the order of the URL.
    pub stores: Vec<RedisStore>,
    /// How long each may take to answer.
    pub node_timeout: Duration,
    /// The longest ttl that may be asked for. For so long after its start a server grants nothing, unless
    /// `restart_delay=` says otherwise.
    pub longest_ttl: Duration,
    /// What they are called together in errors.
    pub label: String,
}

impl RedisNodes {
    /// Prepares to speak to each server of a URL. Reads the files that it names; connects with the first call, not here.
    ///
    /// A server that turns out to be one of the others by another name is refused when it is connected to.
    ///
    /// # Errors
    ///
    /// A URL that cannot be used, such as one that names a server twice, or a file in it that cannot be read.
    pub fn open_with(url: &StoreUrl, clock: &Clock) -> Result<Self> {
        // Destructured in full: a new part of a URL must not be passed over in silence.
        let StoreUrl { scheme, user, password, hosts, path, options } = url;
        let one = match scheme {
            Scheme::RedlockRedis => Scheme::Redis,
            Scheme::RedlockRediss => Scheme::Rediss,
            _ => {
                let help = "redlock+redis://host1,host2,host3";
                return Err(wrong(format!("{url} is not the URL of several Redis servers"), help));
            }
        };
        if hosts.len() < 3 || hosts.len().is_multiple_of(2) {
            let count = hosts.len();
            let message = if count == 1 { "1 host makes".to_owned() } else { format!("{count} hosts make") };
            let message = format!("{message} no quorum");
            let help = "name an odd number of independent servers, three at least: \
                        a fourth tolerates no more losses than three do";
            return Err(wrong(message, help));
        }
        let mut places = HashSet::new();
        for host in hosts {
            if !places.insert((host.host.to_ascii_lowercase(), host.port.unwrap_or(PORT))) {
                let help = "name each server once: one that votes twice makes no majority";
                return Err(wrong(format!("the host {host} stands twice in the URL"), help));
            }
        }
        let mut options = options.clone();
        let mut take = |name: &str, usual: &str| options.remove(name).unwrap_or_else(|| usual.to_owned());
        let (timeout, longest) = (take("node_timeout", NODE_TIMEOUT), take("longest_ttl", USUAL_LONGEST_TTL));
        let help = "10ms to 10s, such as node_timeout=500ms";
        let node_timeout = span("node_timeout", &timeout, SHORTEST..=LONGEST_TIMEOUT, help)?;
        let help = "1s to 24h, such as longest_ttl=10m";
        let longest_ttl = span("longest_ttl", &longest, SHORTEST_TTL..=LONGEST_TTL, help)?;
        let epoch = take("epoch", "0");
        let epoch = epoch.parse().map_err(|_| {
            let help = "write a number that rises with each change of the list, such as epoch=2";
            wrong(format!("epoch={epoch:?} is no number"), help)
        })?;
        let mut members = None;
        let mut of_each = options.clone();
        of_each.insert("timeout".to_owned(), timeout);
        of_each.entry("restart_delay".to_owned()).or_insert(longest);
        let peers = Peers::default();
        let mut open = |host: &leasehold_core::Endpoint| {
            let (user, password, path) = (user.clone(), password.clone(), path.clone());
            let (hosts, options) = (vec![host.clone()], of_each.clone());
            let mut settings =
                Settings::parse(&StoreUrl { scheme: one, user, password, hosts, path, options })?;
            settings.peers = peers.clone();
            let members = members.get_or_insert_with(|| Members::new(&url.hosts, &settings.prefix, epoch));
            settings.members = Some(members.clone());
            RedisStore::with(settings, clock.clone())
        };
        let stores = hosts.iter().map(&mut open).collect::<Result<Vec<_>>>()?;
        let plain = StoreUrl { user: None, password: None, options: BTreeMap::new(), ..url.clone() };
        Ok(Self { stores, node_timeout, longest_ttl, label: plain.to_string() })
    }
}

/// Which server each node of one quorum turned out to be.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peers(Arc<Mutex<Vec<(String, String)>>>);

impl Peers {
    /// Notes that the node of this label is the server that calls itself so; it is refused if another node is.
    pub(crate) fn meet(&self, label: &str, run_id: &str) -> fail::Result<()> {
        let mut met = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let twin =
            met.iter().find(|(other, id)| other != label && id == run_id).map(|(other, _)| other.clone());
        if let Some(other) = twin.filter(|_| !fault!("redis_votes_twice")) {
            let message = format!("this server is the very one that is named {other}: it has one vote");
            return Err(Fail::new(StoreErrorKind::Unavailable, message)
                .help("name servers that are independent of each other"));
        }
        met.retain(|(other, _)| other != label);
        met.push((label.to_owned(), run_id.to_owned()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::Code;

    use super::*;

    fn parse(text: &str) -> Result<RedisNodes> {
        RedisNodes::open_with(&text.parse().unwrap(), &Clock::system())
    }

    #[test]
    fn each_host_is_a_server_with_all_that_the_url_says() {
        let nodes =
            parse("redlock+redis://me:pw@a:1,a:2,b/3?prefix=app:&node_timeout=200ms&longest_ttl=1m").unwrap();
        assert_eq!(
            (nodes.node_timeout, nodes.longest_ttl),
            (Duration::from_millis(200), Duration::from_secs(60))
        );
        assert_eq!(nodes.label, "redlock+redis://a:1,a:2,b/3");
        let labels: Vec<_> = nodes.stores.iter().map(ToString::to_string).collect();
        assert_eq!(labels, ["redis://a:1/3", "redis://a:2/3", "redis://b:6379/3"]);
        for store in &nodes.stores {
            let settings = &store.0.settings;
            assert_eq!((settings.prefix.as_str(), settings.user.as_deref()), ("app:", Some("me")));
            assert_eq!(settings.timeout, nodes.node_timeout);
            assert_eq!(settings.restart_delay, nodes.longest_ttl, "as long as what it may have forgotten");
        }
        let durable = parse("redlock+redis://a,b,c?restart_delay=0s").unwrap();
        assert!(durable.stores.iter().all(|store| store.0.settings.restart_delay.is_zero()));
    }

    #[test]
    fn what_makes_no_quorum_says_what_does() {
        for (bad, says) in [
            ("redlock+redis://a", "1 host makes no quorum"),
            ("redlock+redis://a,b", "2 hosts make no quorum"),
            ("redlock+redis://a,b,c,d", "4 hosts make no quorum"),
            ("redlock+redis://a,b,A:6379", "A:6379 stands twice"),
            ("redlock+redis://a,b,c?node_timeout=1m", "node_timeout"),
            ("redlock+redis://a,b,c?longest_ttl=5", "longest_ttl"),
            ("redlock+redis://a,b,c?epoch=new", "epoch"),
            ("redlock+redis://a,b,c?ca=/etc/hosts", "not encrypted"),
            ("redis://a", "several Redis"),
        ] {
            let error = parse(bad).unwrap_err();
            assert_eq!(error.code(), Code::URL, "{bad}");
            assert!(error.to_string().contains(says) && error.help().is_some(), "{bad}: {error}");
        }
        assert!("redlock+redis://a,b,c?timeout=1s".parse::<StoreUrl>().is_err());
    }

    #[test]
    fn a_server_under_two_names_has_one_vote_and_a_new_process_is_a_new_server() {
        let peers = Peers::default();
        peers.meet("one", "x").unwrap();
        peers.meet("one", "x").unwrap();
        peers.meet("two", "x").unwrap_err();
        peers.meet("one", "y").unwrap();
        peers.meet("two", "x").unwrap();
    }
}
