//! Signs of life of a future that has gathered some of its leases and waits for the others: what it holds meanwhile
//! is renewed only while it is polled.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use leasehold_core::{BootTime, Clock};

/// The pulse of one future.
#[derive(Debug)]
pub(crate) struct Pulse {
    clock: Clock,
    beat: Mutex<(BootTime, Option<Waker>)>,
}

impl Pulse {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        let beat = Mutex::new((clock.now(), None));
        Arc::new(Self { clock, beat })
    }

    /// Called by the future whenever it is polled.
    pub(crate) fn beat(&self, context: &Context<'_>) {
        let beat = (self.clock.now(), Some(context.waker().clone()));
        *self.beat.lock().unwrap_or_else(PoisonError::into_inner) = beat;
    }

    /// Called by the engine before it renews: whether the future was polled in so long a time, and wakes it, so that
    /// one that is well says yes the next time. One that nobody polls must not keep others out for ever with half of
    /// what it wants. (By the time, since one future has the pulse of many leases, which are asked for together.)
    pub(crate) fn shows_life(&self, within: Duration) -> bool {
        let (last, waker) = self.beat.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Outside the lock: a waker may run the future right here.
        if let Some(waker) = waker {
            waker.wake();
        }
        self.clock.now().since(last) <= within || leasehold_core::fault!("half_gathered_lives_on")
    }
}
