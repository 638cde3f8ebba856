//! The store of a place: an etcd of its own, and what may befall it.

use std::io::Write as _;
use std::path::Path;
use std::sync::OnceLock;

use leasehold_harness::servers::etcd::{Etcd, keys, remove};
use leasehold_harness::servers::{NoServer, Server};
use rustix::process::Signal;

/// As the table of checks calls it.
pub(crate) const NAME: &str = "etcd";
/// How widely it locks.
pub(crate) const SCOPE: &str = "fleet";
/// What is said of it at a terminal.
pub(crate) const SHOWN: &str = "etcd://127.0.0.1:";
/// Flags for a `run` that is to be killed, so that its lease ends soon: a server does not see that a process ends.
pub(crate) const SOON_FREE: &[&str] = &["--ttl", "2s"];
/// Nobody but `run` and guard keeps a lease, and when both are killed it ends with its ttl.
pub(crate) const IS_ANCHORED: bool = false;
/// Clocks that differ are tried in full on SQLite, and here in a proof.
pub(crate) const CLOCKS_ARE_CLOSER: bool = true;
/// Ages are told in whole seconds, since those are what leases are made of.
pub(crate) const AGES_ARE_TOLD_TO: std::time::Duration = std::time::Duration::from_secs(1);
/// What is left of a lease is told to whoever looks.
pub(crate) const TELLS_WHAT_IS_LEFT: bool = true;
/// What a killed waiter costs the next at most, in milliseconds: etcd looks for leases that have ended twice a second.
pub(crate) const DEAD_WAITER_COSTS: i64 = 3000;
/// A holder hears at once that its lease was taken away, before any renewal.
pub(crate) const HEARS_AT_ONCE: bool = true;
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

    pub(crate) fn server(&self) -> &Server {
        self.server.get_or_init(start)
    }

    pub(crate) fn url(&self) -> String {
        format!("etcd://{}", self.server().address())
    }

    /// Another store, whose locks are others.
    pub(crate) fn other_url(&self) -> String {
        format!("{}/other", self.url())
    }

    /// The same store in other words.
    pub(crate) fn same_url(&self) -> String {
        format!("{}/lock?timeout=2s", self.url())
    }

    /// One that cannot be reached: nobody listens on this port of the loopback device.
    #[expect(clippy::unused_self, reason = "a file that is not there lies beside one that is")]
    pub(crate) fn absent_url(&self) -> String {
        "etcd://127.0.0.1:1".to_owned()
    }

    /// Nobody gets an answer until this is dropped: the server has stopped, and its connections stand.
    pub(crate) fn block(&self) -> Blocked<'_> {
        self.server().signal(Signal::STOP).unwrap();
        Blocked(self)
    }

    /// Takes all leases away without asking their holders.
    pub(crate) fn take_away(&self) {
        let line = self.line();
        assert!(!line.is_empty(), "nobody holds anything");
        for (key, _) in line {
            remove(self.server(), &key).unwrap();
        }
    }

    /// The id of the claim that holds, in hex: whoever has it may release it.
    pub(crate) fn id(&self) -> String {
        let line = self.line();
        let (_, value) = line.iter().find(|(key, _)| key.starts_with("lock/demo/")).unwrap();
        let id = value.split(' ').nth(1).unwrap();
        assert_eq!(id.len(), 32, "{value:?}");
        id.to_owned()
    }

    /// What is on record of a name: kind and text.
    pub(crate) fn records(&self, name: &str) -> Vec<(String, String)> {
        let below = format!("lock/~record/{name}/");
        let all = keys(self.server()).unwrap();
        let of_name = all.iter().filter(|(key, _)| key.starts_with(&below));
        // Layout, kind, name, by whom, text.
        let words = of_name.map(|(_, value)| value.split(' ').map(unescaped).collect::<Vec<_>>());
        words.map(|words| (words[1].clone(), words[4].clone())).collect()
    }

    /// Quick answers to whether a process holds `demo`.
    pub(crate) fn holder(&self) -> Holder<'_> {
        Holder(self)
    }

    /// The keys of all lines.
    fn line(&self) -> Vec<(String, String)> {
        let all = keys(self.server()).unwrap().into_iter();
        all.filter(|(key, _)| key.starts_with("lock/") && !key.starts_with("lock/~")).collect()
    }
}

/// Percent and two digits stand for a byte.
fn unescaped(word: &str) -> String {
    let mut parts = word.split('%');
    let mut bytes = parts.next().unwrap().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
        bytes.extend(part[2..].bytes());
    }
    String::from_utf8(bytes).unwrap()
}

fn start() -> Server {
    match Etcd::default().start() {
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
        let line = self.0.line();
        let demo = line.iter().filter(|(key, _)| key.starts_with("lock/demo/"));
        // Layout, id, tenure, two of the share, ttl, held, renewals, pid.
        demo.map(|(_, value)| value.split(' ').collect::<Vec<_>>()).any(|words| {
            words.get(2).is_some_and(|tenure| *tenure != "0") && words.get(8) == Some(&&*pid.to_string())
        })
    }
}
