//! Starts a server for a test, in a folder of its own, and stops it by its process id.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::Result;
use crate::stopwatch::Stopwatch;

/// How often a starting or stopping server is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a server may take to end by itself once it was told to.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// A server process of ours. It ends, at the latest, when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    name: String,
    child: Child,
    folder: PathBuf,
    port: u16,
}

impl Server {
    /// Starts what `command` makes of a free port and a folder of its own below `runs`, and waits until `ready`
    /// says so.
    pub(crate) fn start(
        name: &str,
        runs: &Path,
        command: impl FnOnce(u16, &Path) -> Command,
        mut ready: impl FnMut(&Self) -> bool,
        within: Duration,
    ) -> Result<Self> {
        fs::create_dir_all(runs)?;
        let prefix = format!("run-{name}-");
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(runs)?.keep();
        let port = free_port()?;
        let log = File::create(folder.join("log"))?;
        let mut command = command(port, &folder);
        command.current_dir(&folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
        // From here on it ends with us, also when it never gets ready.
        let mut server = Self { name: name.to_owned(), child, folder, port };
        let watch = Stopwatch::start();
        while !ready(&server) {
            if let Some(status) = server.child.try_wait()? {
                return Err(format!("{name} ended at its start ({status}): {}", server.last_words()).into());
            }
            if watch.elapsed() > within {
                return Err(format!("{name} was not ready after {within:?}: {}", server.last_words()).into());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(server)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "no store needs a server yet; the next one starts here")
    )]
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// All that it has said.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    fn last_words(&self) -> String {
        let log = self.log();
        log.lines().last().unwrap_or("it said nothing").to_owned()
    }

    /// Asks it to end, and ends it when it does not.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.stop_within(STOP_WITHIN)
    }

    fn stop_within(&mut self, patience: Duration) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        // By the id of our own child, which cannot be a stranger's before we have waited for it.
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM)?;
        }
        let watch = Stopwatch::start();
        while watch.elapsed() < patience {
            if self.child.try_wait()?.is_some() {
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("{} was not stopped: {error}", self.name);
        }
    }
}

/// A port that is free now. Somebody else may take it before the server does: then the server says so, and
/// the test is run again.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn shell(words: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", words]);
        shell
    }

    #[test]
    fn a_server_lives_in_its_folder_until_it_is_stopped() {
        let runs = tempfile::tempdir().unwrap();
        let command = |port, _: &Path| shell(&format!("pwd; echo on {port}; exec sleep 60"));
        let ready = |server: &Server| server.log().contains("on ");
        let mut server = Server::start("sleep", runs.path(), command, ready, SOON).unwrap();
        assert!(server.log().contains(&format!("on {}", server.port())));
        assert!(server.log().contains(&server.folder().file_name().unwrap().to_string_lossy().into_owned()));
        server.stop().unwrap();
        assert!(server.child.try_wait().unwrap().is_some());
        server.stop().unwrap();
    }

    #[test]
    fn one_that_never_gets_ready_is_an_error_and_ends() {
        let runs = tempfile::tempdir().unwrap();
        let mut pid = None;
        let ready = |server: &Server| {
            pid = Pid::from_raw(i32::try_from(server.child.id()).unwrap());
            false
        };
        let waits = |_, _: &Path| shell("exec sleep 60");
        let error = Server::start("slow", runs.path(), waits, ready, Duration::from_millis(100)).unwrap_err();
        assert!(error.to_string().starts_with("slow was not ready"), "{error}");
        assert!(rustix::process::test_kill_process(pid.unwrap()).is_err(), "it must not outlive the test");
    }

    #[test]
    fn one_that_ends_at_its_start_is_quoted() {
        let runs = tempfile::tempdir().unwrap();
        let fails = |_, _: &Path| shell("echo no data folder >&2; exit 3");
        let error = Server::start("bad", runs.path(), fails, |_| false, SOON).unwrap_err();
        assert!(error.to_string().contains("no data folder"), "{error}");
    }

    #[test]
    fn one_that_ignores_the_wish_is_killed_all_the_same() {
        let runs = tempfile::tempdir().unwrap();
        let stubborn = |_, _: &Path| shell("trap '' TERM; echo up; while :; do sleep 1; done");
        let ready = |server: &Server| server.log().contains("up");
        let mut server = Server::start("stubborn", runs.path(), stubborn, ready, SOON).unwrap();
        server.stop_within(Duration::from_millis(100)).unwrap();
        assert!(server.child.try_wait().unwrap().is_some());
    }
}
