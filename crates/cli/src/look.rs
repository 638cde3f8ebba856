//! `leasehold status` and `leasehold list`: data on stdout, talk on stderr.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use comfy_table::{ContentArrangement, Table, presets};
use leasehold::config::{Config, Pattern, exact};
use leasehold::{Clock, Code, Entry, Leasehold, Snapshot};

use crate::args::{Global, ListArgs, StatusArgs};
use crate::books::{self, Look};
use crate::failure::{Failure, rows_text};
use crate::human::{self, clock as on_a_clock, harmless, rough};
use crate::listener::Listener;
use crate::options::Once;
use crate::talk::{Talk, print};
use crate::view::{self, State};
use crate::{exit, hold, look_beside, settings};

const NOTHING_SHOWN: &str = "nothing is known of the locks in it";

/// The client, and how long to wait for its close.
async fn open(config: &Config, name: Option<&str>, talk: Talk) -> Result<(Leasehold, Duration), Failure> {
    let choice = config.store(name)?;
    let listener = Arc::new(Listener::new(talk));
    let client = hold::open(config, &choice, None, &listener, talk)
        .await
        .map_err(|error| hold::failure(&error, NOTHING_SHOWN, false))?;
    Ok((client, choice.timeout.value))
}

/// One lock in full. Exit 0: somebody has it, 1: nobody, 2: nobody may.
pub(crate) async fn status(args: StatusArgs, global: &Global, talk: Talk) -> Result<u8, Failure> {
    let name = settings::name(&args.name, global.raw_name)?;
    let config = settings::config(global)?;
    let (client, timeout) = open(&config, Some(name.as_str()), talk).await?;
    let clock = Clock::system();
    let asked = clock.now();
    let snapshot =
        client.inspect(&name).await.map_err(|error| hold::failure(&error, NOTHING_SHOWN, false))?;
    let took = clock.now().since(asked);
    let beside = books::look(&client, &name, None, true)
        .await
        .map_err(|error| hold::failure(&error, NOTHING_SHOWN, false))?;
    let rules = config.lock(name.as_str());
    let once = Once::new(None, None, &rules)?;
    let state = State::with(&snapshot, &beside);
    if talk.level < 0 {
        // The exit code says it.
    } else if talk.json {
        print(&format!("{}\n", view::object(&client, &snapshot, &beside, once.as_ref())));
    } else {
        let limit = rules.overdue.map(|limit| limit.value);
        let more = look_beside::rows(&beside, once.as_ref(), limit, &clock);
        print(&format!("{}\n", in_full(&client, &snapshot, state, more, took)));
    }
    let code = match state {
        State::Free => exit::FREE,
        State::Paused => exit::PAUSED,
        _ => exit::OK,
    };
    hold::close(client, timeout, talk).await;
    Ok(code)
}

