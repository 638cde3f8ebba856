//! One node of a quorum: a store that is asked with a deadline of its own, and whether its word counts.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{
    BootTime, Clock, LockName, Op, Result, ServerTime, Store, StoreError, StoreErrorKind, Token, fault,
};

/// What a clock may gain or lose against ours: one percent, as everywhere, and the grain of both.
const GRAIN: Duration = Duration::from_millis(20);

/// A node.
pub(super) struct Node {
    pub(super) store: Arc<dyn Store>,
    pub(super) name: String,
    clock: Clock,
    /// For how long it has no say after its clock jumped.
    sits_out: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Its clock, when it last answered.
    seen: Option<Seen>,
    /// Until when it has no say, and why.
    mute: Option<(BootTime, &'static str)>,
}

/// By how much its clock is ahead of our boot clock, in microseconds: at least and at most, as the time for which an
/// answer was under way leaves open.
#[derive(Debug, Clone, Copy)]
struct Seen {
    least: i128,
    most: i128,
    at: BootTime,
}

fn micros(time: BootTime) -> i128 {
    i128::from(time.as_nanos() / 1000)
}

impl Node {
    pub(super) fn new(store: Arc<dyn Store>, clock: Clock, sits_out: Duration) -> Self {
        let name = store.to_string();
        Self { store, name, clock, sits_out, state: Mutex::default() }
    }

    /// Asks it; no answer within so long is an error whose outcome is unknown.
    pub(super) async fn ask<T>(
        &self,
        op: Op,
        name: Option<&LockName>,
        limit: Duration,
        ask: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        if let Some(answer) = self.clock.within(limit, ask).await {
            return answer;
        }
        let error = StoreError::new(StoreErrorKind::Unavailable, op, &self.name)
            .saying(format!("no answer in {limit:.1?}"))
            .unknown();
        Err(name.map_or(error.clone(), |name| error.about(name)).into())
    }

    /// Takes note of its clock, as it was in an answer to what was sent then.
    pub(super) fn tell_time(&self, sent: BootTime, server: Option<ServerTime>) {
        let Some(server) = server else { return };
        let now = self.clock.now();
        let server = i128::from(server.as_micros());
        let seen = Seen { least: server - micros(now), most: server - micros(sent), at: now };
        let mut state = self.state();
        if let Some(before) = state.seen {
            let since = now.since(before.at);
            let drift = i128::try_from((since / 100 + GRAIN).as_micros()).unwrap_or(i128::MAX);
            let jumped = seen.least > before.most + drift || seen.most < before.least - drift;
            if jumped && !fault!("quorum_trusts_clocks") {
                state.mute = Some((now.after(self.sits_out), "its clock jumped"));
            }
        }
        state.seen = Some(seen);
    }

    /// What its clock shows now, as far as is known.
    pub(super) fn time(&self) -> Option<ServerTime> {
        let seen = self.state().seen?;
        let now = micros(self.clock.now()) + seen.least;
        u64::try_from(now).ok().map(ServerTime::from_micros)
    }

    /// Why its word does not count now, if it does not.
    pub(super) fn mute(&self) -> Option<&'static str> {
        let mut state = self.state();
        let (until, why) = state.mute?;
        if self.clock.now() >= until {
            state.mute = None;
            return None;
        }
        Some(why)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The highest counter that was seen of each name, and how often others and we have got in each other's way.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Known {
    pub(super) highest: Option<Token>,
    pub(super) conflicts: u32,
}
