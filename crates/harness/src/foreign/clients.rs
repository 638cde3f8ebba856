//! The clients of other people that lock what we lock: which there are, and how each is started.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::ground::Ground;
use crate::puppet::Trouble;
use crate::servers::find;

/// How long one may take to start, or to end after its time.
const PATIENCE: Duration = Duration::from_secs(60);
/// Below the target folder, where `cargo xtask test servers` puts them.
const INSTALLED: &str = "servers/clients";
/// Beside what is installed: what was asked for.
const STAMP: &str = "installed";

/// What Debian's package `libcurator-recipes-java` brings; it names all others that it needs.
const CURATOR: &str = "/usr/share/java/curator-recipes.jar";

/// In which language one is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tongue {
    Java,
    Node,
    Python,
    Rust,
}

/// A client of other people, and the program that contends with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Foreign {
    /// What it calls itself.
    pub name: &'static str,
    tongue: Tongue,
    script: &'static str,
    /// The servers on which it locks.
    pub grounds: &'static [Ground],
    /// A variable that chooses among what the script can do.
    choice: Option<(&'static str, &'static str)>,
}

impl Foreign {
    const fn new(name: &'static str, tongue: Tongue, script: &'static str) -> Self {
        Self { name, tongue, script, grounds: &[Ground::Redis], choice: None }
    }

    const fn with(self, variable: &'static str, value: &'static str) -> Self {
        Self { choice: Some((variable, value)), ..self }
    }

    const fn on(self, grounds: &'static [Ground]) -> Self {
        Self { grounds, ..self }
    }
}

const REDIS_AND_QUORUMS: &[Ground] = &[Ground::Redis, Ground::Quorum];
const ZOOKEEPER: &[Ground] = &[Ground::ZooKeeper];
const ETCD: &[Ground] = &[Ground::Etcd, Ground::NewerEtcd];

/// All that share keys with us.
pub const FOREIGN: &[Foreign] = &[
    Foreign::new("redis-py", Tongue::Python, "redis_py.py"),
    Foreign::new("redis-py-asyncio", Tongue::Python, "redis_py_asyncio.py"),
    Foreign::new("python-redis-lock", Tongue::Python, "python_redis_lock.py"),
    Foreign::new("redlock-4", Tongue::Node, "redlock.js").with("REDLOCK", "4").on(REDIS_AND_QUORUMS),
    Foreign::new("redlock-5", Tongue::Node, "redlock.js").with("REDLOCK", "5").on(REDIS_AND_QUORUMS),
    Foreign::new("rslock", Tongue::Rust, "with_rslock").on(REDIS_AND_QUORUMS),
    Foreign::new("five-lines", Tongue::Python, "five_lines.py"),
    Foreign::new("kazoo", Tongue::Python, "with_kazoo.py").on(ZOOKEEPER),
    Foreign::new("curator", Tongue::Java, "WithCurator").on(ZOOKEEPER),
    Foreign::new("zookeeper-client", Tongue::Rust, "with_zookeeper_client").on(ZOOKEEPER),
    Foreign::new("etcdctl-lock", Tongue::Python, "etcdctl_lock.py").on(ETCD),
];

/// Its lock runs out in the middle of its work: whoever judges must notice.
pub const EXPIRES: Foreign =
    Foreign::new("five-lines-expires", Tongue::Python, "broken_lines.py").with("BREAK", "expires");
/// It deletes the key without looking whose it is: whoever judges must notice.
pub const DELETES: Foreign =
    Foreign::new("five-lines-deletes", Tongue::Python, "broken_lines.py").with("BREAK", "deletes");

