//! How often a store is asked again that fails or says nothing new, and when to give up.

use std::time::Duration;

use leasehold_core::{BootTime, Cursor, Error, LockName, Op, Result};

use crate::engine::Engine;
use crate::terms;

/// How long to wait before a failed claim is stated again; it doubles up to [`MOST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MOST_PAUSE: Duration = Duration::from_secs(1);

/// A wait that ended sooner than this was none.
const NO_WAIT: Duration = Duration::from_millis(1);
/// So many of those in a row are busy neighbours; more are a store that always says "changed".
const MOST_HASTY: u32 = 16;

/// The patience with which one thing is asked for.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    failing_since: Option<BootTime>,
    pauses: u32,
    /// How many waits in a row ended at once.
    hasty: u32,
}

impl Patience {
    /// The store has answered.
    pub(crate) fn restore(&mut self) {
        *self = Self { hasty: self.hasty, ..Self::default() };
    }

    /// Whether it is time to give up: the store has been silent for too long, or said no for good. What may have been
    /// done all the same is asked again until then, with the same id.
    pub(crate) fn ends(&mut self, engine: &Engine, error: &Error) -> bool {
        if !error.outcome_unknown() {
            // The store's clock may have stepped, which makes a claim look late.
            engine.tick(None);
        }
        let now = engine.clock.now();
        let since = *self.failing_since.get_or_insert(now);
        let silent = now.since(since) >= engine.settings.timeout;
        silent || !(error.is_retryable() || error.outcome_unknown())
    }

    /// How long to wait before the next try: twice as long as before the last one.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.pauses.min(10)).min(MOST_PAUSE);
        self.pauses += 1;
        terms::jitter(pause)
    }

    /// Waits before the next try.
    pub(crate) async fn pause(&mut self, engine: &Engine) {
        let now = engine.clock.now();
        let next = now.after(self.next());
        // The last try is made when the time is up, not some pause later.
        let last =
            self.failing_since.map(|since| since.after(engine.settings.timeout)).filter(|last| *last > now);
        engine.clock.sleep_until(last.map_or(next, |last| last.min(next))).await;
    }

    /// Waits until a standing may be out of date, `until` at the latest; says whether it was the latter.
    pub(crate) async fn listen(
        &mut self,
        engine: &Engine,
        name: &LockName,
        since: &Cursor,
        until: BootTime,
    ) -> bool {
        let started = engine.clock.now();
        let heard = tokio::select! {
            heard = engine.store.changed(name, since) => heard,
            () = engine.clock.sleep_until(until) => return true,
        };
        match heard {
            Ok(()) if engine.clock.now().since(started) >= NO_WAIT => (self.pauses, self.hasty) = (0, 0),
            Ok(()) => {
                self.hasty += 1;
                // A store that always says "changed" must not make us spin.
                if self.hasty > MOST_HASTY {
                    self.pause(engine).await;
                }
            }
            // Not being able to listen is no reason to stop asking.
            Err(error) => {
                engine.asked(Op::Wait, Some(name), started, Some(&error));
                self.pause(engine).await;
            }
        }
        false
    }
}

/// Waits, for somebody who stands in no line, until what was seen of a name may be out of date; for so long at most.
pub(crate) async fn watch(engine: &Engine, name: &LockName, cursor: &Cursor, most: Duration) -> Result<()> {
    let started = engine.clock.now();
    let heard = tokio::select! {
        heard = engine.store.changed(name, cursor) => heard,
        () = engine.clock.sleep_until(started.after(most)) => Ok(()),
    };
    if let Err(error) = &heard {
        engine.asked(Op::Wait, Some(name), started, Some(error));
    }
    heard
}
