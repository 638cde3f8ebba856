//! The watch over a running command: signals are passed on, and it is stopped before its lease ends.

use std::process::ExitStatus;
use std::time::Duration;

use leasehold::config::{Descendants, OnLost};
use leasehold::{BootTime, Clock, LostReason};

use crate::alarm::Alarm;
use crate::child::{Child, News, Reach};
use crate::exit;
use crate::guard::Deadline;
use crate::human::rough;
use crate::job::{Elsewhere, Held};
use crate::listener::Listener;
use crate::signals::Signals;
use crate::talk::Talk;
use crate::timetable::{Timetable, grace_when_gone};

/// What is still there so long after it was killed, without a lease, is of another user or stuck in the kernel: it
/// is not waited for.
const UNKILLABLE: Duration = Duration::from_secs(2);

/// Why the command was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// Somebody sent us a signal.
    Asked,
    /// Its own time was over: `--at-most`.
    AtMost,
    /// The lease was about to end, and could not be renewed.
    NotRenewed,
    /// The lease is gone.
    Gone(LostReason),
}

impl Why {
    /// Whether the lease was the reason.
    pub(crate) fn lost(self) -> bool {
        matches!(self, Self::NotRenewed | Self::Gone(_))
    }
}

/// How the command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// Why it was stopped, if it was, and when it was asked to.
    pub(crate) stopped: Option<(Why, BootTime)>,
    pub(crate) killed: bool,
}

impl Ended {
    /// The exit code that tells it.
    pub(crate) fn code(&self) -> u8 {
        match self.stopped {
            Some((Why::AtMost, _)) => exit::AT_MOST,
            _ => exit::like(self.status),
        }
    }
}

/// Watches one command.
pub(crate) struct Watch<'a> {
    pub(crate) name: &'a str,
    /// Empty for a command that runs without a lock.
    pub(crate) lease: &'a Held,
    /// How to go on with it elsewhere while we are stopped.
    pub(crate) elsewhere: Option<Elsewhere<'a>>,
    pub(crate) table: Option<Timetable>,
    pub(crate) grace: Duration,
    pub(crate) on_lost: OnLost,
    pub(crate) descendants: Descendants,
    /// When its own time is over.
    pub(crate) at_most: Option<BootTime>,
    pub(crate) clock: &'a Clock,
    pub(crate) listener: &'a Listener,
    pub(crate) store: &'a str,
    pub(crate) talk: Talk,
}

/// What happens next.
enum Next {
    Child(News),
    Signal(i32),
    Lost(LostReason),
    /// A renewal, or a moment of the timetable: look again.
    Look,
}

/// Until when the guard lets the command live, by the timetable.
pub(crate) fn deadline(table: Timetable, on_lost: OnLost) -> Option<Deadline> {
    let Timetable { term, kill, .. } = table;
    match on_lost {
        OnLost::Kill => Some(Deadline { term: None, kill }),
        OnLost::Ignore => None,
        _ => Some(Deadline { term: Some(term), kill }),
    }
}

