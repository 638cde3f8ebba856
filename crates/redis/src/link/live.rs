//! One connection: when it counts as dead; and what speaks against what the server at its other end granted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use leasehold_core::{BootTime, Clock, Doubt};
use redis::aio::MultiplexedConnection;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::config::Place;
use crate::sentinel::Found;

/// After so many requests without an answer a connection counts as dead: no client library notices one on which
/// nothing arrives any more.
const MOST_MISSES: u32 = 2;

/// What speaks against the server still having what it granted.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    pub(super) cut: Notify,
    pub(super) replaced: Notify,
}

impl Doubts {
    /// Raises one.
    pub(crate) fn raise(&self, doubt: Doubt) {
        match doubt {
            Doubt::Cut => self.cut.notify_one(),
            Doubt::Replaced => self.replaced.notify_one(),
        }
    }

    /// Returns once there is one.
    pub(crate) async fn next(&self) -> Doubt {
        tokio::select! {
            biased;
            () = self.replaced.notified() => Doubt::Replaced,
            () = self.cut.notified() => Doubt::Cut,
        }
    }
}

/// One connection.
pub(crate) struct Live {
    pub(super) connection: MultiplexedConnection,
    pub(super) at: Found,
    pub(super) misses: AtomicU32,
    /// Given up by us. The task that drives it knows, too: then its end is no news.
    pub(super) dead: Arc<AtomicBool>,
    /// That task, where it is ours.
    driver: Option<AbortHandle>,
    /// Until then the server may have forgotten what was granted before its start, and is still held.
    pub(super) shut_until: Option<BootTime>,
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(driver) = &self.driver {
            driver.abort();
        }
    }
}

/// A request under way. Who has a deadline of his own drops it before ours: that it was not answered counts all the
/// same, or a connection that has gone silent would be kept for ever.
pub(super) struct Asking<'a> {
    pub(super) live: &'a Live,
    pub(super) clock: &'a Clock,
    pub(super) since: BootTime,
    /// Shorter waits say nothing. `None` once it is over.
    pub(super) least: Option<Duration>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.least.is_some_and(|least| self.clock.now().since(self.since) >= least) {
            self.live.miss();
        }
    }
}

impl Live {
    pub(super) fn new(
        connection: MultiplexedConnection,
        at: Found,
        dead: Arc<AtomicBool>,
        driver: Option<AbortHandle>,
    ) -> Self {
        Self { connection, at, misses: AtomicU32::new(0), dead, driver, shut_until: None }
    }

    pub(super) fn miss(&self) {
        if self.misses.fetch_add(1, Ordering::SeqCst) + 1 >= MOST_MISSES {
            self.give_up();
        }
    }

    /// Whoever asks next gets a new one.
    pub(crate) fn give_up(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }

    /// Where the server is.
    pub(crate) fn place(&self) -> &Place {
        self.at.door.place()
    }

    pub(super) fn is_usable(&self) -> bool {
        !self.dead.load(Ordering::SeqCst) && self.at.is_current()
    }
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("dead", &self.dead).finish_non_exhaustive()
    }
}