/// Why one cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum NoClient {
    /// It is not on this machine: a test that needs it is skipped, and says so.
    #[error("there is no {0} here: `cargo xtask test servers` gets it")]
    Missing(&'static str),
    /// It is there, and does not work.
    #[error("{0}: {1}")]
    Broken(&'static str, Trouble),
}

/// What it is to do with the key.
#[derive(Debug, Clone, Copy)]
pub enum Order<'a> {
    /// Contend for it so long, and stay in the section of this journal so long each time.
    Contend(Duration, &'a Path, Duration),
    /// Hold it until it is told.
    Hold,
}

/// What it says when it is ready.
#[derive(Debug, Deserialize)]
struct Ready {
    client: String,
    version: String,
}

/// What it says at the end.
#[derive(Debug, Deserialize)]
struct Ended {
    acquired: u64,
}

/// One that runs, and waits for the word. It is killed when this is dropped.
#[derive(Debug)]
pub struct Running {
    name: &'static str,
    /// Which version it says it is.
    pub version: String,
    child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Foreign {
    /// Starts it, and returns once it is ready; if it is to hold the key, it does now.
    ///
    /// # Errors
    ///
    /// When it is not here, or is not ready in time.
    pub async fn start(&self, url: &str, key: &str, order: Order<'_>) -> Result<Running, NoClient> {
        let mut command = self.command()?;
        match order {
            Order::Contend(lasting, journal, hold) => command
                .args(["contend", url, key, &lasting.as_secs_f64().to_string()])
                .arg(journal)
                .arg(hold.as_millis().to_string()),
            Order::Hold => command.args(["hold", url, key]),
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        self.spawn(command).await.map_err(|trouble| NoClient::Broken(self.name, trouble))
    }

    async fn spawn(&self, mut command: Command) -> Result<Running, Trouble> {
        let mut child = command.spawn()?;
        let stdin = child.stdin.take().ok_or("no standard input")?;
        let mut stdout = BufReader::new(child.stdout.take().ok_or("no standard output")?).lines();
        let Ready { client, version } = hear(&mut stdout, PATIENCE).await?;
        if client != self.name {
            return Err(format!("it says it is {client}").into());
        }
        Ok(Running { name: self.name, version, child, stdin, stdout })
    }

    /// Its program, with all that it needs around it.
    fn command(&self) -> Result<Command, NoClient> {
        let missing = || NoClient::Missing(self.name);
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("foreign");
        let mut command = match self.tongue {
            Tongue::Java => {
                let mut command = Command::new(find("java").ok_or_else(missing)?);
                let compiled = installed("java", &scripts.join("java/WithCurator.java"));
                let recipes = Path::new(CURATOR).is_file().then_some(CURATOR).ok_or_else(missing)?;
                let classes = format!("{}:{recipes}", compiled.ok_or_else(missing)?.display());
                command.args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
                command.args(["-cp", &classes, self.script]);
                command
            }
            Tongue::Python => {
                let mut command = Command::new(find("python3").ok_or_else(missing)?);
                let packages = installed("python", &scripts.join("python/requirements.txt"));
                command.env("PYTHONPATH", packages.ok_or_else(missing)?);
                // The sources are not the place for what Python remembers of them.
                command.env("PYTHONDONTWRITEBYTECODE", "1");
                if self.grounds == ETCD {
                    command.env("ETCDCTL", find("etcdctl").ok_or_else(missing)?);
                }
                command.arg(scripts.join("python").join(self.script));
                command
            }
            Tongue::Node => {
                let mut command = Command::new(find("node").ok_or_else(missing)?);
                let packages = installed("node", &scripts.join("node/package-lock.json"));
                command.env("NODE_PATH", packages.ok_or_else(missing)?.join("node_modules"));
                command.arg(scripts.join("node").join(self.script));
                command
            }
            Tongue::Rust => Command::new(program(self.script).ok_or_else(missing)?),
        };
        if let Some((variable, value)) = self.choice {
            command.env(variable, value);
        }
        Ok(command)
    }
}

impl Running {
    /// Gives the word, and returns how often it had the key once it has ended.
    ///
    /// # Errors
    ///
    /// When it does not end in time, or not well.
    pub async fn go(self, lasting: Duration) -> Result<u64, Trouble> {
        let Self { name, version: _, mut child, mut stdin, mut stdout } = self;
        stdin.write_all(b"go\n").await?;
        let Ended { acquired } =
            hear(&mut stdout, lasting + PATIENCE).await.map_err(|trouble| format!("{name}: {trouble}"))?;
        let status = tokio::time::timeout(PATIENCE, child.wait()).await??;
        if status.success() { Ok(acquired) } else { Err(format!("{name} ended with {status}").into()) }
    }
}

async fn hear<T: DeserializeOwned>(
    lines: &mut Lines<BufReader<ChildStdout>>,
    most: Duration,
) -> Result<T, Trouble> {
    let line =
        tokio::time::timeout(most, lines.next_line()).await.map_err(|_| "it said nothing in time")??;
    let line = line.ok_or("it ended without a word: see above")?;
    Ok(serde_json::from_str(&line).map_err(|error| format!("{error}: {line}"))?)
}

/// The folder of installed packages, if they are those that this file asks for.
fn installed(tongue: &str, asked: &Path) -> Option<PathBuf> {
    let exe = std::env::current_exe().ok()?;
    let folder =
        exe.ancestors().map(|folder| folder.join(INSTALLED).join(tongue)).find(|folder| folder.is_dir())?;
    let (asked, got) = (std::fs::read(asked).ok()?, std::fs::read(folder.join(STAMP)).ok()?);
    (asked == got).then_some(folder)
}

/// A program of this workspace, beside the one that runs, or beside the folder of tests in which it is.
#[must_use]
pub fn program(name: &str) -> Option<PathBuf> {
    let exe = std::env::current_exe().ok()?;
    exe.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|program| program.is_file())
}
