//! The watch over a running command: signals are passed on, and it is stopped before its lease ends.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use leasehold::{BootTime, Clock, Lease, LostReason};

use crate::alarm::Alarm;
use crate::child::{Child, News};
use crate::human::rough;
use crate::listener::Listener;
use crate::signals::Signals;
use crate::talk::Talk;
use crate::timetable::{Timetable, grace_when_gone};

/// Why the command was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// Somebody sent us a signal.
    Asked,
    /// The lease was about to end, and could not be renewed.
    NotRenewed,
    /// The lease is gone.
    Gone(LostReason),
}

impl Why {
    /// Whether the lease was the reason.
    pub(crate) fn lost(self) -> bool {
        !matches!(self, Self::Asked)
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

/// Watches one command.
pub(crate) struct Watch<'a> {
    pub(crate) name: &'a str,
    /// `None` for a command that runs without a lock.
    pub(crate) lease: Option<&'a Lease>,
    pub(crate) grace: Duration,
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

impl Watch<'_> {
    /// Returns once the command has ended.
    pub(crate) async fn until_it_ends(self, mut child: Child, signals: &mut Signals) -> io::Result<Ended> {
        let alarm = Alarm::new();
        let mut table =
            self.lease.map(|lease| Timetable::new(self.clock.now(), lease.remaining(), self.grace));
        let mut state = State::default();
        loop {
            self.look(&mut table, &mut state, &child);
            let due = state.next_due(table);
            let next = tokio::select! {
                biased;
                news = child.news() => Next::Child(news),
                signal = signals.next() => Next::Signal(signal),
                reason = self.lost(&state) => Next::Lost(reason),
                () = self.renewed(&state) => Next::Look,
                () = alarm.at(self.clock, due) => Next::Look,
            };
            match next {
                Next::Child(News::Ended) => break,
                Next::Child(News::Stopped) => self.stopped(&mut child, &mut state),
                Next::Signal(number) => self.signalled(number, &child, &mut state),
                Next::Lost(reason) => self.gone(reason, &child, &mut state),
                Next::Look => {}
            }
        }
        if state.stopped.is_some_and(|(why, _)| why.lost()) {
            // What is left of its group has no lease either.
            child.signal(libc::SIGKILL);
        }
        let State { stopped, killed, .. } = state;
        Ok(Ended { status: child.end()?, stopped, killed })
    }

    async fn lost(&self, state: &State) -> LostReason {
        match self.lease {
            Some(lease) if !state.gone => lease.lost().await.reason,
            _ => std::future::pending().await,
        }
    }

    async fn renewed(&self, state: &State) {
        match self.lease {
            Some(lease) if !state.gone => lease.changed().await,
            _ => std::future::pending().await,
        }
    }

    /// Does what is due. The lease is asked first: a renewal may have come since the alarm was set.
    fn look(&self, table: &mut Option<Timetable>, state: &mut State, child: &Child) {
        let now = self.clock.now();
        if let (Some(table), Some(lease)) = (table.as_mut(), self.lease)
            && table.look(now, lease.remaining())
            && state.warned
        {
            state.warned = false;
            self.talk.tell(format_args!("{}: the store answers again, the lease is renewed", self.name));
        }
        if let Some(table) = *table
            && !state.gone
        {
            let left = table.kill.since(now);
            if now >= table.warn && !state.warned && state.stopped.is_none() {
                state.warned = true;
                self.warn_of_silence();
            }
            if now >= table.term && state.stopped.is_none() {
                let name = self.name;
                let text = format_args!(
                    "{name}: stopping the command, the lease ends in {} and could not be renewed",
                    rough(left)
                );
                self.talk.notice("", text);
                state.ask_to_end(Why::NotRenewed, now, table.kill, child);
            }
            if now >= table.kill {
                // Also while it cleans up after somebody's TERM: the lease does not wait for that.
                if let Some((why, _)) = &mut state.stopped {
                    *why = Why::NotRenewed;
                }
                state.kill(child);
            }
        }
        if state.kill_at.is_some_and(|at| now >= at) {
            state.kill(child);
        }
    }

    fn warn_of_silence(&self) {
        let (Some(lease), store, name) = (self.lease, self.store, self.name) else { return };
        let left = rough(lease.remaining());
        let reason = self.listener.heard().renewal_error.unwrap_or_else(|| "no answer".to_owned());
        self.talk.warn(format_args!(
            "{name}: {store} does not renew the lease, {left} of it left, retrying ({reason})"
        ));
    }

    fn gone(&self, reason: LostReason, child: &Child, state: &mut State) {
        state.gone = true;
        let now = self.clock.now();
        if state.killed {
            return;
        }
        let name = self.name;
        self.talk.notice("", format_args!("{name}: stopping the command, the lease is lost: {reason}"));
        if reason == LostReason::Expired {
            // Its time is over already: there is none left to clean up in.
            state.ask_to_end(Why::NotRenewed, now, now, child);
            state.kill(child);
        } else {
            state.ask_to_end(Why::Gone(reason), now, now.after(grace_when_gone(self.grace)), child);
        }
    }

    fn signalled(&self, number: i32, child: &Child, state: &mut State) {
        let now = self.clock.now();
        let ends = matches!(number, libc::SIGTERM | libc::SIGINT);
        if ends && state.asked_before {
            self.talk.explain("a second signal: killing the command");
            state.kill_at = Some(now);
            state.stopped.get_or_insert((Why::Asked, now));
            state.kill(child);
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

    /// The command was stopped, as by Ctrl-Z: so is this process, or the shell would wait for ever. Nothing
    /// renews the lease meanwhile, so that it may be over when both are continued; only then is it known.
    fn stopped(&self, child: &mut Child, state: &mut State) {
        if !child.has_terminal() {
            return;
        }
        let left = self.lease.map_or_else(String::new, |lease| {
            format!("; its lease ends in {} unless continued (fg)", rough(lease.remaining()))
        });
        self.talk.tell(format_args!("{} stopped{left}", self.name));
        child.stop_together();
        match self.lease.map(Lease::check) {
            Some(Err(lost)) => self.gone(lost.reason, child, state),
            Some(Ok(_)) | None => child.go_on(),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// Half of the lease has gone by in silence, and that was said.
    warned: bool,
    stopped: Option<(Why, BootTime)>,
    /// When KILL follows.
    kill_at: Option<BootTime>,
    killed: bool,
    /// TERM or INT came once.
    asked_before: bool,
    /// The lease is lost.
    gone: bool,
}

impl State {
    fn ask_to_end(&mut self, why: Why, now: BootTime, kill_at: BootTime, child: &Child) {
        self.stopped = Some((why, now));
        self.kill_at = Some(self.kill_at.map_or(kill_at, |at| at.min(kill_at)));
        child.signal(libc::SIGTERM);
    }

    fn kill(&mut self, child: &Child) {
        if !self.killed {
            self.killed = true;
            child.signal(libc::SIGKILL);
        }
    }

    fn next_due(&self, table: Option<Timetable>) -> Option<BootTime> {
        if self.killed {
            return None;
        }
        let of_table = table.filter(|_| !self.gone).map(|table| match (self.stopped, self.warned) {
            (Some(_), _) => table.kill,
            (None, true) => table.term,
            (None, false) => table.warn.min(table.term),
        });
        self.kill_at.into_iter().chain(of_table).min()
    }
}
