//! A Redis server of a test's own, in a folder of its own, ended by its process id.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// How long a server may take to start.
const TRIES: u32 = 500;
const PAUSE: Duration = Duration::from_millis(10);

/// A server; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    home: TempDir,
    clock: Option<File>,
    options: Vec<String>,
}

impl Server {
    /// Starts one without persistence at a socket in its folder; with these options besides.
    pub(crate) fn start(options: &[&str]) -> io::Result<Self> {
        Self::start_on(options, None)
    }

    /// Starts one whose clock a test tells.
    pub(crate) fn with_clock(options: &[&str]) -> io::Result<Self> {
        let shim = shim().map_err(io::Error::other)?;
        Self::start_on(options, Some(shim))
    }

    fn start_on(options: &[&str], shim: Option<&Path>) -> io::Result<Self> {
        let home = tempfile::Builder::new().prefix("lh-redis-").tempdir()?;
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let clock = match shim {
            Some(_) => {
                let clock = File::options()
                    .create(true)
                    .read(true)
                    .write(true)
                    .truncate(true)
                    .open(clock_in(home.path()))?;
                clock.write_all_at(&[0; 16], 0)?;
                Some(clock)
            }
            None => None,
        };
        let child = spawn(home.path(), &options, shim)?;
        let mut server = Self { child, home, clock, options };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> io::Result<()> {
        for _ in 0..TRIES {
            if std::os::unix::net::UnixStream::connect(self.socket()).is_ok() {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                let log = std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default();
                return Err(io::Error::other(format!("the server ended at its start ({status}): {log}")));
            }
            std::thread::sleep(PAUSE);
        }
        Err(io::Error::other("the server did not get ready"))
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.home.path().join("redis.sock")
    }

    /// Its folder.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// The URL of a store in it.
    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// A plain connection, as another program has one.
    pub(crate) fn connect(&self) -> redis::Connection {
        let url = format!("unix://{}", self.socket().display());
        redis::Client::open(url).unwrap().get_connection().unwrap()
    }

    /// Says what time it is, in microseconds since 1970.
    pub(crate) fn set_time(&self, micros: u64) {
        self.tell(0, i64::try_from(micros).unwrap() * 1000);
    }

    /// Moves its clock away from the machine's.
    pub(crate) fn step(&self, seconds: i64) {
        self.tell(8, seconds * 1_000_000_000);
    }

    fn tell(&self, at: u64, nanos: i64) {
        self.clock.as_ref().unwrap().write_all_at(&nanos.to_ne_bytes(), at).unwrap();
    }

    /// Signals it.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Kills it, and starts it again in the same folder.
    pub(crate) fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        drop(std::fs::remove_file(self.socket()));
        let shim = self.clock.as_ref().map(|_| shim().unwrap());
        self.child = spawn(self.home.path(), &self.options, shim).unwrap();
        self.wait_until_ready().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be stopped, and has nothing to save.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn clock_in(home: &Path) -> PathBuf {
    home.join("clock")
}

fn spawn(home: &Path, options: &[String], shim: Option<&Path>) -> io::Result<Child> {
    let log = File::options().create(true).append(true).open(home.join("log"))?;
    let mut command = Command::new(program());
    command.args([
        "--port",
        "0",
        "--unixsocket",
        "redis.sock",
        "--save",
        "",
        "--appendonly",
        "no",
        "--dir",
        ".",
    ]);
    command.args(options).current_dir(home);
    if let Some(shim) = shim {
        command.env("LD_PRELOAD", shim).env("LEASEHOLD_CLOCK", clock_in(home));
    }
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn().map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", program())))
}

/// Whether there is a server to start; if not, why not.
pub(crate) fn missing() -> Option<String> {
    let answer = Command::new(program()).arg("--version").stdout(Stdio::null()).status();
    answer.err().map(|error| format!("{}: {error}", program()))
}

/// The server under test: another one, such as a valkey-server, if `LEASEHOLD_REDIS_SERVER` names it.
fn program() -> String {
    std::env::var("LEASEHOLD_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

/// The preloaded clock, compiled once.
fn shim() -> Result<&'static Path, String> {
    static SHIM: OnceLock<Result<(TempDir, PathBuf), String>> = OnceLock::new();
    let built = SHIM.get_or_init(|| {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let library = folder.path().join("clockshim.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/clockshim.c");
        let done =
            Command::new("cc").args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).output();
        match done {
            Ok(output) if output.status.success() => Ok((folder, library)),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Err(format!("cc: {error}")),
        }
    });
    built.as_ref().map(|(_, library)| library.as_path()).map_err(Clone::clone)
}
