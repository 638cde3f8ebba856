//! The command as a process: started by the guard in a group of its own, signalled as a group, killed as a tree.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use leasehold::{BootTime, Clock};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpgrp, kill_current_process_group, kill_process_group, waitid,
};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};
use tokio::signal::unix::{SignalKind, signal};

use crate::guard::{self, Deadline, Guard, Order};
use crate::sys;

/// How long the guard may take to take a lease over, or to let go of it.
const MOST_CARRYING: Duration = Duration::from_secs(3);

/// Why a command was not started.
pub(crate) enum NotStarted {
    /// The lease ran out on the way.
    TooLate,
    /// A signal arrived on the way.
    Signalled,
    /// The guard was killed on the way.
    Unguarded,
    /// The system could not run it.
    Failed(io::Error),
}

/// What became of the child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum News {
    /// It was stopped, as by Ctrl-Z.
    Stopped,
    /// It ended.
    Ended {
        status: ExitStatus,
        /// The guard stopped it, for it had not heard of this process in time.
        by_guard: bool,
        /// How many processes it left behind, and some of them by name.
        left: u32,
        names: String,
    },
    /// What it left behind has ended, too.
    Gone,
    /// Its guard was killed; there is a new one, which reaches all of its tree or only its group, or why there is
    /// none.
    Replaced(Result<Reach, String>),
}

/// What a new guard reaches should this process be killed, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    Tree,
    Group,
}

/// A running command.
pub(crate) struct Child {
    guard: Option<Guard>,
    pid: Pid,
    /// Its first guard is gone: it is our own child now.
    adopted: bool,
    changes: tokio::signal::unix::Signal,
    /// Whether the terminal was given to it.
    has_terminal: bool,
    stopped: bool,
    ended: bool,
    /// What it left behind is gone, too.
    gone: bool,
    deadline: Option<Deadline>,
    life: Option<OwnedFd>,
    shelter: Option<String>,
    /// What was heard while something else was waited for.
    heard: VecDeque<guard::News>,
}

/// What a command is started with.
pub(crate) struct Terms<'a> {
    pub(crate) variables: &'a [(&'static str, Option<String>)],
    /// It is not started later than this.
    pub(crate) before: Option<BootTime>,
    pub(crate) deadline: Option<Deadline>,
    /// What keeps the lease as long as anything of the command lives.
    pub(crate) life: Option<&'a OwnedFd>,
}

impl Child {
    /// Starts the command, if the lease still holds and no signal has arrived: both are looked at once more when
    /// the child is there and only waits for the word.
    ///
    /// # Cancel safety
    ///
    /// The child ends when it is dropped.
    pub(crate) async fn start(
        mut guard: Guard,
        terms: Terms<'_>,
        clock: &Clock,
        signalled: impl Fn() -> bool,
    ) -> Result<Self, NotStarted> {
        let Terms { variables, before, deadline, life } = terms;
        // For a guard to come.
        let life = life.map(OwnedFd::try_clone).transpose().map_err(NotStarted::Failed)?;
        // Before the child is there, so that no change of it is missed.
        let changes = signal(SignalKind::child()).map_err(NotStarted::Failed)?;
        let has_terminal = in_foreground();
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let order = Order::Start { deadline, before, foreground: has_terminal, variables };
        let mut pid = None;
        let started = match guard.order(&order, life.as_ref().map(|life| life.as_fd())) {
            Err(_) => Err(NotStarted::Unguarded),
            Ok(()) => loop {
                match guard.news().await {
                    Some(guard::News::Ready { command }) => {
                        pid = Pid::from_raw(command);
                        let late = before.is_some_and(|before| clock.now() >= before);
                        let go = pid.is_some() && !late && !signalled();
                        // If this does not arrive, the guard is gone, which is heard next.
                        let _ = guard.order(&Order::Go(go), None);
                        if late {
                            break Err(NotStarted::TooLate);
                        }
                    }
                    Some(guard::News::Started) => break Ok(()),
                    Some(guard::News::Failed(guard::TOO_LATE)) => break Err(NotStarted::TooLate),
                    Some(guard::News::Failed(guard::SIGNALLED)) => break Err(NotStarted::Signalled),
                    Some(guard::News::Failed(number)) => {
                        break Err(NotStarted::Failed(io::Error::from_raw_os_error(number)));
                    }
                    Some(_) => {}
                    // The child may have got the word before its guard was killed: then it is ours.
                    None if pid.is_some() => break Ok(()),
                    None => break Err(NotStarted::Unguarded),
                }
            },
        };
        if has_terminal {
            sys::ignore_background_writes();
        }
        match (started, pid) {
            (Ok(()), Some(pid)) => Ok(Self {
                guard: Some(guard),
                pid,
                adopted: false,
                changes,
                has_terminal,
                stopped: false,
                ended: false,
                gone: false,
                deadline,
                life,
                shelter: None,
                heard: VecDeque::new(),
            }),
            (started, _) => {
                if has_terminal {
                    take_terminal();
                }
                Err(started.err().unwrap_or(NotStarted::Unguarded))
            }
        }
    }

