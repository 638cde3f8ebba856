//! The store of a place: an SQLite file of its own, and what may befall it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

/// As the table of checks calls it.
pub(crate) const NAME: &str = "sqlite";
/// How widely it locks.
pub(crate) const SCOPE: &str = "host";
/// What is said of it at a terminal.
pub(crate) const SHOWN: &str = "~/locks.db";
/// Flags for a `run` that is to be killed, so that its lease ends soon: here it ends with the process.
pub(crate) const SOON_FREE: &[&str] = &[];
/// A lease lives as long as the tree of its command, though `run` and guard are both killed.
pub(crate) const IS_ANCHORED: bool = true;
/// Clocks that differ are tried here in full.
pub(crate) const CLOCKS_ARE_CLOSER: bool = false;
/// Ages are told as they are.
pub(crate) const AGES_ARE_TOLD_TO: Duration = Duration::ZERO;
/// What is left of a lease is told to whoever looks.
pub(crate) const TELLS_WHAT_IS_LEFT: bool = true;
/// What a killed waiter costs the next at most, in milliseconds.
pub(crate) const DEAD_WAITER_COSTS: i64 = 2000;
/// A holder hears at once that its lease was taken away, before any renewal.
pub(crate) const HEARS_AT_ONCE: bool = false;
/// What is blocked can still be looked at.
pub(crate) const ANSWERS_WHILE_BLOCKED: bool = true;
/// The thread of a `run` that speaks to the store, if it is another than the engine's.
pub(crate) const THREAD: Option<&str> = Some("leasehold-sqlit");
/// What that thread does to give a lease back, in the words of strace: its first call, and the one after which it is done.
pub(crate) const RELEASE: [&str; 2] = ["pwrite64(", "F_UNLCK"];

pub(crate) struct Store {
    file: PathBuf,
}

impl Store {
    /// One that nobody has made yet.
    pub(crate) fn below(folder: &Path) -> Self {
        Self { file: folder.join("locks.db") }
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.file.display())
    }

    /// Another store, whose locks are others.
    pub(crate) fn other_url(&self) -> String {
        format!("sqlite:{}", self.file.with_file_name("other.db").display())
    }

    /// The same store in other words.
    pub(crate) fn same_url(&self) -> String {
        let link = self.file.with_file_name("link.db");
        std::os::unix::fs::symlink(&self.file, &link).unwrap();
        format!("sqlite:{}", link.display())
    }

    /// One that cannot be reached.
    pub(crate) fn absent_url(&self) -> String {
        format!("sqlite:{}", self.file.with_file_name("none").join("locks.db").display())
    }

    fn connect(&self) -> Connection {
        let connection = Connection::open(&self.file).unwrap();
        connection.busy_timeout(Duration::from_secs(10)).unwrap();
        connection
    }

    /// Nobody gets an answer that changes anything until this is dropped.
    pub(crate) fn block(&self) -> Blocked {
        let connection = self.connect();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        Blocked { _writer: connection }
    }

    /// Takes all leases away without asking their holders.
    pub(crate) fn take_away(&self) {
        self.connect().execute_batch("DELETE FROM member").unwrap();
    }

    /// The id of the claim that holds, in hex: whoever has it may release it.
    pub(crate) fn id(&self) -> String {
        let id: Vec<u8> = self.connect().query_row("SELECT id FROM member", [], |row| row.get(0)).unwrap();
        id.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What is on record of a name: kind and text.
    pub(crate) fn records(&self, name: &str) -> Vec<(String, String)> {
        let connection = self.connect();
        let mut records = connection.prepare("SELECT kind, text FROM record WHERE name = ?").unwrap();
        let rows = records.query_map([name], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }

    /// Quick answers to whether a process holds `demo`.
    pub(crate) fn holder(&self) -> Holder {
        let open = Connection::open_with_flags(&self.file, OpenFlags::SQLITE_OPEN_READ_ONLY);
        Holder(open.unwrap())
    }
}

pub(crate) struct Blocked {
    _writer: Connection,
}

pub(crate) struct Holder(Connection);

impl Holder {
    pub(crate) fn is(&mut self, pid: u32) -> bool {
        let mut members = self.0.prepare_cached("SELECT count(*) FROM member WHERE pid = ?").unwrap();
        members.query_row([pid], |row| row.get::<_, i64>(0)).unwrap() > 0
    }
}