impl Watch<'_> {
    /// Returns once the command has ended, and what it left behind if that is to be waited for.
    pub(crate) async fn until_it_ends(mut self, mut child: Child, signals: &mut Signals) -> Ended {
        let alarm = Alarm::new();
        let mut state = State::default();
        let status = loop {
            self.look(&mut state, &mut child);
            if let Some(status) = state.ended
                && state.given_up
            {
                break status;
            }
            let due = self.next_due(&state);
            let next = tokio::select! {
                biased;
                news = child.news() => Next::Child(news),
                signal = signals.next() => Next::Signal(signal),
                reason = self.lost(&state) => Next::Lost(reason),
                () = self.renewed(&state) => Next::Look,
                () = alarm.at(self.clock, due) => Next::Look,
            };
            match next {
                Next::Child(News::Ended { status, by_guard, left, names }) => {
                    state.ended = Some(status);
                    if by_guard && state.stopped.is_none_or(|(why, _)| !why.lost()) {
                        state.stopped = Some((Why::NotRenewed, self.clock.now()));
                        state.killed = true;
                    }
                    if left == 0 || !self.keeps(status, left, &names, &mut child, &mut state) {
                        break status;
                    }
                }
                Next::Child(News::Gone) => {
                    if let Some(status) = state.ended {
                        break status;
                    }
                }
                Next::Child(News::Stopped) => self.stopped(&mut child, &mut state).await,
                Next::Child(News::Replaced(new)) => self.guard_was_killed(new),
                Next::Signal(number) => self.signalled(number, &mut child, &mut state),
                Next::Lost(reason) => self.gone(reason, &mut child, &mut state),
                Next::Look => {}
            }
        };
        let State { stopped, killed, .. } = state;
        Ended { status, stopped, killed }
    }

    /// Whether to go on for what the command left behind.
    fn keeps(
        &self,
        status: ExitStatus,
        left: u32,
        names: &str,
        child: &mut Child,
        state: &mut State,
    ) -> bool {
        let processes = if left == 1 { "1 process".to_owned() } else { format!("{left} processes") };
        let name = self.name;
        let code = exit::like(status);
        if state.stopped.is_some_and(|(why, _)| why.lost()) {
            // What it left behind has no lease either.
            state.kill(child, self.clock.now());
            return true;
        }
        match (self.lease.now(), self.descendants) {
            (None, _) | (_, Descendants::Release) => {
                self.talk.explain(format_args!("left {processes} to themselves: {names}"));
                child.let_go();
                false
            }
            (Some(_), Descendants::Kill) => {
                self.talk.explain(format_args!("killing {processes} left by the command: {names}"));
                state.kill(child, self.clock.now());
                true
            }
            (Some(_), _) => {
                self.talk.notice(
                    "",
                    format_args!(
                        "command ended ({code}) but left {processes}: {names}; still holding {name}. \
                         --descendants release|kill to change"
                    ),
                );
                true
            }
        }
    }

    fn guard_was_killed(&self, new: Result<Reach, String>) {
        let name = self.name;
        let was = format_args!("{name}: the guard of the command was killed");
        match new {
            Ok(Reach::Tree) => self.talk.warn(format_args!("{was}; another one watches now")),
            Ok(Reach::Group) => self.talk.warn(format_args!(
                "{was}; another one watches now. Should this process be killed too, that one does not reach what \
                 has left the command's process group"
            )),
            Err(error) => self.talk.warn(format_args!(
                "{was}, and no other could be started ({error}). Should this process be killed too, nothing stops \
                 the command"
            )),
        }
    }

    async fn lost(&self, state: &State) -> LostReason {
        match self.lease.now() {
            Some(lease) if !state.gone => lease.lost().await.reason,
            _ => std::future::pending().await,
        }
    }

    async fn renewed(&self, state: &State) {
        match self.lease.now() {
            Some(lease) if !state.gone => lease.changed().await,
            _ => std::future::pending().await,
        }
    }

    /// Does what is due. The lease is asked first: a renewal may have come since the alarm was set.
    fn look(&mut self, state: &mut State, child: &mut Child) {
        let now = self.clock.now();
        if let (Some(table), Some(lease)) = (self.table.as_mut(), self.lease.now())
            && table.look(now, lease.remaining())
        {
            let table = *table;
            if let Some(deadline) = deadline(table, self.on_lost).filter(|_| !state.gone) {
                let term = deadline.term.filter(|_| state.stopped.is_none());
                child.beat(Deadline { term, ..deadline });
            }
            if state.warned {
                state.warned = false;
                self.talk.tell(format_args!("{}: the store answers again, the lease is renewed", self.name));
            }
        }
        if let Some(table) = self.table
            && !state.gone
        {
            self.look_at_lease(table, now, state, child);
        }
        if self.at_most.is_some_and(|at| now >= at) && state.stopped.is_none() {
            let name = self.name;
            self.talk.notice("", format_args!("{name}: stopping the command, its time is over (--at-most)"));
            state.ask_to_end(Why::AtMost, now, now.after(self.grace), child);
        }
        if state.kill_at.is_some_and(|at| now >= at) {
            state.kill(child, now);
        }
        let lost = state.stopped.is_some_and(|(why, _)| why.lost());
        if lost && !state.given_up && state.killed_at.is_some_and(|at| now >= at.after(UNKILLABLE)) {
            state.given_up = true;
            if state.ended.is_some() {
                let name = self.name;
                self.talk
                    .warn(format_args!("{name}: something that the command left behind cannot be killed"));
            }
        }
    }

    fn look_at_lease(&self, table: Timetable, now: BootTime, state: &mut State, child: &mut Child) {
        if now >= table.warn && !state.warned && state.stopped.is_none() {
            state.warned = true;
            self.warn_of_silence();
        }
        let Some(Deadline { term, kill }) = deadline(table, self.on_lost) else { return };
        if term.is_some_and(|term| now >= term) && state.stopped.is_none() {
            let text = format_args!(
                "{}: stopping the command, the lease ends in {} and could not be renewed",
                self.name,
                rough(kill.since(now))
            );
            self.talk.notice("", text);
            // The guard need not ask it, too.
            child.beat(Deadline { term: None, kill });
            state.ask_to_end(Why::NotRenewed, now, kill, child);
        }
        if now >= kill {
            // Also while it cleans up after somebody's TERM: the lease does not wait for that.
            match &mut state.stopped {
                Some((why, _)) => *why = Why::NotRenewed,
                stopped @ None => *stopped = Some((Why::NotRenewed, now)),
            }
            state.kill(child, now);
        }
    }

    fn next_due(&self, state: &State) -> Option<BootTime> {
        if state.killed {
            let lost = state.stopped.is_some_and(|(why, _)| why.lost());
            return state.killed_at.filter(|_| lost && !state.given_up).map(|at| at.after(UNKILLABLE));
        }
        let table = self.table.filter(|_| !state.gone);
        let warn = table.filter(|_| !state.warned && state.stopped.is_none()).map(|table| table.warn);
        let of_lease =
            table.and_then(|table| deadline(table, self.on_lost)).map(|Deadline { term, kill }| {
                term.filter(|_| state.stopped.is_none()).map_or(kill, |term| term.min(kill))
            });
        let at_most = self.at_most.filter(|_| state.stopped.is_none());
        [state.kill_at, warn, of_lease, at_most].into_iter().flatten().min()
    }

    fn warn_of_silence(&self) {
        let (Some(lease), store, name) = (self.lease.now(), self.store, self.name) else { return };
        let left = rough(lease.remaining());
        let reason = self.listener.heard().renewal_error.unwrap_or_else(|| "no answer".to_owned());
        self.talk.warn(format_args!(
            "{name}: {store} does not renew the lease, {left} of it left, retrying ({reason})"
        ));
    }

    pub(crate) fn gone(&self, reason: LostReason, child: &mut Child, state: &mut State) {
        state.gone = true;
        let now = self.clock.now();
        if state.killed {
            return;
        }
        let name = self.name;
        if self.on_lost == OnLost::Ignore {
            self.talk.warn(format_args!(
                "{name}: the lease is lost, the command goes on (--on-lost ignore): {reason}"
            ));
            return;
        }
        self.talk.notice("", format_args!("{name}: stopping the command, the lease is lost: {reason}"));
        let why = if reason == LostReason::Expired { Why::NotRenewed } else { Why::Gone(reason) };
        // When its time is over already, there is none left to clean up in.
        let at_once = reason == LostReason::Expired || self.on_lost == OnLost::Kill;
        let kill = if at_once { now } else { now.after(grace_when_gone(self.grace)) };
        child.beat(Deadline { term: None, kill });
        if at_once {
            state.stopped = Some((why, now));
            state.kill(child, now);
        } else {
            state.ask_to_end(why, now, kill, child);
        }
    }

    fn signalled(&self, number: i32, child: &mut Child, state: &mut State) {
        let now = self.clock.now();
        let ends = matches!(number, libc::SIGTERM | libc::SIGINT);
        if ends && state.asked_before {
            self.talk.explain("a second signal: killing the command");
            state.kill_at = Some(now);
            state.stopped.get_or_insert((Why::Asked, now));
            state.kill(child, now);
            return;
        }
        state.asked_before |= ends;
        if number == libc::SIGTERM && state.stopped.is_none() {
            state.stopped = Some((Why::Asked, now));
            state.kill_at = Some(now.after(self.grace));
        }
        // After a loss there is nothing that may make it go on.
        if !(number == libc::SIGCONT && state.stopped.is_some_and(|(why, _)| why.lost())) {
            child.signal(number);
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Half of the lease has gone by in silence, and that was said.
    warned: bool,
    stopped: Option<(Why, BootTime)>,
    /// When KILL follows.
    kill_at: Option<BootTime>,
    killed: bool,
    killed_at: Option<BootTime>,
    /// What cannot be killed is not waited for any more.
    given_up: bool,
    /// TERM or INT came once.
    asked_before: bool,
    /// The lease is lost.
    gone: bool,
    /// The command has ended; what it left behind has not.
    ended: Option<ExitStatus>,
}

impl State {
    fn ask_to_end(&mut self, why: Why, now: BootTime, kill_at: BootTime, child: &mut Child) {
        self.stopped = Some((why, now));
        self.kill_at = Some(self.kill_at.map_or(kill_at, |at| at.min(kill_at)));
        child.signal(libc::SIGTERM);
    }

    fn kill(&mut self, child: &mut Child, now: BootTime) {
        if !self.killed || self.killed_at.is_none() {
            self.killed = true;
            self.killed_at = Some(now);
            child.kill();
        }
    }
}
