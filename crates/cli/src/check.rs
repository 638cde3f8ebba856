//! `leasehold check`: whether a lease still holds.

use std::time::Duration;

use serde_json::json;

use crate::args::Global;
use crate::failure::Failure;
use crate::human::{millis, rough};
use crate::script::{self, Held};
use crate::script_args::CheckArgs;
use crate::talk::{Talk, print};
use crate::{exit, hold, settings};

/// Exit 0: it holds; 79: it does not.
pub(crate) async fn check(args: CheckArgs, global: &Global, talk: Talk) -> Result<u8, Failure> {
    let CheckArgs { name, left: least } = args;
    let held = Held::new(name.as_ref(), global.raw_name)?;
    let left = of_the_store(&held, least, global, talk).await?;
    if talk.json {
        let (name, token) = (held.name.as_str(), held.token.get());
        print(&format!("{}\n", json!({"v": 1, "name": name, "token": token, "left_ms": millis(left)})));
    }
    talk.explain(format_args!("{}: held, {} left", held.name, rough(left)));
    Ok(exit::OK)
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
