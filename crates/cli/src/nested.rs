//! A lock that a `run` around this process holds already: proved by asking that `run`, and used instead of waited
//! for.
//!
//! `LEASE_CHAIN` only says whom to ask. What counts is the answer, and it is yes only to a descendant of the
//! `run` that is asked: the variable itself may have leaked anywhere, to another session, a daemon, a host.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use leasehold::config::{Config, StoreChoice};
use leasehold::{Code, LockName, Scheme, StoreUrl};
use serde_json::{Value, json};

use crate::ask::{self, Question};
use crate::exit;
use crate::failure::Failure;
use crate::human::harmless;
use crate::plan::Plan;

/// The variable; only its holder reads it.
pub(crate) const VARIABLE: &str = "LEASE_CHAIN";
const VERSION: &str = "v1";
/// Where a Redis is, and what stands before its names, if the URL does not say.
const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
const REDIS_PREFIX: &str = "lock:";
/// Where an etcd is, if the URL does not say.
const ETCD_PORT: u16 = 2379;
/// And under what its locks are then.
const ETCD_PREFIX: &str = "lock";
/// The same of a ZooKeeper.
const ZOOKEEPER_PORT: u16 = 2181;
const ZOOKEEPER_ROOT: &str = "leasehold";
/// More `run`s inside each other than make sense.
const MOST_LINKS: usize = 16;

/// A `run` around this process, as `LEASE_CHAIN` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Link {
    token: u64,
    path: PathBuf,
}

/// A lease that a `run` around this process holds, by its own word.
#[derive(Debug)]
pub(crate) struct Around {
    name: LockName,
    path: PathBuf,
    answer: Value,
}

/// The `run` around this process that holds what the plan asks for, if there is one.
pub(crate) async fn around(plan: &Plan, config: &Config) -> Option<Around> {
    let text = std::env::var(VARIABLE).ok()?;
    let full = plan.name.clone().within(&config.namespace().value).ok()?;
    let store = place(&plan.store);
    for Link { token, path } in parse(&text).into_iter().rev() {
        let details = json!({"name": full.as_str(), "store": store, "token": token});
        let holds = Question { line: "POST /holds", details: Some(&details) };
        // One that is silent, gone, or says no counts for nothing.
        if let Ok(answer) = ask::ask(&path, holds, ask::SOON).await
            && answer["yes"] == true
        {
            return Some(Around { name: plan.name.clone(), path, answer });
        }
    }
    None
}

impl Around {
    /// That it cannot be had a second time.
    pub(crate) fn refuse(&self, why: &str) -> Failure {
        let message = format!("{} is held by a run around this one: {why}", self.name);
        Failure::new(Code::NESTED, exit::TEMPFAIL, message)
            .row("holder", self.who())
            .hint("use another name for what the inner part protects")
    }

    pub(crate) fn who(&self) -> String {
        let answer = &self.answer;
        harmless(&format!("{}, token {}", answer["holder"].as_str().unwrap_or("?"), answer["token"]))
    }

    /// Becomes the command: its signals, its terminal and its end are those of the `run` around us, which stops
    /// it with its own command if the lease is lost. Returns only if that fails.
    pub(crate) fn become_command(&self, words: &[OsString]) -> io::Error {
        let Some((program, arguments)) = words.split_first() else { return io::ErrorKind::NotFound.into() };
        let answer = &self.answer;
        let text = |key: &str| match &answer[key] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Command::new(program)
            .args(arguments)
            .env("LEASE_NAME", self.name.as_str())
            .env("LEASE_TOKEN", text("token"))
            .env("LEASE_HOLDER", text("holder"))
            .env("LEASE_TTL_MS", text("ttl_ms"))
            .env("LEASE_SOCK", &self.path)
            .exec()
    }
}

/// A store by what it is, however it was written: two paths to one file are one.
pub(crate) fn place(choice: &StoreChoice) -> String {
    place_of(&choice.url).unwrap_or_else(|| choice.to_string())
}

/// One server by what it locks with: address, database and prefix, whoever asks it and how. `None` for what is only
/// known by its URL.
fn place_of(url: &StoreUrl) -> Option<String> {
    // Destructured in full: a new part of a URL may make another store of it.
    let StoreUrl { scheme, user: _, password: _, hosts, path, options } = url;
    let socket = *scheme == Scheme::RedisUnix;
    let quorum = matches!(scheme, Scheme::RedlockRedis | Scheme::RedlockRediss);
    let cluster = matches!(scheme, Scheme::RedisCluster | Scheme::RedissCluster);
    let watched = matches!(scheme, Scheme::RedisSentinel | Scheme::RedissSentinel);
    // However they are ordered.
    let members = |kind: &str, port: u16, usual: &str| {
        let mut all: Vec<_> =
            hosts.iter().map(|at| format!("{}:{}", at.host, at.port.unwrap_or(port))).collect();
        all.sort_unstable();
        let below = Some(path.trim_matches('/')).filter(|path| !path.is_empty()).unwrap_or(usual);
        format!("{kind}:{}/{below}", all.join(","))
    };
    match scheme {
        Scheme::Sqlite => {
            let path = std::fs::canonicalize(path).ok()?;
            return Some(format!("sqlite:{}", path.display()));
        }
        Scheme::Etcd | Scheme::Etcds => return Some(members("etcd", ETCD_PORT, ETCD_PREFIX)),
        Scheme::Zookeeper | Scheme::Zookeepers => {
            return Some(members("zookeeper", ZOOKEEPER_PORT, ZOOKEEPER_ROOT));
        }
        Scheme::Redis
        | Scheme::Rediss
        | Scheme::RedisUnix
        | Scheme::RedlockRedis
        | Scheme::RedlockRediss
        | Scheme::RedisCluster
        | Scheme::RedissCluster
        | Scheme::RedisSentinel
        | Scheme::RedissSentinel
        | Scheme::Valkey
        | Scheme::Valkeys
        | Scheme::Tair
        | Scheme::Tairs => {}
        _ => return None,
    }
    // Sentinels call a server by a name.
    let (master, path) =
        if watched { path.split_once('/').unwrap_or((path, "")) } else { ("", path.as_str()) };
    let database = || if path.is_empty() { Some(0) } else { path.parse::<u16>().ok() };
    let named = |host: &str, port: Option<u16>| format!("{host}:{}", port.unwrap_or(REDIS_PORT));
    let (server, database) = match &hosts[..] {
        // However they are ordered: each has one vote, or knows all others.
        all if quorum || cluster => {
            let mut all: Vec<_> = all.iter().map(|at| named(&at.host, at.port)).collect();
            all.sort_unstable();
            (all.join(","), database()?)
        }
        all if watched => {
            let named = |host: &str, port: Option<u16>| format!("{host}:{}", port.unwrap_or(SENTINEL_PORT));
            let mut all: Vec<_> = all.iter().map(|at| named(&at.host, at.port)).collect();
            all.sort_unstable();
            (format!("{} {master}", all.join(",")), database()?)
        }
        [] if socket => (std::fs::canonicalize(path).ok()?.display().to_string(), 0),
        [at] => (named(&at.host, at.port), database()?),
        _ => return None,
    };
    let prefix = options.get("prefix").map_or(REDIS_PREFIX, String::as_str);
    Some(format!("redis {server} {database} {prefix}"))
}

