//! The store of a place: a Redis server of its own, and what may befall it.

use std::io::Write as _;
use std::path::Path;
use std::sync::OnceLock;

use leasehold_harness::servers::redis::{Redis, ask};
use leasehold_harness::servers::{NoServer, Server};
use rustix::process::Signal;

/// As the table of checks calls it.
pub(crate) const NAME: &str = "redis";
/// How widely it locks.
pub(crate) const SCOPE: &str = "fleet";
/// What is said of it at a terminal.
pub(crate) const SHOWN: &str = "redis://127.0.0.1:";
/// Flags for a `run` that is to be killed, so that its lease ends soon: a server does not see that a process ends.
pub(crate) const SOON_FREE: &[&str] = &["--ttl", "2s"];
/// Nobody but `run` and guard keeps a lease, and when both are killed it ends with its ttl.
pub(crate) const IS_ANCHORED: bool = false;
/// Clocks that differ are tried in full on SQLite, and here in a proof.
pub(crate) const CLOCKS_ARE_CLOSER: bool = true;
/// Ages are told as they are.
pub(crate) const AGES_ARE_TOLD_TO: std::time::Duration = std::time::Duration::ZERO;
/// What is left of a lease is told to whoever looks.
pub(crate) const TELLS_WHAT_IS_LEFT: bool = true;
/// What a killed waiter costs the next at most, in milliseconds.
pub(crate) const DEAD_WAITER_COSTS: i64 = 2000;
/// A holder hears at once that its lease was taken away, before any renewal.
pub(crate) const HEARS_AT_ONCE: bool = false;
/// What is blocked can still be looked at.
pub(crate) const ANSWERS_WHILE_BLOCKED: bool = false;
/// The thread of a `run` that speaks to the store, if it is another than the engine's.
pub(crate) const THREAD: Option<&str> = None;
/// What that thread does to give a lease back, in the words of strace: its first call, and the one after which it is done.
pub(crate) const RELEASE: [&str; 2] = ["writev(", "recvfrom("];

pub(crate) struct Store {
    server: OnceLock<Server>,
}

impl Store {
    /// One that nobody has started yet.
    pub(crate) fn below(_folder: &Path) -> Self {
        Self { server: OnceLock::new() }
    }

    /// One that is to be like this.
    pub(crate) fn like(redis: Redis) -> Self {
        Self { server: OnceLock::from(start(redis)) }
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.get_or_init(|| start(Redis::default()))
    }

    /// What it answers to words of its own.
    pub(crate) fn ask(&self, words: &[&str]) -> String {
        ask(self.server(), words).unwrap()
    }

    /// Kills it, and starts it again without its data.
    pub(crate) fn restart(&mut self) {
        self.server();
        self.server.get_mut().unwrap().go_on().unwrap();
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.server().address())
    }

    /// Another store, whose locks are others.
    pub(crate) fn other_url(&self) -> String {
        format!("{}/1", self.url())
    }

    /// The same store in other words.
    pub(crate) fn same_url(&self) -> String {
        format!("valkey://{}/0?timeout=2s&prefix=lock:", self.server().address())
    }

    /// One that cannot be reached: nobody listens on this port of the loopback device.
    #[expect(clippy::unused_self, reason = "a file that is not there lies beside one that is")]
    pub(crate) fn absent_url(&self) -> String {
        "redis://127.0.0.1:1".to_owned()
    }

    /// Nobody gets an answer until this is dropped: the server has stopped, and its connections stand.
    pub(crate) fn block(&self) -> Blocked<'_> {
        self.server().signal(Signal::STOP).unwrap();
        Blocked(self)
    }

    /// Takes all leases away without asking their holders.
    pub(crate) fn take_away(&self) {
        let answer = self.ask(&["EVAL", TAKE_AWAY, "0"]);
        assert!(answer.starts_with(':') && answer != ":0\r\n", "{answer}");
    }

    /// The id of the claim that holds, in hex: whoever has it may release it.
    pub(crate) fn id(&self) -> String {
        let value = self.ask(&["GET", "lock:demo"]);
        let id = value.split_once("\r\n").unwrap().1.split('|').next().unwrap();
        assert_eq!(id.len(), 32, "{value:?}");
        id.to_owned()
    }

    /// What is on record of a name: kind and text.
    pub(crate) fn records(&self, name: &str) -> Vec<(String, String)> {
        let all =
            self.ask(&["EVAL", "return table.concat(redis.call('HVALS', KEYS[1]), '\\n')", "1", RECORDS]);
        // When, kind, name, by whom, text.
        let parts = all.lines().map(|line| line.split('\u{1f}').collect::<Vec<_>>());
        let of_name = parts.filter(|parts| parts.get(2) == Some(&name));
        of_name.map(|parts| (parts[1].to_owned(), parts[4].to_owned())).collect()
    }

    /// Quick answers to whether a process holds `demo`.
    pub(crate) fn holder(&self) -> Holder<'_> {
        Holder(self)
    }
}

const RECORDS: &str = "leasehold:{records}:all";
/// All plain keys of leases.
const TAKE_AWAY: &str = "local keys = redis.call('KEYS', 'lock:*') if #keys == 0 then return 0 end return redis.call('DEL', unpack(keys))";

fn start(redis: Redis) -> Server {
    match redis.start() {
        Ok(server) => server,
        Err(NoServer::Missing(tool)) => {
            // No test here can do anything without one, in the middle of whatever it is. Not by a macro: what these
            // print is kept back until a test ends.
            let _ = writeln!(std::io::stderr(), "skipped: there is no {tool} here");
            std::process::exit(0)
        }
        Err(error) => panic!("{error}"),
    }
}

pub(crate) struct Blocked<'a>(&'a Store);

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        let _ = self.0.server().signal(Signal::CONT);
    }
}

pub(crate) struct Holder<'a>(&'a Store);

impl Holder<'_> {
    pub(crate) fn is(&mut self, pid: u32) -> bool {
        self.0.ask(&["GET", "lock:demo"]).contains(&format!("/{pid}/"))
    }
}
