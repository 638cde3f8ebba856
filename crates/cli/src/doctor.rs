//! `leasehold doctor`: whether the store is fit to keep locks, one line for each check, and what to do.

use std::sync::Arc;

use leasehold::{Check, Health};
use serde_json::json;

use crate::args::Global;
use crate::care_args::DoctorArgs;
use crate::failure::Failure;
use crate::human::harmless;
use crate::listener::Listener;
use crate::talk::{Talk, print};
use crate::{exit, hold, human, plan, settings};

/// Prints all checks. Exit 0: none has failed; 1: one has; else the store could not be asked.
pub(crate) async fn doctor(args: DoctorArgs, global: &Global, talk: Talk) -> Result<u8, Failure> {
    let name = args.name.map(|name| settings::name(&name, global.raw_name)).transpose()?;
    let name = name.as_ref().map(leasehold::LockName::as_str);
    let config = settings::config(global)?;
    let choice = config.store(name)?;
    let rules = name.map_or_else(|| config.defaults(), |name| config.lock(name));
    let ttl = rules.ttl.map_or(plan::DEFAULTS.0, |ttl| ttl.value);
    let listener = Arc::new(Listener::new(talk));
    let client = hold::open(&config, &choice, None, &listener, talk)
        .await
        .map_err(|error| hold::failure(&error, "nothing was checked", false))?;
    let (checks, code) = match client.checkup(ttl).await {
        Ok(checks) => {
            let failed = checks.iter().any(|check| check.health == Health::Failed);
            (checks, if failed { exit::SICK } else { exit::OK })
        }
        Err(error) => (vec![Check::failed_by("reachable", &error)], Failure::from(&error).exit),
    };
    if talk.level >= 0 {
        let origin = choice.origin.to_string();
        print(&if talk.json {
            object(client.store(), &origin, &checks)
        } else {
            text(client.store(), &origin, &checks)
        });
    }
    hold::close(client, choice.timeout.value, talk).await;
    Ok(code)
}

fn count(checks: &[Check], health: Health) -> usize {
    checks.iter().filter(|check| check.health == health).count()
}

fn text(store: &str, origin: &str, checks: &[Check]) -> String {
    let mut text = format!("store      {} (from {origin})\n", harmless(&human::store(store)));
    for Check { name, health, says, fix, code, .. } in checks {
        let word = match health {
            Health::Ok => "ok",
            Health::Warning => "warn",
            Health::Failed => "FAIL",
            _ => "?",
        };
        let code = code.map_or_else(String::new, |code| format!(" {code}"));
        let about = format!("{}{code}", name.replace('_', " "));
        text.push_str(&format!("{word:5} {about:20} {}\n", harmless(says)));
        for (at, line) in fix.iter().flat_map(|fix| fix.lines()).enumerate() {
            let label = if at == 0 { "fix" } else { "" };
            text.push_str(&format!("        {label:5} {}\n", harmless(line)));
        }
    }
    let look = checks.iter().filter(|check| check.health != Health::Ok).count();
    let must = count(checks, Health::Failed);
    text.push_str(&match (look, must) {
        (0, _) => format!("all {} checks are ok\n", checks.len()),
        (look, 0) => format!("{look} of {} checks need a look, none must be fixed\n", checks.len()),
        (look, must) => format!("{look} of {} checks need a look, {must} must be fixed\n", checks.len()),
    });
    text
}

/// The object of `--json`: every key always there.
fn object(store: &str, origin: &str, checks: &[Check]) -> String {
    let each = |Check { name, health, says, fix, code, .. }: &Check| {
        json!({
            "name": name, "verdict": health.word(), "says": says, "fix": fix,
            "code": code.map(|code| code.to_string()),
        })
    };
    let value = json!({
        "v": 1, "store": store, "origin": origin,
        "failed": count(checks, Health::Failed), "warnings": count(checks, Health::Warning),
        "unknown": count(checks, Health::Unknown),
        "checks": checks.iter().map(each).collect::<Vec<_>>(),
    });
    format!("{value}\n")
}

#[cfg(test)]
mod tests {
    use leasehold::Code;

    use super::*;

    #[test]
    fn checks_stand_in_columns_and_what_to_do_below() {
        let checks = [
            Check::ok("round_trip", "p50 0.4 ms"),
            Check::failed("eviction", Code::EVICTION, "Redis may drop\na lock", "CONFIG SET x\nor y"),
        ];
        assert_eq!(
            text("redis://h:1", "--store", &checks),
            "store      redis://h:1 (from --store)\n\
             ok    round trip           p50 0.4 ms\n\
             FAIL  eviction LH0203      Redis may drop?a lock\n\
             \x20       fix   CONFIG SET x\n\
             \x20             or y\n\
             1 of 2 checks need a look, 1 must be fixed\n"
        );
    }
}
