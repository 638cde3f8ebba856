//! What a Redis tells of itself: which it is, what it may drop, what it forgets, who may take over, who listens.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use leasehold_core::{Check, Code, Doctor, Health, LockName, Op, Result, ServerTime, StoreErrorKind};

use crate::config::{Place, Site};
use crate::events::channel_of;
use crate::fail::{self, Fail};
use crate::members::Members;
use crate::script::{Answer, text};
use crate::servers::Node;
use crate::store::RedisStore;

/// How long an event may take that tells of a key that is gone.
const EVENT: Duration = Duration::from_millis(500);
/// What is taken for a measurement ends by itself, if nobody gives it back.
const BARE_TTL: &str = "10000";

const NOT_TOLD: &str = "not told: this user may use neither INFO nor CONFIG";

#[async_trait]
impl Doctor for RedisStore {
    async fn greet(&self) -> Result<String> {
        let nodes = self.servers().all().await.map_err(self.failed(Op::Check, None))?;
        let (mut roles, mut places) = (Vec::new(), Vec::new());
        for node in &nodes {
            let (role, place) = greet(node).await.map_err(self.failed(Op::Check, None))?;
            roles.push(role);
            places.push(place);
        }
        let server = match nodes.first() {
            Some(node) => info(node, "server").await.unwrap_or_default(),
            None => HashMap::new(),
        };
        let told = |key: &str| server.get(key).map(String::as_str);
        let what = match (told("valkey_version"), told("redis_version")) {
            (Some(version), _) => format!("Valkey {version}"),
            (None, Some(version)) => format!("Redis {version}"),
            (None, None) => "a Redis that does not tell its version".to_owned(),
        };
        let role = match (self.servers().is_cluster(), roles.first()) {
            (true, _) => format!("a cluster of {} masters", nodes.len()),
            (false, role) => role.copied().unwrap_or_default().to_owned(),
        };
        let user = self.0.settings.user.as_deref().unwrap_or("default");
        let tls = match &self.0.settings.site {
            Site::Fixed(Place::Unix(_)) => "at a socket of this machine",
            site if site.is_encrypted() => "TLS on",
            _ => "TLS off",
        };
        let at = match &self.0.settings.site {
            Site::Watched(_) => format!(" at {}", places.join(", ")),
            Site::Fixed(_) | Site::Cluster(_) => String::new(),
        };
        Ok(format!("{what}, {role}{at}, {tls}, as user {user:?}"))
    }

    async fn ping(&self) -> Result<Option<ServerTime>> {
        let time = async {
            let keys = self.probe_keys()?;
            let mut time = Answer::new(self.servers().call(&keys.plain, &redis::cmd("TIME")).await?)?;
            Ok(ServerTime::from_micros(time.natural()? * 1_000_000 + time.natural()?))
        };
        let time: fail::Result<_> = time.await;
        time.map(Some).map_err(self.failed(Op::Check, None))
    }

    async fn checkup(&self) -> Vec<Check> {
        let mut checks = vec![self.check_rights().await];
        match self.servers().all().await {
            Ok(nodes) => {
                let (mut eviction, mut persistence, mut failover) = (Vec::new(), Vec::new(), Vec::new());
                for node in &nodes {
                    eviction.push(check_eviction(node).await.at(node));
                    persistence.push(check_persistence(node).await.at(node));
                    failover.push(self.check_failover(info(node, "replication").await.as_ref()).at(node));
                }
                checks.extend([eviction, persistence, failover].into_iter().filter_map(worst));
                checks.extend(self.check_slots());
                for node in &nodes {
                    if let Some(lookout) = node.link.lookout() {
                        checks.push(lookout.check().await);
                        checks.push(self.check_old_master(node).await);
                    }
                }
            }
            Err(fail) => checks.push(Check::untold("nodes", &self.failed(Op::Check, None)(fail))),
        }
        checks.push(check_cleartext(&self.0.settings.site, self.0.settings.password.is_some()));
        checks.push(self.check_events().await);
        checks.push(self.check_strangers().await);
        checks.extend(self.0.settings.members.as_ref().map(Members::check));
        checks
    }

