//! The wait for a lease: what is shown meanwhile, and the signals that end it.

use std::sync::Arc;
use std::time::Duration;

use leasehold::config::{Wait, exact};
use leasehold::{BootTime, Busy, Clock, Error, Lease, Leasehold};

use crate::human::{clock as on_a_clock, harmless, ordinal, rough};
use crate::listener::Listener;
use crate::plan::Plan;
use crate::signals::Signals;
use crate::talk::Talk;

/// When a line is written where there is no terminal to rewrite one on: after these, then again and again.
const PLAIN: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(10), Duration::from_secs(60)];
const PLAIN_AGAIN: Duration = Duration::from_secs(300);
/// How often the line on a terminal is drawn anew.
const FRAME: Duration = Duration::from_millis(250);
/// How often the holder is looked at for that line, in frames.
const LOOK_EVERY: u32 = 8;
const SPINNER: [char; 8] = ['⠼', '⠴', '⠦', '⠧', '⠇', '⠏', '⠋', '⠙'];
/// How wide a terminal is taken to be that does not say.
const WIDTH: usize = 80;

/// How a wait ended.
pub(crate) enum Ended {
    Held(Lease),
    Refused(Error),
    Signalled(i32),
}

/// Waits for the lease of a plan, and shows it meanwhile.
pub(crate) async fn acquire(
    client: &Leasehold,
    plan: &Plan,
    acquire: impl Future<Output = Result<Lease, Error>>,
    signals: &mut Signals,
    listener: &Arc<Listener>,
    talk: Talk,
) -> Ended {
    let clock = Clock::system();
    let start = clock.now();
    let mut show = Show { client, plan, listener, talk, start, clock, busy: None, ahead: None, frame: 0 };
    let acquired = {
        let acquire = std::pin::pin!(acquire);
        let show = std::pin::pin!(show.for_ever());
        tokio::select! {
            biased;
            signal = signals.next_ending() => Err(signal),
            lease = acquire => Ok(lease),
            () = show => std::future::pending().await,
        }
    };
    show.wipe();
    match acquired {
        Ok(Ok(lease)) => Ended::Held(lease),
        Ok(Err(error)) => Ended::Refused(error),
        Err(signal) => Ended::Signalled(signal),
    }
}

struct Show<'a> {
    client: &'a Leasehold,
    plan: &'a Plan,
    listener: &'a Listener,
    talk: Talk,
    clock: Clock,
    start: BootTime,
    busy: Option<Busy>,
    /// How many are before us, where somebody else stands in line for us.
    ahead: Option<u32>,
    frame: u32,
}

impl Show<'_> {
    /// Shows the wait until it is dropped.
    async fn for_ever(&mut self) {
        if self.plan.wait.is_none() || self.talk.level < 0 || self.talk.json {
            return std::future::pending().await;
        }
        if self.talk.tty { self.rewritten_line().await } else { self.plain_lines().await }
    }

    async fn rewritten_line(&mut self) {
        // A wait that ends at once flashes nothing.
        tokio::time::sleep(FRAME).await;
        loop {
            if self.frame.is_multiple_of(LOOK_EVERY) {
                self.look().await;
            }
            let spin = SPINNER[self.frame as usize % SPINNER.len()];
            let line = cut(&format!("{spin} {}", self.text()), columns() - 1);
            self.talk.raw(&format!("\r{line}\u{1b}[K"));
            self.frame += 1;
            tokio::time::sleep(FRAME).await;
        }
    }

    async fn plain_lines(&mut self) {
        let due = PLAIN.into_iter().chain((1..).map(|times| PLAIN[2] + PLAIN_AGAIN * times));
        for after in due {
            let waited = self.clock.now().since(self.start);
            tokio::time::sleep(after.saturating_sub(waited)).await;
            self.look().await;
            let text = self.text();
            self.talk.notice("", text);
            self.frame += 1;
        }
    }

    /// Takes the line away again, if one was drawn.
    fn wipe(&self) {
        if self.frame > 0 && self.talk.tty {
            self.talk.raw("\r\u{1b}[K");
        }
    }

    async fn look(&mut self) {
        // What cannot be looked at is not shown; the acquire itself will tell if the store is gone.
        if let Ok(snapshot) = self.client.inspect(&self.plan.name).await {
            let us = self.client.owner();
            let place = snapshot.waiters.iter().position(|waiter| waiter.owner.id() == us.id());
            self.ahead = place.and_then(|place| u32::try_from(snapshot.holders.len() + place).ok());
            self.busy = Some(Busy::from_snapshot(&snapshot, None, us));
        }
    }

    fn text(&self) -> String {
        let name = &self.plan.name;
        let waited = self.clock.now().since(self.start);
        let mut text = format!("waiting for {name}  {}", on_a_clock(waited));
        if let Some(Wait::For(longest)) = self.plan.wait {
            text.push_str(&format!(" / {}", on_a_clock(longest)));
        }
        // The holder itself is one of those ahead.
        if let Some(ahead) = self.listener.heard().ahead.or(self.ahead) {
            text.push_str(&format!(" · {} in line", ordinal(ahead.max(1))));
        }
        if let Some(holder) = self.busy.as_ref().and_then(|busy| busy.holder.as_ref()) {
            let note = holder.note.text().map_or_else(|| holder.program.clone(), |note| format!("{note:?}"));
            let (held, left) = (rough(holder.held), on_a_clock(holder.left));
            text.push_str(&format!(" · held by {} ({note}) for {held}, {left} left on lease", holder.host));
        }
        harmless(&text)
    }
}

/// How wide the terminal is. One that does not know says 0.
fn columns() -> usize {
    match rustix::termios::tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_col > 1 => size.ws_col.into(),
        _ => WIDTH,
    }
}

/// The start of a line that is no longer than this: a line that wraps cannot be rewritten.
fn cut(line: &str, columns: usize) -> String {
    line.chars().take(columns).collect()
}

/// The rows that say who has it, for errors.
pub(crate) fn holder_rows(busy: &Busy) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    if let Some(holder) = &busy.holder {
        let leasehold::Holder { host, user, pid, program, note, held, left, .. } = holder;
        let note = note.text().map_or_else(String::new, |note| format!(" · {note:?}"));
        let (held, left) = (rough(*held), rough(*left));
        let text =
            format!("{host} · {user} · pid {pid} · {program}{note} · held {held}, {left} left on its lease");
        rows.push(("holder", harmless(&text)));
    }
    if let Some(ahead) = busy.ahead.filter(|ahead| *ahead > 1) {
        rows.push(("queue", format!("{ahead} were ahead of you, the holder included")));
    }
    rows
}

/// The headline of a wait that ran out.
pub(crate) fn ran_out(wait: Option<Wait>, waited: Duration, busy: &Busy) -> String {
    let after = match wait {
        Some(Wait::For(longest)) => exact(longest),
        _ => rough(waited),
    };
    format!("still busy after {after}: {}", busy.name)
}
