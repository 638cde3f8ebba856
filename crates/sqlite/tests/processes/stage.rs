//! What the tests share: claims, and processes that are this test program again.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use leasehold_core::{
    Claim, ClaimId, Grant, LockName, Note, Owner, Share, Standing, State, Store, StoreUrl, Turn,
};
use leasehold_sqlite::SqliteStore;

/// Longer than anything takes that is not broken.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) fn url(path: &Path) -> StoreUrl {
    format!("sqlite:{}", path.display()).parse().unwrap()
}

pub(crate) fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(&url(path)).unwrap()
}

pub(crate) fn name(text: &str) -> LockName {
    LockName::parse(text).unwrap()
}

pub(crate) fn claim(text: &str, turn: Turn) -> Claim {
    Claim {
        name: name(text),
        id: ClaimId::random().unwrap(),
        owner: Owner { host: "h".into(), pid: std::process::id(), ..Owner::default() },
        share: Share::EXCLUSIVE,
        reshape: 0,
        turn,
        ttl: Duration::from_secs(30),
        note: Note::NONE,
        anchored: false,
        aftermath: leasehold_core::Aftermath::NONE,
        succeeds: None,
        tokens: 1,
        seen: None,
        proposed: None,
        not_after: None,
    }
}

pub(crate) fn granted(standing: &Standing) -> Grant {
    match &standing.state {
        State::Granted(grant) => *grant,
        other => panic!("not granted but {other:?}"),
    }
}

/// Claims, waits and claims again until it holds, as the engine does.
pub(crate) async fn acquire(store: &SqliteStore, claim: &Claim) -> Grant {
    let done = async {
        loop {
            let standing = store.claim(claim).await.unwrap();
            if let State::Granted(grant) = standing.state {
                return grant;
            }
            let refresh = Duration::from_millis(700);
            if let Ok(done) =
                tokio::time::timeout(refresh, store.changed(&claim.name, &standing.cursor)).await
            {
                done.unwrap();
            }
        }
    };
    tokio::time::timeout(LONG, done).await.expect("nobody held it for ever")
}

/// Does something to the file in another process: closing a second connection in this one is SQLite's business,
/// but so it is as it would be.
pub(crate) fn sql(path: &Path, text: &str) {
    let mut other = Player::start("sql", &[path.to_str().unwrap(), &text.replace('\n', "\t")]);
    assert_eq!(other.hear(), "done");
    other.ends_well();
}

/// A connection such as any other program has.
pub(crate) fn connection(path: &Path) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.busy_timeout(LONG).unwrap();
    connection
}

/// Another process: this test program, told to play a part.
pub(crate) struct Player {
    pub(crate) child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// Which part this process was told to play.
pub(crate) fn part() -> Option<(String, Vec<String>)> {
    let part = std::env::var("LEASEHOLD_TEST_PART").ok()?;
    let mut words = part.split('\n').map(str::to_owned);
    Some((words.next()?, words.collect()))
}

impl Player {
    /// Starts a `part`.
    pub(crate) fn start(part: &str, words: &[&str]) -> Self {
        Self::start_under(&[], part, words)
    }

    /// Starts it under another command.
    pub(crate) fn start_under(under: &[&str], part: &str, words: &[&str]) -> Self {
        let program = std::env::current_exe().unwrap();
        let program = program.to_str().unwrap();
        let mut line = under.to_vec();
        line.extend([program, "parts::player", "--exact", "--nocapture", "--test-threads=1", "--quiet"]);
        let mut child = Command::new(line[0])
            .args(&line[1..])
            .env("LEASEHOLD_TEST_PART", [&[part], words].concat().join("\n"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    /// What it says next, after the `> ` that tells it from the test program's own words.
    pub(crate) fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).unwrap();
            assert!(read > 0, "the other process ended");
            if let Some((_, said)) = line.trim_end().split_once("> ") {
                return said.to_owned();
            }
        }
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// kill -9.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn ends_well(mut self) {
        drop(self.input);
        assert!(self.child.wait().unwrap().success());
    }
}

/// Says something to whoever started this process.
pub(crate) fn say(text: &str) {
    println!("\n> {text}");
}

/// What whoever started this process says next; empty when it is gone.
pub(crate) fn listen() -> String {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}