    /// The next thing that happens to it. [`News::Gone`] is the last.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when it is dropped.
    pub(crate) async fn news(&mut self) -> News {
        loop {
            if self.adopted
                && let Some(news) = self.look()
            {
                return news;
            }
            if self.gone {
                return News::Gone;
            }
            let guards = async {
                if let Some(news) = self.heard.pop_front() {
                    return Some(news);
                }
                match &mut self.guard {
                    Some(guard) => guard.news().await,
                    None => std::future::pending().await,
                }
            };
            let news = tokio::select! {
                biased;
                news = guards => news,
                _ = self.changes.recv(), if self.adopted => continue,
            };
            match news {
                Some(guard::News::Stopped) => {
                    self.stopped = true;
                    return News::Stopped;
                }
                Some(guard::News::Ended { status, by_guard, left, names }) => {
                    self.gone = left == 0;
                    return self.has_ended(ExitStatus::from_raw(status), by_guard, left, names);
                }
                Some(guard::News::Gone) => self.gone = true,
                Some(guard::News::Sheltered(path)) => {
                    self.shelter = Some(path).filter(|path| !path.is_empty())
                }
                Some(
                    guard::News::Ready { .. }
                    | guard::News::Started
                    | guard::News::Failed(_)
                    | guard::News::Carried(_),
                ) => {}
                None => return News::Replaced(self.replace_guard()),
            }
        }
    }

    fn has_ended(&mut self, status: ExitStatus, by_guard: bool, left: u32, names: String) -> News {
        self.ended = true;
        if self.has_terminal {
            take_terminal();
        }
        News::Ended { status, by_guard, left, names }
    }

    /// The guard is gone: what it had adopted is ours now, and a new one takes its place.
    fn replace_guard(&mut self) -> Result<Reach, String> {
        if let Some(guard) = self.guard.take() {
            guard.bury();
        }
        self.adopted = true;
        let order = Order::Attach {
            command: self.pid.as_raw_nonzero().get(),
            deadline: self.deadline,
            shelter: self.shelter.clone(),
        };
        let life = self.life.as_ref().map(|life| life.as_fd());
        let guard = Guard::replace(&order, life);
        self.guard = Some(guard.map_err(|error| error.to_string())?);
        Ok(if self.shelter.is_some() { Reach::Tree } else { Reach::Group })
    }

    /// What became of a command that is our own child.
    fn look(&mut self) -> Option<News> {
        let guard = self.guard.as_ref().and_then(Guard::pid);
        let but: Vec<Pid> = guard.into_iter().chain([self.pid]).collect();
        let left = guard::reap_strays(&but);
        if self.ended {
            self.gone = left.is_empty();
            return None;
        }
        // Without reaping: while it is a zombie its number, and so its group, cannot be anybody else's.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        if let Ok(Some(end)) = waitid(WaitId::Pid(self.pid), options) {
            let status = guard::status(&end);
            let (count, names) =
                if left.is_empty() { (0, String::new()) } else { guard::adopted(guard, self.pid) };
            self.gone = left.is_empty();
            return Some(self.has_ended(ExitStatus::from_raw(status), false, count, names));
        }
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        if waitid(WaitId::Pid(self.pid), options).is_ok_and(|status| status.is_some()) {
            self.stopped = true;
            return Some(News::Stopped);
        }
        None
    }

    /// Tells the guard until when the command may live.
    pub(crate) fn beat(&mut self, deadline: Deadline) {
        if self.deadline == Some(deadline) {
            return;
        }
        self.deadline = Some(deadline);
        self.order(&Order::Beat(deadline));
    }

    fn order(&mut self, order: &Order) {
        let failed = self.guard.as_ref().is_some_and(|guard| guard.order(order, None).is_err());
        if failed && let Some(guard) = &self.guard {
            // One that has not listened for so long is replaced, as one that was killed.
            guard.kill();
        }
    }

    /// Has the guard renew the lease, or let go of it again; tells whether it does, or did.
    pub(crate) async fn carry(&mut self, order: &Order) -> bool {
        self.order(order);
        let Some(guard) = &mut self.guard else { return false };
        let heard = &mut self.heard;
        let answer = async {
            while let Some(news) = guard.news().await {
                match news {
                    guard::News::Carried(carried) => return carried,
                    other => heard.push_back(other),
                }
            }
            false
        };
        tokio::time::timeout(MOST_CARRYING, answer).await.unwrap_or(false)
    }

    /// Sends a signal to the whole group; one that is gone is no failure. After its end, to all it left behind.
    pub(crate) fn signal(&mut self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number) else { return };
        if self.ended {
            let guard = self.guard.as_ref().and_then(Guard::pid);
            if self.adopted {
                guard::signal_adopted(guard, signal);
            } else {
                self.order(&Order::Signal(number));
            }
            return;
        }
        let _ = kill_process_group(self.pid, signal);
        self.order(&Order::Signal(number));
        // A stopped group would look at it only when continued.
        if self.stopped && signal != Signal::CONT && signal != Signal::KILL {
            let _ = kill_process_group(self.pid, Signal::CONT);
        }
    }

    /// Kills it with all that it started, wherever that has gone.
    pub(crate) fn kill(&mut self) {
        // Also directly: a guard that is stopped does nothing now, and a group is most of a tree.
        let _ = kill_process_group(self.pid, Signal::KILL);
        if self.guard.is_some() {
            self.order(&Order::Kill);
        }
        if self.adopted {
            guard::kill_adopted(self.guard.as_ref().and_then(Guard::pid));
        }
    }

    /// Leaves what it left behind to itself.
    pub(crate) fn let_go(&mut self) {
        self.order(&Order::LetGo);
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
}

/// Whether stdin is a terminal that is ours to give away.
pub(crate) fn in_foreground() -> bool {
    let stdin = rustix::stdio::stdin();
    isatty(stdin) && tcgetpgrp(stdin).is_ok_and(|group| group == getpgrp())
}

fn take_terminal() {
    let _ = tcsetpgrp(rustix::stdio::stdin(), getpgrp());
}
