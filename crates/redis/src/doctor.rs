//! What a Redis tells of itself: which it is, what it may drop, what it forgets, who may take over, who listens.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use leasehold_core::{Check, Code, Doctor, LockName, Op, Result, ServerTime, StoreErrorKind};

use crate::config::Place;
use crate::events::channel_of;
use crate::fail::{self, Fail};
use crate::members::Members;
use crate::script::{Answer, text};
use crate::store::RedisStore;

/// How long an event may take that tells of a key that is gone.
const EVENT: Duration = Duration::from_millis(500);
/// What is taken for a measurement ends by itself, if nobody gives it back.
const BARE_TTL: &str = "10000";

const NOT_TOLD: &str = "not told: this user may use neither INFO nor CONFIG";

#[async_trait]
impl Doctor for RedisStore {
    async fn greet(&self) -> Result<String> {
        let live = self.link().live().await.map_err(self.failed(Op::Check, None))?;
        match self.link().call_on(&live, &redis::cmd("PING")).await {
            // What is missing is told by the check of rights.
            Err(fail) if !fail.is("NOPERM") => return Err(self.failed(Op::Check, None)(fail)),
            _ => {}
        }
        let server = self.info("server").await.unwrap_or_default();
        let told = |key: &str| server.get(key).map(String::as_str);
        let what = match (told("valkey_version"), told("redis_version")) {
            (Some(version), _) => format!("Valkey {version}"),
            (None, Some(version)) => format!("Redis {version}"),
            (None, None) => "a Redis that does not tell its version".to_owned(),
        };
        // A replica is refused when it is connected to.
        let role = match self.link().call_on(&live, &redis::cmd("ROLE")).await {
            Ok(_) => "primary",
            Err(_) => "role not told",
        };
        let user = self.0.settings.user.as_deref().unwrap_or("default");
        let tls = match &self.0.settings.place {
            Place::Tcp { tls: Some(_), .. } => "TLS on",
            Place::Tcp { tls: None, .. } => "TLS off",
            Place::Unix(_) => "at a socket of this machine",
        };
        Ok(format!("{what}, {role}, {tls}, as user {user:?}"))
    }

    async fn ping(&self) -> Result<Option<ServerTime>> {
        let time = async {
            let mut time = Answer::new(self.link().call(&redis::cmd("TIME")).await?)?;
            Ok(ServerTime::from_micros(time.natural()? * 1_000_000 + time.natural()?))
        };
        let time: fail::Result<_> = time.await;
        time.map(Some).map_err(self.failed(Op::Check, None))
    }

    async fn checkup(&self) -> Vec<Check> {
        let (memory, saved) = (self.info("memory").await, self.info("persistence").await);
        let mut checks = vec![self.check_rights().await, self.check_eviction(memory.as_ref()).await];
        checks.push(self.check_persistence(saved.as_ref()).await);
        checks.push(self.check_failover(self.info("replication").await.as_ref()));
        checks.push(check_cleartext(&self.0.settings.place, self.0.settings.password.is_some()));
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
    /// A section of what the server tells of itself; nothing where this user may not ask.
    async fn info(&self, section: &str) -> Option<HashMap<String, String>> {
        let told = text(self.link().call(redis::cmd("INFO").arg(section)).await.ok()?).ok()?;
        let pair = |line: &str| {
            let (key, value) = line.trim().split_once(':')?;
            Some((key.to_owned(), value.to_owned()))
        };
        Some(told.lines().filter_map(pair).collect())
    }

    /// A setting of the server; nothing where this user may not ask.
    async fn config(&self, setting: &str) -> Option<String> {
        let mut get = redis::cmd("CONFIG");
        get.arg("GET").arg(setting);
        Answer::new(self.link().call(&get).await.ok()?).ok()?.texts().ok()?.into_iter().nth(1)
    }

    async fn check_eviction(&self, memory: Option<&HashMap<String, String>>) -> Check {
        const NAME: &str = "eviction";
        let by_info = memory.and_then(|memory| memory.get("maxmemory_policy").cloned());
        let policy = match by_info {
            Some(policy) => policy,
            None => match self.config("maxmemory-policy").await {
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

    async fn check_persistence(&self, saved: Option<&HashMap<String, String>>) -> Check {
        const NAME: &str = "persistence";
        let Some(saved) = saved else {
            return Check::unknown(NAME, NOT_TOLD, "look: redis-cli INFO persistence");
        };
        let is = |key: &str, value: &str| saved.get(key).is_some_and(|told| told == value);
        if is("aof_last_write_status", "err") || is("rdb_last_bgsave_status", "err") {
            let says = "the server cannot save its data, and may refuse to write for that";
            let fix = "its log says why: often a full disk, or a directory it may not write to";
            return Check::failed(NAME, Code::VOLATILE, says, fix);
        }
        let fix =
            "CONFIG SET appendonly yes   (and appendfsync always to lose nothing); tokens rise in any case";
        let aof = self.config("appendfsync").await;
        match (is("aof_enabled", "1"), aof.as_deref()) {
            (true, Some("always")) => Check::ok(NAME, "AOF, synced with each command: a crash loses nothing"),
            (true, Some("everysec")) => Check::ok(
                NAME,
                "AOF, synced each second: a crash of the machine loses the locks of its last second",
            ),
            (true, Some(_)) => {
                let says = "AOF, synced when the system likes: a crash of the machine may lose locks of half a minute";
                Check::warning(NAME, Code::VOLATILE, says, "CONFIG SET appendfsync everysec   (or always)")
            }
            (true, None) => {
                Check::ok(NAME, "AOF is on: a crash loses what was not synced (appendfsync is not told)")
            }
            (false, _) => match self.config("save").await.as_deref() {
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
        if self.link().call(&set).await? == redis::Value::Nil {
            let message = format!("the key {key} is in use");
            return Err(Fail::new(StoreErrorKind::Unavailable, message).help("try again in ten seconds"));
        }
        self.link().call(redis::cmd("DEL").arg(key)).await?;
        Ok(())
    }

    async fn hears_events(&self) -> fail::Result<bool> {
        let key = self.probe_keys()?.plain;
        let channel = channel_of(self.0.settings.database, &key);
        let (_sink, mut events) = self.link().subscribe(&channel).await?;
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

/// Whether a password can be read on its way.
fn check_cleartext(place: &Place, password: bool) -> Check {
    const NAME: &str = "cleartext";
    match place {
        Place::Unix(_) => Check::ok(NAME, "nothing goes over a network"),
        Place::Tcp { tls: Some(_), .. } => Check::ok(NAME, "TLS: nothing goes over the network in clear"),
        Place::Tcp { host, tls: None, .. } if is_loopback(host) => {
            Check::ok(NAME, "no TLS, and nothing leaves this machine")
        }
        Place::Tcp { tls: None, .. } if password => Check::warning(
            NAME,
            Code::CLEARTEXT,
            "the password goes over the network in clear",
            "use TLS: rediss://",
        ),
        Place::Tcp { tls: None, .. } => {
            Check::ok(NAME, "no TLS, and no password: whoever reaches the port may do anything")
        }
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use leasehold_core::Health;

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
            let check = check_cleartext(&place, password);
            assert_eq!((check.health, check.fix.is_some()), (health, health != Health::Ok), "{place:?}");
        }
    }
}
