//! The first words with a server: whether it is one to be asked for leases, and whether it may grant any yet.

use std::time::Duration;

use leasehold_core::{StoreErrorKind, fault};

use super::Link;
use super::live::Live;
use crate::fail::{Fail, Result};
use crate::script::{Answer, MEMBERS, text};

/// What a server says of itself.
#[derive(Debug, Default)]
struct Told {
    /// Which process it is.
    run_id: Option<String>,
    /// For how long it has run.
    uptime: Option<Duration>,
}

impl Link {
    /// Learns what server this is, and refuses one that is not to be asked for leases. Gives which process it is.
    pub(super) async fn greet(&self, live: &mut Live) -> Result<Option<String>> {
        let door = live.at.door.clone();
        // A server that does not want this client may say so, or hang up, at the first request only.
        let first = |fail: Fail| door.failed(fail);
        self.refuse_replicas(live).await.map_err(first)?;
        let Told { run_id, uptime } = self.ask_itself(live).await.map_err(first)?;
        if let Some(run_id) = &run_id {
            self.peers.meet(&self.label, run_id).map_err(Fail::not_sent)?;
        }
        self.agree(live).await.map_err(Fail::not_sent)?;
        if !self.restart_delay.is_zero() {
            let Some(uptime) = uptime else {
                return Err(Fail::new(
                    StoreErrorKind::Denied,
                    "restart_delay= needs to know when the server was started",
                )
                .help("give this user the right +info"));
            };
            // It tells whole seconds, of which the last may just have begun.
            let left = (self.restart_delay + Duration::from_secs(1)).saturating_sub(uptime);
            live.shut_until = (!left.is_zero()).then(|| self.clock.now().after(left));
        }
        Ok(run_id)
    }

    async fn refuse_replicas(&self, live: &Live) -> Result<()> {
        let mut answer = match self.call_on(live, &redis::cmd("ROLE")).await {
            Ok(value) => Answer::new(value)?,
            // Not every user may ask; then the first write tells.
            Err(fail) if fail.is("NOPERM") => return Ok(()),
            Err(fail) => return Err(fail),
        };
        let what = match answer.text()?.as_str() {
            "master" => return Ok(()),
            "slave" if fault!("sentinel_trusts_role") => return Ok(()),
            "slave" => format!("a replica of {}:{}", answer.text()?, answer.natural()?),
            role => format!("no master: its role is {role}"),
        };
        self.doubts.replaced.notify_one();
        Err(live
            .at
            .told(Fail::new(StoreErrorKind::Unavailable, format!("this server is {what}")).word("READONLY"))
            .help("name the master in the URL, or let Sentinel find it: redis+sentinel:"))
    }

    async fn ask_itself(&self, live: &Live) -> Result<Told> {
        match self.call_on(live, redis::cmd("INFO").arg("server")).await {
            Ok(value) => {
                let told = text(value)?;
                let line = |start| told.lines().find_map(|line| line.strip_prefix(start)).map(str::trim);
                let uptime = line("uptime_in_seconds:").and_then(|seconds| seconds.parse().ok());
                Ok(Told {
                    run_id: line("run_id:").map(str::to_owned),
                    uptime: uptime.map(Duration::from_secs),
                })
            }
            Err(fail) if fail.is("NOPERM") => Ok(Told::default()),
            Err(fail) => Err(fail),
        }
    }

    /// Compares the list of nodes with those that other clients came with, where this is one of them. A server on which
    /// that cannot be noted (by its rights, or for want of memory) keeps locks all the same.
    async fn agree(&self, live: &Live) -> Result<()> {
        let Some(members) = &self.members else { return Ok(()) };
        let (keys, words) = members.words();
        match self.run_on(live, &MEMBERS, &keys, &words).await {
            Ok(told) => members.hear(&self.label, told),
            Err(fail) if fail.outcome_unknown() => Err(fail),
            Err(_) => Ok(()),
        }
    }

    /// Whether the server, which was started a short while ago, may grant anything yet.
    pub(crate) fn may_grant(&self, live: &Live) -> Result<()> {
        if fault!("redis_grants_at_once") {
            return Ok(());
        }
        let left = live.shut_until.map_or(Duration::ZERO, |end| end.since(self.clock.now()));
        if left.is_zero() {
            return Ok(());
        }
        let message = format!(
            "the server was started a moment ago, and may have forgotten what is held: nothing is granted for another \
             {left:.1?} (restart_delay={:?})",
            self.restart_delay,
        );
        Err(Fail::new(StoreErrorKind::Unavailable, message)
            .help(
                "wait: what was granted before has run out by then; restart_delay=0s is for a server that keeps each \
                 write at once (appendfsync always)",
            ))
    }
}
