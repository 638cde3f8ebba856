//! A Redis server of a test's own: the harness's, with what tests of this crate ask it for.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_harness::servers::clock::{self, ToldClock};
use leasehold_harness::servers::redis::{self as servers, Redis};
use leasehold_harness::servers::sentinel::{Shape, Watched};
use leasehold_harness::servers::{self as harness, NoServer};
use rustix::process::Signal;

/// A server; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    running: harness::Server,
    clock: Option<ToldClock>,
    watched: Option<Beside>,
}

/// Who watch over a server: they name it, as long as nobody takes over.
#[derive(Debug)]
struct Beside {
    url: String,
    _others: Watched,
}

impl Server {
    /// Starts one without persistence, with these options besides.
    pub(crate) fn start(options: &[&str]) -> io::Result<Self> {
        Self::like(with(options))
    }

    /// Starts one whose clock a test tells.
    pub(crate) fn with_clock(options: &[&str]) -> io::Result<Self> {
        Self::like(told(with(options))?)
    }

    /// Starts one like this.
    pub(crate) fn like(redis: Redis) -> io::Result<Self> {
        let has_clock = redis.clock.is_some();
        let redis = Redis { program: redis.program.or(program()), ..redis };
        Self::of(redis.start().map_err(io::Error::other)?, has_clock, None)
    }

    /// Starts one like this with two replicas, and three sentinels that let nobody take over.
    pub(crate) fn watched(redis: Redis) -> io::Result<Self> {
        let has_clock = redis.clock.is_some();
        let shape = Shape { redis, down_after: Duration::from_secs(600), ..Shape::default() };
        let mut watched = Watched::start(&shape).map_err(io::Error::other)?;
        let url = watched.url("");
        let running = watched.servers.remove(0);
        Self::of(running, has_clock, Some(Beside { url, _others: watched }))
    }

    fn of(running: harness::Server, has_clock: bool, watched: Option<Beside>) -> io::Result<Self> {
        let clock = if has_clock { Some(ToldClock::of(&running)?) } else { None };
        Ok(Self { running, clock, watched })
    }

    /// What runs.
    pub(crate) fn running(&self) -> &harness::Server {
        &self.running
    }

    /// Its folder.
    pub(crate) fn home(&self) -> &Path {
        self.running.folder()
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        servers::socket(&self.running)
    }

    /// The URL of a store in it.
    pub(crate) fn url(&self) -> String {
        servers::socket_url(&self.running)
    }

    /// The same, found by sentinels.
    pub(crate) fn sentinel_url(&self) -> &str {
        &self.watched.as_ref().unwrap().url
    }

    /// A plain connection, as another program has one.
    pub(crate) fn connect(&self) -> redis::Connection {
        let url = format!("unix://{}", self.socket().display());
        redis::Client::open(url).unwrap().get_connection().unwrap()
    }

    /// Says what time it is, in microseconds since 1970.
    pub(crate) fn set_time(&self, micros: u64) {
        self.clock.as_ref().unwrap().set(micros).unwrap();
    }

    /// Moves its clock away from the machine's.
    pub(crate) fn step(&self, seconds: i64) {
        self.clock.as_ref().unwrap().step(seconds * 1_000_000_000).unwrap();
    }

    /// Signals it.
    pub(crate) fn signal(&self, signal: Signal) {
        self.running.signal(signal).unwrap();
    }

    /// Kills it, and starts it again in the same folder. It listens again then; it may still be loading its data.
    pub(crate) fn restart(&mut self) {
        self.running.start_again().unwrap();
        while UnixStream::connect(self.socket()).is_err() {
            assert!(self.running.runs(), "{}", self.running.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A server as most tests want it, with more lines of its configuration: `--name` and its values.
fn with(options: &[&str]) -> Redis {
    let mut lines: Vec<String> = Vec::new();
    for option in options {
        match (option.strip_prefix("--"), lines.last_mut()) {
            (Some(name), _) => lines.push(name.to_owned()),
            (None, Some(line)) => line.extend([" ", option]),
            (None, None) => panic!("{option} belongs to no option"),
        }
    }
    Redis { lines, ..Redis::default() }
}

/// The same, by a clock that a test tells.
pub(crate) fn told(redis: Redis) -> io::Result<Redis> {
    Ok(Redis { clock: Some(clock::library().map_err(io::Error::other)?), ..redis })
}

/// Whether there is a server to start; if not, why not.
pub(crate) fn missing() -> Option<String> {
    missing_program(program().unwrap_or("redis-server"))
}

/// Whether there is this one.
pub(crate) fn missing_program(tool: &'static str) -> Option<String> {
    if harness::find(tool).is_some() { None } else { Some(NoServer::Missing(tool).to_string()) }
}

/// The server under test where a test names none: another one, such as a valkey-server, if `LEASEHOLD_REDIS_SERVER`
/// names it.
fn program() -> Option<&'static str> {
    static TOLD: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    TOLD.get_or_init(|| std::env::var("LEASEHOLD_REDIS_SERVER").ok()).as_deref()
}
