//! The guard itself: a process between `run` and its command, which outlives `run` if it must, and kills the
//! command's tree when `run` is gone or was silent until the lease is about to end.
//!
//! One thread, no runtime and no client: it shall be small, and must not fail for what they may fail for.

mod ends;
mod kill;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use leasehold::{BootTime, Clock, fault};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, getpid, kill_process_group};

use super::birth;
use super::carry::Carried;
use super::cgroup::Shelter;
use super::clockwork::Alarm;
use super::link::{Deadline, Link, News, Order};
use super::tree::Roots;
use crate::timetable::Timetable;
use crate::{exit, sys};

/// A `run` that works sends TERM itself; this long after it should have, the guard does.
const FOR_RUN: Duration = Duration::from_millis(100);
/// The lease's descriptor is passed on above the numbers that scripts use.
const HIGH: i32 = 100;
/// A command gets a cgroup of its own once it has lived so long: moving a process there may take 20 ms, which most
/// commands would feel, and short ones would wait for.
const SETTLED: Duration = Duration::from_millis(100);
/// How often a lease is looked at that the guard renews itself.
const LOOK: Duration = Duration::from_millis(500);
/// How long taking over a lease may keep the guard from everything else.
const MOST_TAKING: Duration = Duration::from_secs(2);
/// Signals that the guard survives: they are meant for `run`, which passes on what is for the command.
const SURVIVED: [i32; 10] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
];

/// Guards one command until it has ended or `run` has.
pub(crate) fn main(words: &[OsString]) -> u8 {
    let link = words.get(2).and_then(|word| word.to_str()?.parse().ok()).map(sys::inherited_socket);
    let Some(Ok(link)) = link else {
        crate::talk::complain("this is for leasehold itself: `leasehold run` starts its guard with it");
        return exit::USAGE;
    };
    let command = words.iter().skip(3).skip_while(|word| *word == OsStr::new("--")).cloned().collect();
    match Guard::new(Link::new(link), command) {
        Ok(guard) => guard.stand(),
        // `run` sees the end of its link.
        Err(_) => exit::BUG,
    }
}

/// The command that is guarded.
#[derive(Debug, Clone, Copy)]
struct Guarded {
    pid: Pid,
    /// It is the child of `run` since its first guard was killed: `run` hears of its end.
    attached: bool,
    ended: bool,
}

struct Guard {
    link: Link,
    words: Vec<OsString>,
    clock: Clock,
    alarm: Alarm,
    /// Becomes readable when a child changes.
    changes: UnixStream,
    run: Option<Pid>,
    guarded: Option<Guarded>,
    deadline: Option<Deadline>,
    /// Kept open as long as the tree may live, and inherited by it.
    life: Option<OwnedFd>,
    /// The lease itself, while `run` is stopped by Ctrl-Z.
    carried: Option<Carried>,
    /// When the command gets a cgroup of its own.
    settled: Option<BootTime>,
    shelter: Option<Shelter>,
    /// Nothing is left of the command.
    done: bool,
    /// TERM was sent for want of a heartbeat, and none has come since.
    termed: bool,
    /// TERM was sent for want of a heartbeat, whatever came later.
    asked: bool,
    /// The tree was killed for want of a heartbeat.
    killed: bool,
}

/// Whether to go on.
enum Then {
    GoOn,
    End,
}

impl Guard {
    fn new(link: Link, words: Vec<OsString>) -> io::Result<Self> {
        // Not our parent: if `run` is dead already, that is whoever adopts orphans, and all below it are strangers.
        let run = link.maker();
        rustix::process::set_child_subreaper(Some(getpid()))?;
        // What `ps` shows; without it, it would be called `exe`.
        let _ = rustix::thread::set_name(c"leasehold-guard");
        let (changes, changed) = UnixStream::pair()?;
        changes.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(libc::SIGCHLD, changed)?;
        // Caught, not ignored: what is ignored would be inherited by the command.
        let nobody_asks = Arc::new(AtomicBool::new(false));
        for number in SURVIVED {
            if !sys::is_ignored(number) {
                signal_hook::flag::register(number, nobody_asks.clone())?;
            }
        }
        Ok(Self {
            link,
            words,
            clock: Clock::system(),
            alarm: Alarm::new()?,
            changes,
            run,
            guarded: None,
            deadline: None,
            life: None,
            carried: None,
            settled: None,
            shelter: None,
            done: false,
            termed: false,
            asked: false,
            killed: false,
        })
    }

    fn stand(mut self) -> u8 {
        loop {
            let (ordered, changed) = self.wait();
            if ordered && matches!(self.hear(), Then::End) {
                break;
            }
            if changed {
                self.look_at_children();
            }
            if matches!(self.look_at_clock(), Then::End) {
                break;
            }
        }
        if let Some(shelter) = &self.shelter {
            shelter.dissolve();
        }
        exit::OK
    }

    /// Waits for an order, a change of a child, or the next due moment.
    fn wait(&self) -> (bool, bool) {
        let due = self.deadline.filter(|_| !self.killed).map(|Deadline { term, kill }| {
            term.filter(|_| !self.termed).map_or(kill, |term| term.after(FOR_RUN).min(kill))
        });
        let look = self.carried.as_ref().map(|_| self.clock.now().after(LOOK));
        let due = [due, look, self.settled].into_iter().flatten().min();
        self.alarm.set(due);
        let mut polled = [
            PollFd::new(&self.link, PollFlags::IN),
            PollFd::new(&self.changes, PollFlags::IN),
            PollFd::new(&self.alarm, PollFlags::IN),
        ];
        // A signal that interrupts it is no news.
        let _ = poll(&mut polled, None);
        let [link, changes, _] = polled.map(|fd| !fd.revents().is_empty());
        (link, changes)
    }

