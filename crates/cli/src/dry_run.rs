//! `run --dry-run`: what would happen, with real numbers; nothing runs, and nobody is kept out.

use std::time::Duration;

use leasehold::config::exact;
use leasehold::{BootTime, Busy, Clock, Leasehold, Result, Snapshot};
use serde_json::json;

use crate::beside::host_of;
use crate::books::{self, Look};
use crate::failure::rows_text;
use crate::human::{self, harmless, rough};
use crate::pause;
use crate::plan::Plan;
use crate::talk::{Talk, print};
use crate::timetable::Timetable;
use crate::view::{self, State};

/// The library's margin for clocks that run at different rates.
const MARGIN_PERCENT: u32 = 1;
const MARGIN: Duration = Duration::from_millis(2);

/// Prints it.
pub(crate) async fn show(client: &Leasehold, plan: &Plan, clock: &Clock, talk: Talk) -> Result<()> {
    let slot = plan.options.once.as_ref().map(|once| once.slot(clock.wall_micros()));
    let look = books::look(client, &plan.name, slot.as_deref(), false).await?;
    let snapshot = client.inspect(&plan.name).await?;
    let state = State::of(&snapshot);
    let would = would(plan, &look, &snapshot);
    if talk.json {
        let paused = look.paused.as_ref().map(|mark| pause::said(mark, clock));
        let object = json!({
            "v": 1, "name": plan.name.as_str(), "key": snapshot.name.as_str(), "store": client.store(),
            "state": state.word(), "slot": slot, "done": look.done.is_some(), "paused": paused, "would": would,
        });
        print(&format!("{object}\n"));
        return Ok(());
    }
    let mut rows: Vec<(&str, String)> = vec![
        ("store", {
            let scope = view::scope(client.capabilities().reach);
            format!("{} · {scope}-wide · from {}", human::store(client.store()), plan.store.origin)
        }),
        ("key", snapshot.name.to_string()),
        ("state", state.word().to_owned()),
    ];
    let busy = Busy::from_snapshot(&snapshot, None, client.owner());
    if let Some(holder) = &busy.holder {
        rows.push(("holder", format!("{holder} for {}, {} left", rough(holder.held), rough(holder.left))));
    }
    if let Some(mark) = &look.paused {
        rows.push(("pause", pause::said(mark, clock)));
    }
    if let (Some(once), Some(slot)) = (&plan.options.once, &slot) {
        let done = match &look.done {
            Some(mark) => format!("done {} ago by {}", rough(mark.age), host_of(&mark.by)),
            None => "not done yet".to_owned(),
        };
        let wall = human::utc(clock.wall_micros()).unwrap_or_default();
        rows.push((
            "once",
            format!("{}: {slot} {done} (by this host's clock, {wall}, zone {})", once.period, once.zone),
        ));
    }
    rows.push(("command", human::command_line(plan.command.iter().map(std::ffi::OsString::as_os_str))));
    rows.push(("would", would.to_owned()));
    let rows: Vec<_> = rows.into_iter().map(|(label, text)| (label, harmless(&text))).collect();
    let rows = rows_text(rows.iter().map(|(label, text)| (*label, text)));
    print(&format!("{}: nothing is run{rows}\n\n{}", plan.name, time_line(plan)));
    Ok(())
}

/// What the same line without `--dry-run` would do now.
fn would(plan: &Plan, look: &Look, snapshot: &Snapshot) -> &'static str {
    let free = matches!(State::of(snapshot), State::Free | State::Expired) && snapshot.waiters.is_empty();
    match (look.paused.is_some(), look.done.is_some(), free) {
        (true, ..) => "skip: paused",
        (_, true, _) => "skip: done already",
        (.., true) => "run",
        _ if plan.wait.is_some() => "wait",
        _ if plan.busy == leasehold::config::OnBusy::Fail => "fail: busy",
        _ => "skip: busy",
    }
}

fn time_line(plan: &Plan) -> String {
    let Plan { ttl, grace, .. } = *plan;
    let zero = BootTime::from_nanos(0);
    let holds = (ttl - ttl * MARGIN_PERCENT / 100).saturating_sub(MARGIN);
    let table = Timetable::new(zero, holds, grace);
    let after = |at: BootTime| format!("+{:.1}s", at.since(zero).as_secs_f64());
    let third = ttl / 3;
    let mut text = format!("--ttl {} --grace {}", exact(ttl), exact(grace));
    let at_least = plan.options.at_least;
    if !at_least.is_zero() {
        text.push_str(&format!(" --at-least {}", exact(at_least)));
    }
    if let Some(at_most) = plan.at_most {
        text.push_str(&format!(" --at-most {}", exact(at_most)));
    }
    let renewals = [1, 2].map(|times| format!("{:.1}s", (third * times).as_secs_f64())).join(" ");
    text.push_str("\n\n");
    let mut line = |when: &str, what: &str| text.push_str(&format!("{when:>12}  {what}\n"));
    line("0s", "asks the store; the lease counts from before the request is sent");
    line("0s", "the command starts");
    line(
        &format!("{renewals} .."),
        &format!("renewed every {:.1}s while the command lives", third.as_secs_f64()),
    );
    line("", "if no renewal succeeds any more, counted from the last good one:");
    line(&after(zero.after(third)), "first failure; retried until the end");
    line(&after(table.warn), "half of the lease is gone: one warning");
    line(&after(table.term), "SIGTERM to the command's group");
    line(&after(table.kill), "SIGKILL");
    line(&after(zero.after(ttl)), "the lease ends; only now can anybody else enter");
    if !at_least.is_zero() {
        line(&exact(at_least), "earliest that others may enter, even if the command took less");
    }
    if let Some(at_most) = plan.at_most {
        let then = format!("SIGTERM, SIGKILL {} later, exit {}", exact(grace), crate::exit::AT_MOST);
        line(&exact(at_most), &then);
    }
    text
}
