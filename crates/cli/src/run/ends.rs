//! What a command is given, and what is said of one that could not run or was cut short.

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use leasehold::{Clock, Code, Lease, LockName, Token};

use crate::exit;
use crate::failure::Failure;
use crate::human::{self, millis, rough};
use crate::job::Held;
use crate::nested::{self, Around};
use crate::plan::Plan;
use crate::script_args::Nested;
use crate::sock::{Door, Facts};
use crate::talk::Talk;

/// Runs the command under the lease of a `run` around this one; returns only if that cannot be.
pub(super) fn under_another(plan: &Plan, around: &Around, talk: Talk) -> Failure {
    if plan.nested == Nested::Fail {
        return around.refuse("--nested fail");
    }
    let who = around.who();
    talk.explain(format_args!(
        "{} is held by a run around this one ({who}): running under its lease",
        plan.name
    ));
    let error = around.become_command(&plan.command);
    Failure { rows: Vec::new(), ..not_started(&plan.command, &error) }
}

/// The socket at which the command may ask. It can do without.
pub(super) fn open_door(talk: Talk) -> Option<Door> {
    match Door::open() {
        Ok(door) => Some(door),
        Err(error) => {
            talk.explain(format_args!("no LEASE_SOCK for the command: {error}"));
            None
        }
    }
}

/// Answers the command for as long as it runs.
pub(super) async fn answer(door: Option<&Door>, plan: &Plan, held: &Held) {
    match door {
        Some(door) => {
            let facts = Facts { name: plan.name.as_str(), store: nested::place(&plan.store), held };
            door.serve(&facts).await;
        }
        None => std::future::pending().await,
    }
}

/// What the command is told of its lease. Without a lease, what an outer one left behind is taken away.
pub(super) fn variables(
    plan: &Plan,
    lease: Option<&Lease>,
    door: Option<&Door>,
    clock: &Clock,
) -> Vec<(&'static str, Option<String>)> {
    // By the wall clock, for people and scripts; what counts is the boot clock.
    let ends =
        |most: Duration| human::utc(clock.wall_micros().saturating_add(millis(most).saturating_mul(1000)));
    let chain = std::env::var(nested::VARIABLE).ok();
    let longer = door
        .zip(lease)
        .and_then(|(door, lease)| nested::longer(chain.as_deref(), lease.token().get(), door.path()));
    vec![
        ("LEASE_SOCK", door.and_then(|door| door.path().to_str()).map(str::to_owned)),
        // Those further out hold what they hold, whether or not this one can be asked.
        (nested::VARIABLE, longer.or(chain)),
        ("LEASE_NAME", Some(plan.name.to_string())),
        ("LEASE_TOKEN", lease.map(|lease| lease.token().to_string())),
        ("LEASE_HOLDER", lease.map(|lease| lease.owner_id().to_owned())),
        ("LEASE_TTL_MS", lease.map(|lease| millis(lease.ttl()).to_string())),
        // Empty rather than missing, so that a script may read it under `set -u`.
        ("LEASE_AT_MOST_AT", Some(plan.at_most.and_then(ends).unwrap_or_default())),
    ]
}

pub(super) fn lost_failure(name: &LockName, token: Option<Token>, ran: Duration, reason: &str) -> Failure {
    let token = token.map_or_else(String::new, |token| format!(" (token {token})"));
    let message = format!("lost {name}{token} after {}: {reason}", rough(ran));
    let mut failure = Failure::new(Code::LOST, exit::LOST, message);
    failure.retryable = true;
    failure.hint("the work may be half done; the next run will do it again")
}

pub(super) fn not_started(command: &[OsString], error: &io::Error) -> Failure {
    let program = command.first().map(|word| human::quoted(word)).unwrap_or_default();
    let (exit, what) = match error.kind() {
        io::ErrorKind::NotFound => (exit::NOT_FOUND, "not found"),
        _ => (exit::NOT_EXECUTABLE, "cannot be executed"),
    };
    let failure = Failure::new(Code::NOT_STARTED, exit, format!("{program}: {what} ({error})"));
    let there = command.first().is_some_and(|word| std::path::Path::new(word).is_file());
    match exit {
        exit::NOT_FOUND if there => {
            failure.hint("the file is there: does its first line name an interpreter that is not?")
        }
        exit::NOT_FOUND => failure.hint("cron searches few folders: write the whole path"),
        _ => failure.hint("chmod +x makes a script executable"),
    }
    .row("effect", "the lock was given back at once")
}

pub(super) fn bug(message: &str) -> Failure {
    Failure::new(Code::BUG, exit::BUG, message)
}
