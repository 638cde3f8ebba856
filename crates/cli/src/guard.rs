//! `run`'s side of its guard: starts it, gives it orders and hears its news.
//!
//! The guard stands between `run` and the command, so that the command is dead before the lease is, whatever
//! becomes of `run`: see `docs/design/guard.md`.

mod birth;
mod carry;
mod cgroup;
mod clockwork;
mod frame;
mod link;
mod main;
mod tree;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

pub(crate) use link::{Carry, Deadline, News, Order};
pub(crate) use main::main;
use rustix::process::{Pid, WaitOptions, getpid, waitpid};
use tokio::net::UnixStream;

use crate::sys;

/// The first argument of a guard. It is no flag of ours, and stands in no help.
pub(crate) const FLAG: &str = "--guard";

/// What the child answers with that found itself too late to become the command. `exec` itself never gives it.
pub(crate) const TOO_LATE: i32 = libc::ETIME;
/// The same, for a child that `run` told not to, since a signal had arrived.
pub(crate) const SIGNALLED: i32 = libc::ECANCELED;
/// The same, for a child whose `run` is gone.
const CANNOT_GO: i32 = libc::EOWNERDEAD;

/// What a guard is started for.
enum Role<'a> {
    /// A command that it will start itself.
    Starts(&'a [OsString]),
    /// A command that another guard has started: the order that tells of it, and what keeps the lease.
    Attaches(&'a Order, Option<BorrowedFd<'a>>),
}

/// A guard and the link to it.
#[derive(Debug)]
pub(crate) struct Guard {
    process: std::process::Child,
    link: UnixStream,
    heard: Vec<u8>,
}

impl Guard {
    /// Starts a guard for a command that it will start itself.
    pub(crate) fn start(command: &[OsString]) -> io::Result<Self> {
        Self::spawn(Role::Starts(command))
    }

    /// Starts a guard for a command whose guard was killed, with its first order. What that one knew of the tree is
    /// lost.
    pub(crate) fn replace(order: &Order, life: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        Self::spawn(Role::Attaches(order, life))
    }

    fn spawn(role: Role<'_>) -> io::Result<Self> {
        // Whatever the guard adopts is ours when the guard is killed.
        rustix::process::set_child_subreaper(Some(getpid()))?;
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        // This very program, also when its file was replaced since.
        let mut guard = Command::new("/proc/self/exe");
        // What is sent to our group, such as the KILL of an impatient script, must not end the guard with us.
        guard.arg0("leasehold").arg(FLAG).arg(theirs.as_raw_fd().to_string()).process_group(0);
        match role {
            Role::Starts(command) => {
                guard.arg("--").args(command);
            }
            Role::Attaches(order, life) => {
                guard.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                // Before it is there: should we be killed the moment it is, it still knows what to kill.
                link::send_order(&ours, order, life)?;
            }
        }
        // Nothing else of this process is started now, so nothing else inherits it.
        rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())?;
        let process = guard.spawn()?;
        Ok(Self { process, link: UnixStream::from_std(ours)?, heard: Vec::new() })
    }

    /// Its number.
    pub(crate) fn pid(&self) -> Option<Pid> {
        sys::pid_of(&self.process)
    }

    /// Gives an order. A guard that is gone is found out by [`news`](Self::news).
    pub(crate) fn order(&self, order: &Order, life: Option<BorrowedFd<'_>>) -> io::Result<()> {
        link::send_order(&self.link, order, life)
    }

    /// The next news; `None` once the guard is gone.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when it is dropped.
    pub(crate) async fn news(&mut self) -> Option<News> {
        loop {
            match link::next_news(&mut self.heard) {
                link::Heard::News(news) => return Some(news),
                link::Heard::Noise => return None,
                link::Heard::More => {}
            }
            self.link.readable().await.ok()?;
            let mut bytes = [0; 1024];
            match self.link.try_read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.heard.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
    }

    /// Ends it, which is heard as the end of its link.
    pub(crate) fn kill(&self) {
        if let Some(pid) = self.pid() {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }

    /// Ends it for good, with whatever it had adopted left to us.
    pub(crate) fn bury(mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// How a process ended, as `waitpid` would tell it.
pub(crate) fn status(end: &rustix::process::WaitIdStatus) -> i32 {
    tree::status(end)
}

/// Reaps what this process adopted, but not these; tells which children are left.
pub(crate) fn reap_strays(but: &[Pid]) -> Vec<Pid> {
    let children = tree::children(getpid().as_raw_nonzero().get());
    let children = children.into_iter().filter_map(Pid::from_raw).filter(|pid| !but.contains(pid));
    children.filter(|pid| !matches!(waitpid(Some(*pid), WaitOptions::NOHANG), Ok(Some(_)))).collect()
}

/// What of the command's tree this process has adopted, by name.
pub(crate) fn adopted(guard: Option<Pid>, command: Pid) -> (u32, String) {
    let roots = tree::Roots { except: guard, ..tree::Roots::own() };
    roots.described(Some(command.as_raw_nonzero().get()))
}

/// Kills what of the command's tree this process has adopted: for when there is no guard to do it.
pub(crate) fn kill_adopted(guard: Option<Pid>) {
    tree::Roots { except: guard, ..tree::Roots::own() }.kill();
}

/// Sends a signal to what this process has adopted.
pub(crate) fn signal_adopted(guard: Option<Pid>, signal: rustix::process::Signal) {
    tree::Roots { except: guard, ..tree::Roots::own() }.signal(signal);
}
