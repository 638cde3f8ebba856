//! Real servers, in folders and on ports of their own, started without any service and ended by their process id.

pub mod certificates;
pub mod clock;
pub mod cluster;
pub mod elected;
pub mod etcd;
pub mod net;
pub mod nodes;
pub mod redis;
pub mod sentinel;
pub mod synced;
mod talk;
pub mod zookeeper;

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold_core::Clock;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// How long a server may take until it answers.
const PATIENCE: Duration = Duration::from_secs(30);
/// All that servers do among themselves is done by then, however busy the machine is.
const SETTLED: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);
/// Somebody else may take a free port before the server does.
const TRIES: u32 = 5;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum NoServer {
    /// It is not on this machine: a test that needs it is skipped, and says so.
    #[error("there is no {0} here")]
    Missing(&'static str),
    /// It does not start.
    #[error("{tool} does not start: {why}")]
    Broken {
        /// Which.
        tool: &'static str,
        /// What it said last.
        why: String,
    },
    /// A file or a process cannot be made.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// How one kind of server is started, and asked whether it is there.
pub(crate) trait Recipe: Send + Sync {
    /// The program.
    fn tool(&self) -> &'static str;
    /// The command for this folder and port.
    fn command(&self, program: &Path, folder: &Path, port: u16) -> io::Result<Command>;
    /// Whether it answers.
    fn answers(&self, folder: &Path, port: u16) -> bool;
    /// Where it listens.
    fn ip(&self) -> Ipv4Addr {
        Ipv4Addr::LOCALHOST
    }
    /// Whether it can do with this port: it may need another one beside it.
    fn suits(&self, _port: u16) -> bool {
        true
    }
}

/// A server that runs. It is killed when this is dropped, and its folder removed.
pub struct Server {
    recipe: Box<dyn Recipe>,
    program: PathBuf,
    folder: TempDir,
    port: u16,
    child: Option<Child>,
}

impl Server {
    /// Starts one on a free port, and returns once it answers.
    pub(crate) fn start(recipe: impl Recipe + 'static) -> Result<Self, NoServer> {
        let tool = recipe.tool();
        let program = find(tool).ok_or(NoServer::Missing(tool))?;
        let folder = tempfile::tempdir()?;
        let mut server = Self { recipe: Box::new(recipe), program, folder, port: 0, child: None };
        let mut last = None;
        for _ in 0..TRIES {
            server.port = loop {
                let port = free_port()?;
                if server.recipe.suits(port) {
                    break port;
                }
            };
            match server.go_on() {
                Ok(()) => return Ok(server),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or(NoServer::Missing(tool)))
    }

    /// Starts it again in the same folder and on the same port, after [`kill`](Self::kill).
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn go_on(&mut self) -> Result<(), NoServer> {
        self.start_again()?;
        let clock = Clock::system();
        let until = clock.now().after(PATIENCE);
        while !self.recipe.answers(self.folder.path(), self.port) {
            if !self.runs() || clock.now() >= until {
                let why = self.last_words();
                self.kill();
                return Err(NoServer::Broken { tool: self.recipe.tool(), why });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Starts it again in the same folder and on the same port, and does not wait until it answers.
    ///
    /// # Errors
    ///
    /// When its process cannot be started.
    pub fn start_again(&mut self) -> Result<(), NoServer> {
        self.kill();
        let log = File::create(self.log_file())?;
        let mut command = self.recipe.command(&self.program, self.folder.path(), self.port)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.child = Some(command.spawn()?);
        Ok(())
    }

    /// Whether its process is there.
    pub fn runs(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Kills it as a power cut would, and returns once it is gone. What it wrote stays in its folder.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // One that is stopped dies of this, too.
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// Sends it a signal, such as STOP and CONT.
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = self.pid().ok_or(io::ErrorKind::NotFound)?;
        Ok(kill_process(pid, signal)?)
    }

    /// Its process id, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<Pid> {
        self.child.as_ref().and_then(|child| Pid::from_raw(child.id().cast_signed()))
    }

    /// Whether its process is there and has not been stopped: to wait for one that was would take longer than all else.
    #[must_use]
    pub fn is_awake(&self) -> bool {
        let pid = self.pid().map_or(0, |pid| pid.as_raw_nonzero().get());
        std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") T "))
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (self.recipe.ip(), self.port).into()
    }

    /// Where it keeps its files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What it has said.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }

    fn last_words(&self) -> String {
        let log = self.log();
        let last = log.lines().rev().find(|line| !line.trim().is_empty());
        last.unwrap_or("it said nothing").to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { recipe, program: _, folder, port, child } = self;
        f.debug_struct("Server")
            .field("tool", &recipe.tool())
            .field("folder", &folder.path())
            .field("port", port)
            .field("runs", &child.is_some())
            .finish()
    }
}

/// Returns once several servers have done among themselves what they were to do.
fn until(what: &str, mut holds: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let clock = Clock::system();
    let end = clock.now().after(SETTLED);
    while !holds()? {
        if clock.now() >= end {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("in vain: {what}")));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// A port that nobody listens on now.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Starts several at once, as some do not answer before most of them are there.
fn start_all<T: Send>(
    recipes: Vec<T>,
    start: impl Fn(T) -> Result<Server, NoServer> + Sync,
) -> Result<Vec<Server>, NoServer> {
    std::thread::scope(|scope| {
        let start = &start;
        let starting: Vec<_> = recipes.into_iter().map(|recipe| scope.spawn(move || start(recipe))).collect();
        let started = starting.into_iter().map(|server| match server.join() {
            Ok(server) => server,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        started.collect()
    })
}

/// Where a program is: on the path, where distributions keep what administrators start, or where `cargo xtask test
/// servers` unpacked it, so that a test finds it whoever starts that.
#[must_use]
pub fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let own = std::env::current_exe().unwrap_or_default();
    let unpacked = own.ancestors().map(|folder| folder.join("servers/packages/usr/bin"));
    let folders = std::env::split_paths(&path).chain(more).chain(unpacked);
    folders.map(|folder| folder.join(tool)).find(|file| file.is_file())
}
