//! `leasehold config show`, and the first screen.

use std::fmt::Display;

use leasehold::config::{Config, OnFail, OnceAfter, Origin, Setting, exact};
use serde_json::json;

use crate::args::{ConfigArgs, ConfigCommand, Global};
use crate::failure::Failure;
use crate::options::DEFAULT_ZONE;
use crate::talk::{Talk, print};
use crate::{exit, human, plan, settings};

/// Prints each setting, and where it comes from.
pub(crate) fn config(args: ConfigArgs, global: &Global, talk: Talk) -> Result<u8, Failure> {
    let ConfigCommand::Show { name, origin } = args.what;
    let config = settings::config(global)?;
    let name = name.map(|name| settings::name(&name, global.raw_name)).transpose()?;
    let rows = rows(&config, name.as_ref().map(leasehold::LockName::as_str))?;
    let width = |of: fn(&Row) -> &str| rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0);
    let (keys, values) = (width(|row| row.key), width(|row| &row.value));
    for Row { key, value, origin: from } in &rows {
        let line = if talk.json {
            json!({"v": 1, "key": key, "value": value, "origin": from.to_string()}).to_string()
        } else if origin {
            format!("{key:keys$} = {value:values$}   {from}")
        } else {
            format!("{key:keys$} = {value}")
        };
        print(&format!("{}\n", line.trim_end()));
    }
    if !talk.json && origin {
        let files: Vec<_> = config.files().map(|path| path.display().to_string()).collect();
        print(&format!(
            "files read: {}\n",
            if files.is_empty() { "none".to_owned() } else { files.join(", ") }
        ));
    }
    Ok(exit::OK)
}

struct Row {
    key: &'static str,
    value: String,
    origin: Origin,
}

fn rows(config: &Config, name: Option<&str>) -> Result<Vec<Row>, Failure> {
    let store = config.store(name)?;
    let lock = name.map_or_else(|| config.defaults(), |name| config.lock(name));
    let (ttl, busy, down) = plan::DEFAULTS;
    let default = |key, value: &str| Row { key, value: value.to_owned(), origin: Origin::Default };
    Ok(vec![
        Row { key: "store", value: store.to_string(), origin: store.origin.clone() },
        row("namespace", Some(config.namespace()), |text| text.clone())
            .unwrap_or_else(|| default("namespace", "")),
        row("scope", config.scope(), ToString::to_string).unwrap_or_else(|| default("scope", "")),
        Row { key: "timeout", value: exact(store.timeout.value), origin: store.timeout.origin.clone() },
        row("ttl", lock.ttl, |ttl| exact(*ttl)).unwrap_or_else(|| default("ttl", &exact(ttl))),
        row("grace", lock.grace, |grace| exact(*grace))
            .unwrap_or_else(|| default("grace", "10s, at most a third of ttl")),
        row("wait", lock.wait, ToString::to_string).unwrap_or_else(|| default("wait", "")),
        row("fair", lock.fair, ToString::to_string).unwrap_or_else(|| default("fair", "false")),
        row("busy", lock.busy, ToString::to_string).unwrap_or_else(|| default("busy", busy.word())),
        row("store_down", lock.store_down, ToString::to_string)
            .unwrap_or_else(|| default("store_down", down.word())),
        row("note", lock.note, |note| human::harmless(note)).unwrap_or_else(|| default("note", "")),
        row("at_least", lock.at_least, |least| exact(*least)).unwrap_or_else(|| default("at_least", "0")),
        row("once", lock.once, |once| human::harmless(once)).unwrap_or_else(|| default("once", "")),
        row("once_after", lock.once_after, ToString::to_string)
            .unwrap_or_else(|| default("once_after", OnceAfter::Success.word())),
        row("once_keep", lock.once_keep, |keep| exact(*keep))
            .unwrap_or_else(|| default("once_keep", "two periods, 30d for a text")),
        row("tz", lock.tz, |zone| human::harmless(zone)).unwrap_or_else(|| default("tz", DEFAULT_ZONE)),
        row("overdue", lock.overdue, |limit| exact(*limit)).unwrap_or_else(|| default("overdue", "")),
        row("on_fail", lock.on_fail, ToString::to_string)
            .unwrap_or_else(|| default("on_fail", OnFail::Hold.word())),
        row("only_errors", lock.only_errors, ToString::to_string)
            .unwrap_or_else(|| default("only_errors", "false")),
    ])
}

fn row<T>(key: &'static str, setting: Option<Setting<T>>, text: impl FnOnce(&T) -> String) -> Option<Row> {
    setting.map(|Setting { value, origin }| Row { key, value: text(&value), origin })
}

/// What is printed when nothing is asked for.
pub(crate) fn first_screen(global: &Global) -> String {
    // A configuration that cannot be read is told when something is to be done with it.
    let store = settings::config(global).and_then(|config| Ok(config.store(None)?));
    let store: Box<dyn Display> = match store {
        Ok(store) if store.is_default() => {
            let file = human::store(&store.to_string());
            Box::new(format!("Store: {file} (this machine only). Set LEASEHOLD_STORE to share it."))
        }
        Ok(store) => Box::new(format!("Store: {} (from {})", human::store(&store.to_string()), store.origin)),
        Err(failure) => Box::new(failure.text(false)),
    };
    format!(
        "leasehold · one of N servers runs it

  leasehold run report:daily -- ./report.sh          skip if another server has it
  leasehold run deploy --wait 5m -- ./deploy.sh      wait for your turn
  leasehold run report --once daily -- ./report.sh   once a day, whoever comes first
  leasehold list                                     who holds what

{store}
More: leasehold --help · leasehold explain · leasehold doctor
"
    )
}