    async fn bare(&self, name: &LockName) -> Result<Option<&'static str>> {
        let key = self.keys(name)?.plain;
        self.set_and_delete(&key).await.map_err(self.failed(Op::Check, Some(name)))?;
        Ok(Some("SET NX PX and DEL"))
    }
}

impl RedisStore {
    /// Whether each slot of a cluster is somebody's.
    fn check_slots(&self) -> Option<Check> {
        const NAME: &str = "slots";
        let uncovered = self.servers().uncovered()?;
        if uncovered.is_empty() {
            return Some(Check::ok(NAME, "each slot of the cluster has a master"));
        }
        Some(Check::failed(
            NAME,
            Code::FAILOVER,
            format!("nobody has the slots {}: locks in them, or all of them, are down", uncovered.join(", ")),
            "bring their master or a replica of it back, or: redis-cli --cluster fix",
        ))
    }

    fn check_failover(&self, told: Option<&HashMap<String, String>>) -> Check {
        const NAME: &str = "failover";
        let wanted = self.0.settings.min_replicas;
        let Some(told) = told else {
            return Check::unknown(
                NAME,
                "not told: this user may not use INFO",
                "look: redis-cli INFO replication",
            );
        };
        let online = told.iter().filter(|(key, value)| {
            let numbered = key.strip_prefix("slave").is_some_and(|at| at.parse::<u32>().is_ok());
            numbered && value.contains("state=online")
        });
        let online = u32::try_from(online.count()).unwrap_or(u32::MAX);
        let replicas = if online == 1 { "1 replica".to_owned() } else { format!("{online} replicas") };
        if online < wanted {
            return Check::failed(
                NAME,
                Code::FAILOVER,
                format!("{replicas} online, and min_replicas={wanted}: no lock is granted"),
                "bring its replicas back, or lower min_replicas= in the URL",
            );
        }
        match (online, wanted) {
            (0, _) => {
                Check::ok(NAME, "no replicas: nobody takes over with an older copy; locks are down with it")
            }
            (_, 0) => Check::warning(
                NAME,
                Code::FAILOVER,
                format!("{replicas}, asynchronous: a lock can be lost in a failover"),
                "add min_replicas=1 to the URL, which makes that rare; and check tokens: leasehold explain fencing",
            ),
            _ => Check::ok(
                NAME,
                format!(
                    "{replicas}; a lock counts once {wanted} have it, so a failover to one of these keeps it"
                ),
            ),
        }
    }

    /// Whether a master that is cut off, and replaced, stops granting to those who still reach it.
    async fn check_old_master(&self, node: &Node) -> Check {
        const NAME: &str = "old_master";
        let wanted = self.0.settings.min_replicas;
        if wanted > 0 {
            let says =
                format!("min_replicas={wanted}: what it grants after it was replaced counts for nobody");
            return Check::ok(NAME, says);
        }
        let fix = "CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag 10 on every server, or min_replicas=1 in the URL";
        match config(node, "min-replicas-to-write").await.as_deref() {
            None => Check::unknown(NAME, NOT_TOLD, "look: redis-cli CONFIG GET min-replicas-to-write"),
            Some("0") => {
                let says = "min-replicas-to-write is 0: a master that is cut off from all but some clients goes on granting \
                            to these after it was replaced";
                Check::warning(NAME, Code::FAILOVER, says, fix)
            }
            Some(count) => Check::ok(
                NAME,
                format!("min-replicas-to-write is {count}: one that is cut off soon grants nothing any more"),
            ),
        }
    }

    /// Whether the server tells of keys that are gone: tried out, since hardly anybody may read its settings.
    async fn check_events(&self) -> Check {
        const NAME: &str = "events";
        match self.hears_events().await {
            Ok(true) => Check::ok(NAME, "on: a lock that another client gives back is noticed at once"),
            Ok(false) => Check::ok(
                NAME,
                "off: a lock that another client gives back is noticed up to 1s later (notify-keyspace-events Kgx)",
            ),
            Err(fail) if fail.is("NOPERM") => Check::ok(
                NAME,
                "not allowed: a lock that another client gives back is noticed up to 1s later (&__keyspace@*__:*)",
            ),
            Err(fail) => Check::untold(NAME, &self.failed(Op::Check, None)(fail)),
        }
    }

