//! The command as a process: started in a group of its own, watched without being reaped, signalled as a group.

use std::ffi::OsString;
use std::io;
use std::process::{Command, ExitStatus};

use leasehold::{BootTime, Clock};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpgrp, kill_current_process_group, kill_process_group, waitid,
};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};
use tokio::signal::unix::{SignalKind, signal};

use crate::sys;

/// What the child answers with that found itself too late to become the command. `exec` itself never gives it.
const TOO_LATE: i32 = libc::ETIME;
/// The same, for a child that found a signal had arrived.
const SIGNALLED: i32 = libc::ECANCELED;

/// Why a command was not started.
pub(crate) enum NotStarted {
    /// The lease ran out on the way.
    TooLate,
    /// A signal arrived on the way.
    Signalled,
    /// The system could not run it.
    Failed(io::Error),
}

/// What became of the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// It ended, and is not reaped yet: its number is still its own.
    Ended,
    /// It was stopped, as by Ctrl-Z.
    Stopped,
}

/// A running command.
pub(crate) struct Child {
    child: std::process::Child,
    pid: Pid,
    changes: tokio::signal::unix::Signal,
    /// Whether the terminal was given to it.
    has_terminal: bool,
    stopped: bool,
}

impl Child {
    /// Starts the command, if the lease still holds at `before` and no signal has arrived, judged by the child
    /// itself right before it becomes the command.
    pub(crate) fn start(
        words: &[OsString],
        variables: &[(&str, Option<String>)],
        clock: &Clock,
        before: Option<BootTime>,
        signalled: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Self, NotStarted> {
        let Some((program, arguments)) = words.split_first() else {
            return Err(NotStarted::Failed(io::ErrorKind::NotFound.into()));
        };
        // Before the child is there, so that no change of it is missed.
        let changes = signal(SignalKind::child()).map_err(NotStarted::Failed)?;
        let has_terminal = in_foreground();
        let mut command = Command::new(program);
        command.args(arguments);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        for (name, value) in variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let clock = clock.clone();
        sys::before_exec(&mut command, has_terminal, move || {
            if signalled() {
                return Err(io::Error::from_raw_os_error(SIGNALLED));
            }
            match before {
                Some(before) if clock.now() >= before => Err(io::Error::from_raw_os_error(TOO_LATE)),
                _ => Ok(()),
            }
        });
        let spawned = command.spawn();
        if has_terminal {
            sys::ignore_background_writes();
        }
        let child = spawned.map_err(|error| {
            if has_terminal {
                take_terminal();
            }
            match error.raw_os_error() {
                Some(TOO_LATE) => NotStarted::TooLate,
                Some(SIGNALLED) => NotStarted::Signalled,
                _ => NotStarted::Failed(error),
            }
        })?;
        let Some(pid) = sys::pid_of(&child) else {
            return Err(NotStarted::Failed(io::Error::other("the child has no process id")));
        };
        Ok(Self { child, pid, changes, has_terminal, stopped: false })
    }

    /// The next thing that happens to it. After [`News::Ended`], reap it with [`end`](Self::end).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when it is dropped.
    pub(crate) async fn news(&mut self) -> News {
        loop {
            if let Some(news) = self.look() {
                return news;
            }
            if self.changes.recv().await.is_none() {
                return std::future::pending().await;
            }
        }
    }

    fn look(&mut self) -> Option<News> {
        // Without reaping: while it is a zombie its number, and so its group, cannot be anybody else's.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        if matches!(waitid(WaitId::Pid(self.pid), options), Ok(Some(_))) {
            return Some(News::Ended);
        }
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        if waitid(WaitId::Pid(self.pid), options).is_ok_and(|status| status.is_some()) {
            self.stopped = true;
            return Some(News::Stopped);
        }
        None
    }

    /// Sends a signal to the whole group; one that is gone is no failure.
    pub(crate) fn signal(&self, number: i32) {
        if let Some(signal) = Signal::from_named_raw(number) {
            let _ = kill_process_group(self.pid, signal);
            // A stopped group would look at it only when continued.
            if self.stopped && signal != Signal::CONT && signal != Signal::KILL {
                let _ = kill_process_group(self.pid, Signal::CONT);
            }
        }
    }

    /// Whether the terminal was given to it.
    pub(crate) fn has_terminal(&self) -> bool {
        self.has_terminal
    }

    /// Stops this process with the command, so that the shell gets its prompt back, and returns once continued.
    pub(crate) fn stop_together(&mut self) {
        take_terminal();
        // Our own group is the job that the shell knows; where Ctrl-Z is ignored, nothing stops.
        let _ = kill_current_process_group(Signal::TSTP);
    }

    /// Lets the command go on; in the foreground again if this process is.
    pub(crate) fn go_on(&mut self) {
        self.stopped = false;
        if in_foreground() {
            let _ = tcsetpgrp(rustix::stdio::stdin(), self.pid);
        }
        let _ = kill_process_group(self.pid, Signal::CONT);
    }

    /// Reaps it, and takes the terminal back.
    pub(crate) fn end(mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait();
        if self.has_terminal {
            take_terminal();
        }
        status
    }
}

/// Whether stdin is a terminal that is ours to give away.
fn in_foreground() -> bool {
    let stdin = rustix::stdio::stdin();
    isatty(stdin) && tcgetpgrp(stdin).is_ok_and(|group| group == getpgrp())
}

fn take_terminal() {
    let _ = tcsetpgrp(rustix::stdio::stdin(), getpgrp());
}
