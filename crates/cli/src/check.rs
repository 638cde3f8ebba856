//! `leasehold check`: whether a lease still holds, asked of the `run` around it, else of the store.

use std::path::PathBuf;
use std::time::Duration;

use leasehold::Code;
use serde_json::{Value, json};

use crate::args::Global;
use crate::ask::{self, Question};
use crate::failure::Failure;
use crate::human::{millis, rough};
use crate::script::{self, Held};
use crate::script_args::CheckArgs;
use crate::talk::{Talk, print};
use crate::{exit, hold, settings};

/// Why an answer of the `run` around us says no.
const GONE: &str = "the run around this command has lost it";

/// Exit 0: it holds; 79: it does not.
pub(crate) async fn check(args: CheckArgs, global: &Global, talk: Talk) -> Result<u8, Failure> {
    let CheckArgs { name, left: least } = args;
    let held = Held::new(name.as_ref(), global.raw_name)?;
    let answer = match of_the_run(&held, least, global, talk).await {
        Some(answer) => answer,
        None => of_the_store(&held, least, global, talk).await,
    };
    let left = answer?;
    if talk.json {
        let (name, token) = (held.name.as_str(), held.token.get());
        print(&format!("{}\n", json!({"v": 1, "name": name, "token": token, "left_ms": millis(left)})));
    }
    talk.explain(format_args!("{}: held, {} left", held.name, rough(left)));
    Ok(exit::OK)
}

/// The answer of the `run` around us, if there is one and it is about this lease.
async fn of_the_run(
    held: &Held,
    least: Option<Duration>,
    global: &Global,
    talk: Talk,
) -> Option<Result<Duration, Failure>> {
    let path = std::env::var_os("LEASE_SOCK").map(PathBuf::from).filter(|path| path.is_absolute())?;
    let look = Question { line: "GET /lease", details: None };
    let answer = match ask::ask(&path, look, ask::SOON).await {
        Ok(answer) => answer,
        Err(error) => {
            talk.explain(format_args!("LEASE_SOCK does not answer ({error}): asking the store"));
            return None;
        }
    };
    let ours = answer["name"] == held.name.as_str() && answer["token"] == held.token.get();
    if !ours {
        talk.explain("LEASE_SOCK is about another lease: asking the store");
        return None;
    }
    let left = match understood(held, &answer) {
        Ok(left) => left,
        Err(failure) => return Some(Err(failure)),
    };
    let Some(least) = least.filter(|least| left < *least) else { return Some(Ok(left)) };
    let details = json!({"token": held.token.get(), "left_ms": millis(least)});
    let renew = Question { line: "POST /renew", details: Some(&details) };
    // Where the store is asked, an answer may take as long as the store may be silent.
    let silence = settings::config(global).and_then(|config| Ok(config.store(Some(held.name.as_str()))?));
    let silence = silence.map_or(leasehold::config::DEFAULT_TIMEOUT, |choice| choice.timeout.value);
    match ask::ask(&path, renew, silence + ask::SOON).await {
        Ok(answer) => Some(understood(held, &answer)),
        Err(error) => {
            let message = format!("the run around this command does not answer: {error}");
            let failure = Failure::new(Code::UNREACHABLE, exit::UNAVAILABLE, message);
            Some(Err(failure.row("lease", format!("held, {} left", rough(left)))))
        }
    }
}

/// How much is left, as an answer says.
fn understood(held: &Held, answer: &Value) -> Result<Duration, Failure> {
    let left = Duration::from_millis(answer["left_ms"].as_u64().unwrap_or(0));
    if answer["state"] == "lost" || left.is_zero() {
        return Err(held.gone(answer["reason"].as_str().unwrap_or(GONE)));
    }
    let problem = &answer["problem"];
    match (problem["code"].as_str().and_then(Code::find), problem["message"].as_str()) {
        (Some(code), Some(message)) => {
            let exit = problem["exit"].as_u64().and_then(|exit| u8::try_from(exit).ok()).unwrap_or(exit::BUG);
            let failure = Failure::new(code, exit, message);
            Err(failure.row("lease", format!("held, {} left", rough(left))))
        }
        _ => Ok(left),
    }
}

async fn of_the_store(
    held: &Held,
    least: Option<Duration>,
    global: &Global,
    talk: Talk,
) -> Result<Duration, Failure> {
    let config = settings::config(global)?;
    let (client, timeout) = script::open(&config, &held.name, talk, |builder| builder).await?;
    let answer = async {
        let (clock, asked) = (client.clock(), client.clock().now());
        let snapshot = client.inspect(&held.name).await.map_err(|error| held.failed(&error))?;
        let entry = snapshot.holders.iter().find(|entry| entry.token == Some(held.token));
        // Whether it holds now, only the store can say: with a margin of our own it could be renewed after a no.
        let Some(entry) = entry.filter(|entry| !entry.left.is_zero()) else {
            return Err(held.gone("it ran out, was given back, or was ended by somebody"));
        };
        // For how long it will, our clock says, from before we asked and less what it may be slow.
        let slow = entry.ttl / 100 + Duration::from_millis(2);
        let left = entry.left.saturating_sub(slow).saturating_sub(clock.now().since(asked));
        let Some(least) = least.filter(|least| left < *least) else { return Ok(left) };
        let lease = held.resume(&client).await?;
        let ensured = lease.ensure(least).await.map_err(|error| held.failed(&error));
        let left = lease.remaining();
        lease.keep();
        ensured.map(|()| left)
    };
    let answer = answer.await;
    hold::close(client, timeout, talk).await;
    answer
}