    /// Takes a key as the simplest of clients would. One that somebody has is left to him.
    async fn set_and_delete(&self, key: &str) -> fail::Result<()> {
        let mut set = redis::cmd("SET");
        set.arg(key).arg("leasehold").arg("NX").arg("PX").arg(BARE_TTL);
        if self.servers().call(key, &set).await? == redis::Value::Nil {
            let message = format!("the key {key} is in use");
            return Err(Fail::new(StoreErrorKind::Unavailable, message).help("try again in ten seconds"));
        }
        self.servers().call(key, redis::cmd("DEL").arg(key)).await?;
        Ok(())
    }

    async fn hears_events(&self) -> fail::Result<bool> {
        let key = self.probe_keys()?.plain;
        let channel = channel_of(self.0.settings.database, &key);
        // They are told where the key is.
        let node = self.servers().node_of(&key).await?;
        let (_sink, mut events) = node.link.subscribe(&channel).await?;
        self.set_and_delete(&key).await?;
        let gone = async {
            while let Some(message) = events.next().await {
                if message.get_payload::<String>().is_ok_and(|event| crate::events::is_end(&event)) {
                    return true;
                }
            }
            false
        };
        Ok(tokio::time::timeout(EVENT, gone).await.unwrap_or(false))
    }
}

/// What this server is, if it answers.
/// Its role, and where it is.
async fn greet(node: &Node) -> fail::Result<(&'static str, String)> {
    let live = node.link.live().await?;
    match node.link.call_on(&live, &redis::cmd("PING")).await {
        // What is missing is told by the check of rights.
        Err(fail) if !fail.is("NOPERM") => return Err(fail),
        _ => {}
    }
    // A replica is refused when it is connected to.
    let role = match node.link.call_on(&live, &redis::cmd("ROLE")).await {
        Ok(_) => "primary",
        Err(_) => "role not told",
    };
    Ok((role, live.place().to_string()))
}

/// A section of what the server tells of itself; nothing where this user may not ask.
async fn info(node: &Node, section: &str) -> Option<HashMap<String, String>> {
    let told = text(node.link.call(redis::cmd("INFO").arg(section)).await.ok()?).ok()?;
    let pair = |line: &str| {
        let (key, value) = line.trim().split_once(':')?;
        Some((key.to_owned(), value.to_owned()))
    };
    Some(told.lines().filter_map(pair).collect())
}

/// A setting of the server; nothing where this user may not ask.
async fn config(node: &Node, setting: &str) -> Option<String> {
    let mut get = redis::cmd("CONFIG");
    get.arg("GET").arg(setting);
    Answer::new(node.link.call(&get).await.ok()?).ok()?.texts().ok()?.into_iter().nth(1)
}

/// A check that was made at one of several nodes says at which, if there is anything to be done.
trait At {
    fn at(self, node: &Node) -> Self;
}

impl At for Check {
    fn at(mut self, node: &Node) -> Self {
        if let Some(address) = node.address.as_ref().filter(|_| self.health != Health::Ok) {
            self.says = format!("{address}: {}", self.says);
        }
        self
    }
}

/// The one that says most against the whole.
fn worst(checks: Vec<Check>) -> Option<Check> {
    checks.into_iter().reduce(|worst, check| if check.health > worst.health { check } else { worst })
}

async fn check_eviction(node: &Node) -> Check {
    const NAME: &str = "eviction";
    let memory = info(node, "memory").await;
    let memory = memory.as_ref();
    let by_info = memory.and_then(|memory| memory.get("maxmemory_policy").cloned());
    let policy = match by_info {
        Some(policy) => policy,
        None => match config(node, "maxmemory-policy").await {
            Some(policy) => policy,
            None => return Check::unknown(NAME, NOT_TOLD, "look: redis-cli CONFIG GET maxmemory-policy"),
        },
    };
    if policy == "noeviction" {
        return Check::ok(NAME, "maxmemory-policy is noeviction: no lock is dropped for want of memory");
    }
    let unlimited = memory.and_then(|memory| memory.get("maxmemory")).is_some_and(|most| most == "0");
    let yet = if unlimited { " (not as long as maxmemory is 0)" } else { "" };
    Check::failed(
        NAME,
        Code::EVICTION,
        format!("maxmemory-policy is {policy}: Redis may drop a lock that is held{yet}"),
        "CONFIG SET maxmemory-policy noeviction   (or a server of its own for locks)",
    )
}