fn in_full(
    client: &Leasehold,
    snapshot: &Snapshot,
    state: State,
    more: Vec<(&'static str, String)>,
    took: Duration,
) -> String {
    let name = view::typed(client, snapshot.name.as_str());
    let mut text = format!("{name:46} {}", state.word().to_uppercase());
    if let Some((token, entry)) = snapshot.holders.first().and_then(|entry| Some((entry.token?, entry))) {
        text.push_str(&format!("   token {token}   {}", rough(entry.age)));
    }
    let mut rows: Vec<(&str, String)> = Vec::new();
    for entry in &snapshot.holders {
        if view::is_foreign(entry) {
            rows.extend(foreign(entry));
            continue;
        }
        let owner = &entry.owner;
        let note = entry.note.text().map_or_else(String::new, |note| format!(" · {note:?}"));
        rows.push((
            "holder",
            format!("{} · {} · pid {} · {}{note}", owner.host, owner.user, owner.pid, owner.program),
        ));
        let (renewed, left) = (rough(entry.renewed), rough(entry.left));
        let times = if entry.renewals == 1 { "time" } else { "times" };
        let renewed = match entry.renewals {
            0 => format!("taken {renewed} ago"),
            renewals => format!("renewed {renewed} ago ({renewals} {times})"),
        };
        rows.push(("lease", format!("{}, {renewed}, {left} left", exact(entry.ttl))));
    }
    if let Some(closed) = &snapshot.closed {
        let why = closed.note.text().map_or_else(String::new, |note| format!(" · {note:?}"));
        rows.push(("shut", format!("for another {} by {}{why}", rough(closed.left), closed.by.host)));
    }
    if !snapshot.waiters.is_empty() {
        let waiters = snapshot.waiters.iter().enumerate();
        let waiters = waiters
            .map(|(index, entry)| format!("{}. {} {}", index + 1, entry.owner.host, on_a_clock(entry.age)));
        let waiters: Vec<_> = waiters.collect();
        rows.push(("waiting", format!("{}     {}", waiters.len(), waiters.join("   "))));
    }
    rows.extend(more);
    let (store, scope) = (human::store(client.store()), view::scope(client.capabilities().reach));
    let millis = took.as_secs_f64() * 1000.0;
    rows.push(("store", format!("{store} · {scope}-wide · asked in {millis:.1} ms")));
    let rows: Vec<_> = rows.into_iter().map(|(label, text)| (label, harmless(&text))).collect();
    text.push_str(&rows_text(rows.iter().map(|(label, text)| (*label, text))));
    text
}

/// A holder of whom no more is known than what it left in the store.
fn foreign(entry: &Entry) -> [(&'static str, String); 2] {
    let lease = if entry.never_ends() {
        "without an end: it stays until somebody deletes it; look whether its holder lives".to_owned()
    } else {
        format!("{} left", rough(entry.left))
    };
    [("holder", format!("another client of this lock, known by {:?}", entry.owner.tag)), ("lease", lease)]
}

/// All locks that somebody holds or waits for, or those that match.
pub(crate) async fn list(args: ListArgs, global: &Global, talk: Talk) -> Result<u8, Failure> {
    let patterns: Result<Vec<_>, _> = args.patterns.iter().map(|text| Pattern::parse(text)).collect();
    let patterns = patterns?;
    let config = settings::config(global)?;
    let (client, timeout) = open(&config, None, talk).await?;
    let failed = |error: &leasehold::Error| hold::failure(error, NOTHING_SHOWN, false);
    let mut names = BTreeSet::new();
    let prefixes: BTreeSet<&str> = if patterns.is_empty() {
        BTreeSet::from([""])
    } else {
        patterns.iter().map(Pattern::prefix).collect()
    };
    for prefix in prefixes {
        names.extend(client.list(prefix).await.map_err(|error| failed(&error))?);
    }
    let mut shown = Vec::new();
    for full in &names {
        let name = view::typed(&client, full.as_str());
        if patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(name)) {
            let snapshot = match client.inspect(name).await {
                Ok(snapshot) => snapshot,
                // What another program keeps under one name does not hide the others.
                Err(error) if error.code() == Code::FOREIGN => {
                    talk.warn(&error);
                    continue;
                }
                Err(error) => return Err(failed(&error)),
            };
            let beside = books::look_at(&client, full).await.map_err(|error| failed(&error))?;
            let once = Once::new(None, None, &config.lock(name))?;
            shown.push((snapshot, beside, once));
        }
    }
    if talk.json {
        let lines = shown.iter().map(|(snapshot, beside, once)| {
            format!("{}\n", view::object(&client, snapshot, beside, once.as_ref()))
        });
        print(&lines.collect::<String>());
    } else {
        print(&table(&client, &shown));
        let store = human::store(client.store());
        let locks = if shown.len() == 1 { "lock" } else { "locks" };
        talk.tell(format_args!("{} {locks} · {store}", shown.len()));
    }
    hold::close(client, timeout, talk).await;
    Ok(exit::OK)
}

fn table(client: &Leasehold, shown: &[(Snapshot, Look, Option<Once>)]) -> String {
    if shown.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["NAME", "STATE", "HOLDER", "HELD", "LEFT", "WAIT", "TOKEN", "LAST OK", "NOTE"]);
    for (snapshot, beside, _) in shown {
        let entry = snapshot.holders.first();
        let first = entry.and_then(|entry| view::holder(client, entry));
        let stranger = entry.filter(|entry| view::is_foreign(entry)).map(|entry| entry.owner.host.clone());
        let dash = || "-".to_owned();
        let more = snapshot.holders.len().saturating_sub(1);
        let more = if more == 0 { String::new() } else { format!(" +{more}") };
        let note = entry.and_then(|entry| entry.note.text().map(|note| format!("{note:?}")));
        let closed = snapshot.closed.as_ref();
        table.add_row([
            view::typed(client, snapshot.name.as_str()).to_owned(),
            State::with(snapshot, beside).word().to_owned(),
            first
                .as_ref()
                .map(|holder| harmless(&format!("{}/{}{more}", holder.host, holder.pid)))
                .or(stranger)
                .unwrap_or_else(dash),
            first.as_ref().map_or_else(dash, |holder| on_a_clock(holder.held)),
            match entry.map(|entry| entry.left).or(closed.map(|closed| closed.left)) {
                Some(Duration::MAX) => "never".to_owned(),
                left => left.map_or_else(dash, on_a_clock),
            },
            snapshot.waiters.len().to_string(),
            first.as_ref().map_or_else(dash, |holder| holder.token.to_string()),
            beside.history.ok.as_ref().map_or_else(dash, |good| format!("{} ago", rough(good.ago))),
            note.or_else(|| look_beside::note(snapshot, beside))
                .map_or_else(String::new, |note| harmless(&note)),
        ]);
    }
    for column in 0..9 {
        if let Some(column) = table.column_mut(column) {
            column.set_padding((0, 2));
        }
    }
    let text = table.to_string();
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}