    /// Hears all orders there are before anything is decided: a guard that was frozen finds the heartbeats that
    /// came meanwhile.
    fn hear(&mut self) -> Then {
        loop {
            let order = match self.link.order() {
                Ok(Some(order)) => order,
                // A frame that cannot be read is as bad as none: `run` is no longer what it was.
                Ok(None) | Err(_) => {
                    // Where all has ended and nothing is left, nothing can come back.
                    if !self.done && !fault!("guard_ignores_end_of_run") {
                        self.kill_tree();
                    }
                    if let Some(carried) = self.carried.take() {
                        carried.release();
                    }
                    return Then::End;
                }
            };
            let (order, life) = order;
            if let Some(life) = life {
                self.life = sys::pass_on(life, HIGH).ok();
            }
            match order {
                Order::Start { deadline, before, foreground, variables } => {
                    self.deadline = deadline;
                    self.start(before, foreground, &variables);
                }
                Order::Attach { command, deadline, shelter } => {
                    self.deadline = deadline;
                    self.shelter = shelter.map(Shelter::at);
                    self.guarded =
                        Pid::from_raw(command).map(|pid| Guarded { pid, attached: true, ended: false });
                }
                Order::Beat(deadline) => {
                    self.deadline = Some(deadline);
                    self.termed = false;
                }
                Order::Signal(number) => {
                    // `run` may not have heard yet that the command has ended, and its group is all that it reached.
                    self.look_at_children();
                    let over = self.guarded.is_some_and(|guarded| guarded.ended);
                    if let Some(signal) = Signal::from_named_raw(number).filter(|_| over) {
                        self.roots().signal(signal);
                    }
                }
                Order::Kill => {
                    self.kill_tree();
                    // The changes it saw meanwhile are told by nobody else.
                    self.look_at_children();
                }
                Order::Carry(carry) => {
                    let most = self.deadline.map_or(MOST_TAKING, |Deadline { kill, .. }| {
                        kill.before(FOR_RUN).since(self.clock.now()).min(MOST_TAKING)
                    });
                    self.carried = Carried::take(carry, most);
                    let _ = self.link.tell(&News::Carried(self.carried.is_some()));
                }
                Order::Back => {
                    let carried = self.carried.take();
                    let had = carried.is_some();
                    // Kept before `run` hears of it: of two that renew, one would release what the other has.
                    if let Some(carried) = carried {
                        carried.keep();
                    }
                    let _ = self.link.tell(&News::Carried(had));
                }
                Order::LetGo => return Then::End,
                // Meant for a child that is no longer there.
                Order::Go(_) => {}
            }
            let mut polled = [PollFd::new(&self.link, PollFlags::IN)];
            let nothing_more = poll(&mut polled, Some(&rustix::time::Timespec::default())) != Ok(1);
            if nothing_more {
                return Then::GoOn;
            }
        }
    }

    fn start(&mut self, before: Option<BootTime>, foreground: bool, variables: &[(String, Option<String>)]) {
        let news = match birth::spawn(&self.link, &self.words, &self.clock, before, foreground, variables) {
            Ok(pid) => {
                self.guarded = Some(Guarded { pid, attached: false, ended: false });
                // What reads from the command's pipes must see their end when the command ends, not later.
                sys::let_go_of_stdio();
                self.settled = Some(self.clock.now().after(SETTLED));
                News::Started
            }
            Err(error) => News::Failed(error.raw_os_error().unwrap_or(libc::EIO)),
        };
        // Of a `run` that is gone the next order tells.
        let _ = self.link.tell(&news);
    }

    fn look_at_clock(&mut self) -> Then {
        let now = self.clock.now();
        if self.settled.is_some_and(|at| now >= at) {
            self.settled = None;
            self.shelter = if self.done { None } else { self.build_shelter() };
        }
        if let (Some(carried), Some(Deadline { term, kill })) = (&self.carried, self.deadline) {
            let grace = term.map_or(Duration::ZERO, |term| kill.since(term));
            let table = Timetable::new(now, carried.remaining(), grace);
            self.deadline = Some(Deadline { term: term.map(|_| table.term), kill: table.kill });
        }
        let Some(Deadline { term, kill }) = self.deadline else { return Then::GoOn };
        if self.killed || fault!("guard_ignores_deadline") {
            return Then::GoOn;
        }
        if now >= kill {
            self.killed = true;
            self.kill_tree();
            self.look_at_children();
            self.end_life();
            return if self.done { Then::End } else { Then::GoOn };
        }
        if term.is_some_and(|term| now >= term.after(FOR_RUN)) && !self.termed {
            (self.termed, self.asked) = (true, true);
            if let Some(Guarded { pid, .. }) = self.guarded.filter(|_| !self.done) {
                let _ = kill_process_group(pid, Signal::TERM);
                let _ = kill_process_group(pid, Signal::CONT);
            }
        }
        Then::GoOn
    }

    /// `run` hears of it before anything is in it: a guard that comes after us must know what to kill and take away.
    fn build_shelter(&self) -> Option<Shelter> {
        let shelter = Shelter::build()?;
        let tell = |path: Option<&str>| self.link.tell(&News::Sheltered(path.unwrap_or_default().to_owned()));
        let _ = tell(shelter.path());
        let sheltered = shelter.take_in_all(Roots::own());
        if sheltered.is_none() {
            let _ = tell(None);
        }
        sheltered
    }
}
