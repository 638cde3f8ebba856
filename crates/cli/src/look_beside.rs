//! The rows of `status` and the column of `list` that tell what stands beside a lock: marks, runs, pauses.

use std::time::Duration;

use leasehold::config::exact;
use leasehold::{Clock, Snapshot};

use crate::beside::host_of;
use crate::books::Look;
use crate::history::Past;
use crate::human::rough;
use crate::options::Once;
use crate::pause;
use crate::view;

/// The rows of `status`.
pub(crate) fn rows(
    look: &Look,
    once: Option<&Once>,
    limit: Option<Duration>,
    clock: &Clock,
) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    if let Some(mark) = &look.paused {
        rows.push(("paused", pause::said(mark, clock)));
    }
    if let Some(slot) = view::slot(look, once) {
        let now = match &slot.done {
            Some(mark) => format!("done {} ago by {}", rough(mark.age), host_of(&mark.by)),
            None => "not done yet".to_owned(),
        };
        let earlier = look.marks.iter().find(|mark| mark.key != slot.slot);
        let earlier = earlier.map_or_else(String::new, |mark| {
            format!(" · {} done {} ago by {}", mark.key, rough(mark.age), host_of(&mark.by))
        });
        rows.push(("once", format!("{}: {} {now}{earlier}", slot.period, slot.slot)));
    }
    let history = &look.history;
    if !history.recent.is_empty() {
        rows.push(("recent", history.recent.iter().map(past).collect::<Vec<_>>().join(" · ")));
    }
    if let Some(good) = &history.ok {
        let skips = match history.skips {
            0 => String::new(),
            1 => ", skipped once since".to_owned(),
            times => format!(", skipped {times} times since"),
        };
        rows.push(("last ok", format!("ended {} ago on {}{skips}", rough(good.ago), good.host)));
    }
    if let (Some(limit), Some(since)) = (limit, history.without_good_run()) {
        let text = match limit.checked_sub(since) {
            Some(left) => format!("in {} (limit {})", rough(left), exact(limit)),
            None => format!("for {} (limit {})", rough(since - limit), exact(limit)),
        };
        rows.push(("overdue", text));
    }
    rows
}

fn past(past: &Past) -> String {
    let took = rough(Duration::from_millis(past.ms));
    if past.ok() {
        return format!("ok {took}");
    }
    let code = past.code.map_or_else(String::new, |code| format!("exit {code}, "));
    format!("{} {took} ({code}{})", past.words().to_uppercase(), past.host)
}

/// What is said of a lock that nobody holds.
pub(crate) fn note(snapshot: &Snapshot, look: &Look) -> Option<String> {
    if let Some(mark) = &look.paused {
        return Some(pause::said(mark, &Clock::system()));
    }
    snapshot.closed.as_ref().and_then(|closed| closed.note.text().map(str::to_owned))
}