async fn check_persistence(node: &Node) -> Check {
    const NAME: &str = "persistence";
    let Some(saved) = info(node, "persistence").await else {
        return Check::unknown(NAME, NOT_TOLD, "look: redis-cli INFO persistence");
    };
    let is = |key: &str, value: &str| saved.get(key).is_some_and(|told| told == value);
    if is("aof_last_write_status", "err") || is("rdb_last_bgsave_status", "err") {
        let says = "the server cannot save its data, and may refuse to write for that";
        let fix = "its log says why: often a full disk, or a directory it may not write to";
        return Check::failed(NAME, Code::VOLATILE, says, fix);
    }
    let fix = "CONFIG SET appendonly yes   (and appendfsync always to lose nothing); tokens rise in any case";
    let aof = config(node, "appendfsync").await;
    match (is("aof_enabled", "1"), aof.as_deref()) {
        (true, Some("always")) => Check::ok(NAME, "AOF, synced with each command: a crash loses nothing"),
        (true, Some("everysec")) => Check::ok(
            NAME,
            "AOF, synced each second: a crash of the machine loses the locks of its last second",
        ),
        (true, Some(_)) => {
            let says =
                "AOF, synced when the system likes: a crash of the machine may lose locks of half a minute";
            Check::warning(NAME, Code::VOLATILE, says, "CONFIG SET appendfsync everysec   (or always)")
        }
        (true, None) => {
            Check::ok(NAME, "AOF is on: a crash loses what was not synced (appendfsync is not told)")
        }
        (false, _) => match config(node, "save").await.as_deref() {
            Some("") => {
                let says = "nothing is kept: after a restart all locks are free, and their holders hear of it \
                            with their next renewal";
                Check::warning(NAME, Code::VOLATILE, says, fix)
            }
            _ => {
                let says = "snapshots only: a crash loses all locks since the last, and their holders hear of it \
                            with their next renewal";
                Check::warning(NAME, Code::VOLATILE, says, fix)
            }
        },
    }
}

/// Whether a password can be read on its way.
fn check_cleartext(site: &Site, password: bool) -> Check {
    const NAME: &str = "cleartext";
    let stays_here = |place: &Place| match place {
        Place::Unix(_) => true,
        Place::Tcp { host, .. } => is_loopback(host),
    };
    match site {
        Site::Fixed(Place::Unix(_)) => Check::ok(NAME, "nothing goes over a network"),
        site if site.is_encrypted() => Check::ok(NAME, "TLS: nothing goes over the network in clear"),
        Site::Fixed(place) if stays_here(place) => Check::ok(NAME, "no TLS, and nothing leaves this machine"),
        // Where the servers are that they name is not for us to say.
        _ if password => Check::warning(
            NAME,
            Code::CLEARTEXT,
            "the password goes over the network in clear",
            "use TLS: rediss://, rediss+sentinel:// or rediss+cluster://",
        ),
        _ => Check::ok(NAME, "no TLS, and no password: whoever reaches the port may do anything"),
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_clear_is_told_where_others_can_listen() {
        let at = |host: &str, tls| Place::Tcp { host: host.to_owned(), port: 6379, tls };
        for (place, password, health) in [
            (at("cache-1", None), true, Health::Warning),
            (at("10.0.0.7", None), true, Health::Warning),
            (at("cache-1", None), false, Health::Ok),
            (at("cache-1", Some(None)), true, Health::Ok),
            (at("localhost", None), true, Health::Ok),
            (at("::1", None), true, Health::Ok),
            (Place::Unix("/run/redis.sock".into()), true, Health::Ok),
        ] {
            let check = check_cleartext(&Site::Fixed(place.clone()), password);
            assert_eq!((check.health, check.fix.is_some()), (health, health != Health::Ok), "{place:?}");
        }
    }
}