/// The chain for what is started under one more lease.
pub(crate) fn longer(chain: Option<&str>, token: u64, path: &Path) -> Option<String> {
    let path = path.to_str().filter(|path| !path.contains(';'))?;
    let mut links = parse(chain.unwrap_or(""));
    let first = links.len().saturating_sub(MOST_LINKS - 1);
    links.drain(..first);
    let mut text = VERSION.to_owned();
    for Link { token, path } in &links {
        text.push_str(&format!(";{token}@{}", path.display()));
    }
    text.push_str(&format!(";{token}@{path}"));
    Some(text)
}

/// Its links, the outermost first; none if it is not of this version.
fn parse(text: &str) -> Vec<Link> {
    let mut parts = text.split(';');
    if parts.next() != Some(VERSION) {
        return Vec::new();
    }
    let link = |text: &str| {
        let (token, path) = text.split_once('@')?;
        let path = PathBuf::from(path);
        Some(Link { token: token.parse().ok()?, path: path.is_absolute().then_some(path)? })
    };
    let links: Vec<_> = parts.filter_map(link).collect();
    links.into_iter().rev().take(MOST_LINKS).rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_one_store_in_whatever_words() {
        let place = |text: &str| place_of(&text.parse().unwrap());
        let plain = place("redis://cache");
        assert!(plain.is_some());
        for same in [
            "redis://cache:6379/0",
            "valkey://me:pw@cache?timeout=2s",
            "rediss://cache:6379?prefix=lock:&min_replicas=1",
        ] {
            assert_eq!(place(same), plain, "{same}");
        }
        for other in ["redis://cache:6380", "redis://cache/1", "redis://other", "redis://cache?prefix=app:"] {
            assert_ne!(place(other), plain, "{other}");
        }
        assert_eq!(place("memory:"), None);
        let etcd = place("etcd://a,b,c:2379/app");
        assert_eq!(place("etcds://c,b,a/app/?ca=/x"), etcd);
        assert!(etcd.is_some() && place("etcd://a,b,c") != etcd);
        assert_eq!(place("etcd://a/lock?timeout=2s"), place("etcd://a"));
        assert_eq!(place("zookeeper://b,a:2181/leasehold"), place("zookeeper://a,b"));
        let quorum = place("redlock+redis://a,b,c?node_timeout=1s");
        assert_eq!(place("redlock+rediss://c:6379,a,b/0"), quorum);
        assert!(quorum.is_some() && place("redlock+redis://a,b,d") != quorum);
        let cluster = place("redis+cluster://a,b?timeout=1s");
        assert_eq!(place("rediss+cluster://b:6379,a/0"), cluster);
        assert!(cluster.is_some() && place("redis+cluster://a,c") != cluster);
        let watched = place("redis+sentinel://a,b/main?min_replicas=1");
        assert_eq!(place("rediss+sentinel://b:26379,a/main/0"), watched);
        for other in
            ["redis+sentinel://a,b/other", "redis+sentinel://a,b/main/1", "redis+sentinel://a,c/main"]
        {
            assert!(place(other).is_some() && place(other) != watched, "{other}");
        }
    }

    #[test]
    fn a_chain_grows_and_reads_back_and_nothing_else_does() {
        let one = longer(None, 7, Path::new("/run/a.sock")).unwrap();
        let two = longer(Some(&one), 9, Path::new("/run/b@c.sock")).unwrap();
        let link = |token, path: &str| Link { token, path: path.into() };
        assert_eq!(parse(&two), [link(7, "/run/a.sock"), link(9, "/run/b@c.sock")]);
        for wrong in ["", "v2;7@/a", "v1;x@/a", "v1;7@relative", "v1;7", "7@/a"] {
            assert_eq!(parse(wrong), [], "{wrong}");
        }
        assert_eq!(longer(None, 7, Path::new("/run/a;b")), None);
        let many = (1..100)
            .fold(String::new(), |chain, token| longer(Some(&chain), token, Path::new("/a")).unwrap());
        assert_eq!(parse(&many).len(), MOST_LINKS);
        assert_eq!(parse(&many).last().unwrap().token, 99);
    }
}
