//! `leasehold pause`, `resume` and `forget`: what people do to marks.

use std::sync::Arc;
use std::time::Duration;

use leasehold::config::Pattern;
use leasehold::{Clock, Leasehold, Mark, MarkKind, Note};
use serde_json::{Value, json};

use crate::args::Global;
use crate::books::{self, Make, Standing, Take};
use crate::failure::Failure;
use crate::human::{harmless, millis, quoted, rough, utc_seconds};
use crate::listener::Listener;
use crate::mark_args::{ForgetArgs, PauseArgs, ResumeArgs};
use crate::options::Once;
use crate::talk::{Talk, print};
use crate::{exit, hold, settings, view};

const NOTHING_DONE: &str = "nothing was changed";

/// What a pause says of itself: `paused until .. by alice@web-1 ("..")`.
pub(crate) fn said(mark: &Mark, clock: &Clock) -> String {
    let text: Value = serde_json::from_str(&mark.text).unwrap_or(Value::Null);
    let by = text["by"].as_str().unwrap_or(&mark.by);
    let note = text["note"].as_str().map_or_else(String::new, |note| format!(" ({note:?})"));
    harmless(&format!("paused until {} by {by}{note}", until(mark.lasting, clock)))
}

/// The end of a pause by this host's clock, for people.
pub(crate) fn until(lasting: Duration, clock: &Clock) -> String {
    utc_seconds(clock.wall_micros().saturating_add(millis(lasting).saturating_mul(1000))).unwrap_or_default()
}

async fn open(name: Option<&str>, global: &Global, talk: Talk) -> Result<(Leasehold, Duration), Failure> {
    let config = settings::config(global)?;
    let choice = config.store(name)?;
    let listener = Arc::new(Listener::new(talk));
    let client = hold::open(&config, &choice, None, &listener, talk).await;
    Ok((client.map_err(|error| failed(&error))?, choice.timeout.value))
}

fn failed(error: &leasehold::Error) -> Failure {
    hold::failure(error, NOTHING_DONE, false)
}

/// Keeps everybody out of all names that match, for a while. Who holds one may finish.
pub(crate) async fn pause(args: PauseArgs, global: &Global, talk: Talk) -> Result<u8, Failure> {
    let PauseArgs { pattern, lasting, note } = args;
    let pattern = Pattern::parse(&pattern)?;
    let note = Note::parse(note.as_deref().unwrap_or_default())
        .map_err(|error| Failure::usage(leasehold::Code::VALUE, format!("--note: {error}")))?;
    let (client, timeout) = open(Some(pattern.as_str()), global, talk).await?;
    let owner = client.owner();
    let text = json!({"v": 1, "by": format!("{}@{}", owner.user, owner.host), "note": note.text()});
    let name = books::pauses(&client)?;
    let key = pattern.as_str().to_owned();
    let mark = Mark {
        kind: MarkKind::Pause,
        name: name.clone(),
        key: key.clone(),
        by: owner.id(),
        text: text.to_string(),
        lasting,
        age: Duration::ZERO,
    };
    // A pause of the same pattern is replaced: the later word counts.
    client.with_ledger(Take { kind: MarkKind::Pause, name, key }).await.map_err(|error| failed(&error))?;
    client.with_ledger(Make(mark)).await.map_err(|error| failed(&error))?;
    let end = until(lasting, &Clock::system());
    let held = held(&client, &pattern).await.map_err(|error| failed(&error))?;
    if talk.json {
        let held: Vec<_> = held.iter().map(|(name, _)| name).collect();
        print(&format!("{}\n", json!({"v": 1, "paused": pattern.as_str(), "until": end, "held": held})));
    } else if talk.level >= 0 {
        let mut text = format!("paused {} until {end}\n", pattern.as_str());
        for (_, line) in &held {
            text.push_str(&format!("  {}; it may finish, nobody else may start\n", harmless(line)));
        }
        print(&text);
    }
    hold::close(client, timeout, talk).await;
    Ok(exit::OK)
}

/// Who holds a name that matches: the name, and the same in words.
async fn held(client: &Leasehold, pattern: &Pattern) -> leasehold::Result<Vec<(String, String)>> {
    let mut held = Vec::new();
    for full in client.list(pattern.prefix()).await? {
        let name = view::typed(client, full.as_str());
        if !pattern.matches(name) {
            continue;
        }
        let snapshot = client.inspect(name).await?;
        if let Some(holder) = snapshot.holders.first().and_then(|entry| view::holder(client, entry)) {
            let line = format!("{name} is held by {} ({})", holder.host, rough(holder.held));
            held.push((name.to_owned(), line));
        }
    }
    Ok(held)
}

/// Ends a pause.
pub(crate) async fn resume(args: ResumeArgs, global: &Global, talk: Talk) -> Result<u8, Failure> {
    let pattern = Pattern::parse(&args.pattern)?;
    let (client, timeout) = open(Some(pattern.as_str()), global, talk).await?;
    let name = books::pauses(&client)?;
    let key = pattern.as_str().to_owned();
    let take = Take { kind: MarkKind::Pause, name: name.clone(), key };
    let stood = client.with_ledger(take).await.map_err(|error| failed(&error))?;
    let rest = client.with_ledger(Standing { kind: MarkKind::Pause, name }).await;
    let rest = rest.map_err(|error| failed(&error))?;
    if talk.json {
        print(&format!("{}\n", json!({"v": 1, "resumed": pattern.as_str(), "was_paused": stood})));
    } else if talk.level >= 0 {
        let shown = pattern.as_str();
        let mut text =
            if stood { format!("resumed {shown}\n") } else { format!("{shown} was not paused as such\n") };
        for mark in rest {
            text.push_str(&format!("  {} is still {}\n", harmless(&mark.key), said(&mark, &Clock::system())));
        }
        print(&text);
    }
    hold::close(client, timeout, talk).await;
    Ok(exit::OK)
}

/// Drops the mark that something was done.
pub(crate) async fn forget(args: ForgetArgs, global: &Global, talk: Talk) -> Result<u8, Failure> {
    let ForgetArgs { name, once, tz } = args;
    let name = settings::name(&name, global.raw_name)?;
    let config = settings::config(global)?;
    let Some(once) = Once::new(once, tz, &config.lock(name.as_str()))? else {
        return Err(Failure::usage(
            leasehold::Code::VALUE,
            "forget what? no --once is given, nor does a rule have one",
        )
        .hint(format!("leasehold forget {} --once daily", quoted(name.as_str().as_ref()))));
    };
    let (client, timeout) = open(Some(name.as_str()), global, talk).await?;
    let slot = once.slot(Clock::system().wall_micros());
    let take = Take { kind: MarkKind::Once, name: books::full(&client, &name)?, key: slot.clone() };
    let stood = client.with_ledger(take).await.map_err(|error| failed(&error))?;
    if talk.json {
        print(&format!("{}\n", json!({"v": 1, "name": name.as_str(), "slot": slot, "was_done": stood})));
    } else if talk.level >= 0 {
        print(&if stood {
            format!("forgot that {name} was done for {slot}; the next run will run it\n")
        } else {
            format!("{name} is not marked as done for {slot}; there was nothing to forget\n")
        });
    }
    hold::close(client, timeout, talk).await;
    Ok(exit::OK)
}
