//! What every test stands on: a place of its own, and waits for conditions instead of sleeps for luck.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use leasehold::Clock;
use tempfile::TempDir;

use crate::store::Store;

/// The binary under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_leasehold");
/// A condition that does not come true in this time is a failure, however slow the machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder with a home and nothing else, a store that is no other place's, and an environment that points there.
pub(crate) struct Place {
    // Dropped before the folder that it may lie in.
    pub(crate) store: Store,
    folder: TempDir,
}

impl Place {
    /// A place whose store is made already, so that no line tells of its making.
    pub(crate) fn new() -> Self {
        let place = Self::bare();
        let output = place.leasehold(["list"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        place
    }

    /// A place without a store.
    pub(crate) fn bare() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { store: Store::below(folder.path()), folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The URL of its store.
    pub(crate) fn url(&self) -> String {
        self.store.url()
    }

    /// `leasehold` with these words: no terminal, nothing of this process's environment.
    pub(crate) fn leasehold<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(BINARY);
        command.args(words);
        self.settle(&mut command);
        command
    }

    /// Gives any command the environment of this place.
    pub(crate) fn settle(&self, command: &mut Command) {
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.folder.path())
            // Where root has no run directory, sockets lie in the machine's own folder, which is no test's.
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .env("LEASEHOLD_STORE", self.url())
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // A fault is picked for the program under test, too.
        #[cfg(leasehold_faults)]
        if let Some(fault) = std::env::var_os("LEASEHOLD_FAULT") {
            command.env("LEASEHOLD_FAULT", fault);
        }
    }

    /// A shell line to which `$LH` is the binary under test.
    pub(crate) fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        self.settle(&mut command);
        command.env("LH", BINARY);
        command
    }

    /// Writes a file that only its owner may read.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Starts `leasehold run demo` with a shell line, and returns once that has said `up` in the file `up`.
    pub(crate) fn start(&self, flags: &[&str], shell: &str) -> Running {
        let script = format!("echo up > up; {shell}");
        let words =
            ["run", "demo"].into_iter().chain(flags.iter().copied()).chain(["--", "sh", "-c", &script]);
        let _ = std::fs::remove_file(self.path("up"));
        let mut command = self.leasehold(words);
        command.env("LH", BINARY);
        let running = Running::of(command);
        until("the command has started", || self.read("up") == "up\n");
        running
    }

    /// The JSON of `leasehold status`.
    pub(crate) fn status(&self, name: &str) -> serde_json::Value {
        let output = self.leasehold(["status", name, "--json"]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    /// When the lease of a name ends unless it is renewed; `None` where nobody holds it.
    pub(crate) fn ends(&self, name: &str) -> Option<jiff::Timestamp> {
        self.status(name)["holders"][0]["expires_at"].as_str().map(|time| time.parse().unwrap())
    }

    /// How much of the lease of a name is left.
    pub(crate) fn left(&self, name: &str) -> Duration {
        Duration::from_millis(self.status(name)["holders"][0]["left_ms"].as_u64().unwrap())
    }

    /// Returns once the lease of a name was renewed. Not every store counts that; but the end moves.
    pub(crate) fn until_renewed(&self, name: &str) {
        let before = self.ends(name);
        until("it is renewed", || {
            let now = self.ends(name);
            assert!(before.is_some() && now.is_some(), "nobody holds {name}");
            is_renewed(before, now)
        });
    }

    pub(crate) fn is_free(&self, name: &str) -> bool {
        self.leasehold(["status", name, "-q"]).status().unwrap().code() == Some(1)
    }
}

/// Whether a lease that ended at one time ends so much later now that it was renewed: what is left of it is told in
/// milliseconds, and read from two clocks.
pub(crate) fn is_renewed(before: Option<jiff::Timestamp>, now: Option<jiff::Timestamp>) -> bool {
    let apart = before.zip(now).map(|(before, now)| now.duration_since(before));
    apart.is_some_and(|apart| apart > jiff::SignedDuration::from_millis(100))
}

/// A process of a test, killed with it.
pub(crate) struct Running(Option<Child>);

impl Running {
    pub(crate) fn of(mut command: Command) -> Self {
        Self(Some(command.spawn().unwrap()))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.0.as_mut().unwrap().try_wait().unwrap().is_none()
    }

    /// Its output, once it has ended by itself.
    pub(crate) fn output(mut self) -> Output {
        self.0.take().unwrap().wait_with_output().unwrap()
    }

    /// Writes all that there will ever be to its stdin.
    pub(crate) fn type_in_all(&mut self, bytes: &[u8]) {
        let mut stdin = self.0.as_mut().unwrap().stdin.take().unwrap();
        stdin.write_all(bytes).unwrap();
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        let stdin = self.0.as_mut().unwrap().stdin.as_mut().unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    /// Types something until it had its effect: what is typed while the terminal changes hands may be thrown away by
    /// the terminal itself.
    pub(crate) fn type_until(&mut self, text: &str, what: &str, mut holds: impl FnMut() -> bool) {
        let clock = Clock::system();
        let mut typed = clock.now();
        self.type_in(text);
        until(what, || {
            if clock.now().since(typed) > AGAIN {
                self.type_in(text);
                typed = clock.now();
            }
            holds()
        });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap();
    assert!(status.success(), "kill -s {name} {pid}");
}

/// Returns once the condition holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let clock = Clock::system();
    let start = clock.now();
    while !holds() {
        assert!(clock.now().since(start) < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// When something that is typed and had no effect is typed again.
const AGAIN: Duration = Duration::from_millis(700);

/// How long something took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let clock = Clock::system();
    let start = clock.now();
    let done = work();
    (done, clock.now().since(start))
}

pub(crate) fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| panic!("it must end by itself: {status:?}"))
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether a program of the machine is there; if not, says that a test is skipped for it.
pub(crate) fn has(program: &str) -> bool {
    let there =
        ["/usr/bin", "/bin", "/usr/local/bin"].iter().any(|folder| Path::new(folder).join(program).exists());
    if !there {
        eprintln!("skipped: this machine has no {program}");
    }
    there
}
