//! Waiting for another process that writes: briefly at first, with a jitter of our own, and not for ever.
//!
//! SQLite's own busy handler sleeps in the same steps in every process, so that one of them can lose every
//! race for seconds.

use std::time::Duration;

use crate::fail::Result;

/// For how long a call tries.
const LONGEST: Duration = Duration::from_secs(5);
/// The first pause, about as long as a transaction takes.
const FIRST: Duration = Duration::from_micros(100);
/// No pause is longer.
const PAUSE: Duration = Duration::from_millis(10);

/// Says whether nobody waits for the answer any more.
pub(crate) type Gone<'a> = &'a dyn Fn() -> bool;

/// Tries a step until nobody else is in its way, and nobody waits for it any more, and no longer than 5 s.
pub(crate) fn patiently<T>(gone: Gone<'_>, mut step: impl FnMut() -> Result<T>) -> Result<T> {
    let (mut slept, mut next) = (Duration::ZERO, FIRST);
    loop {
        match step() {
            Err(fail) if fail.busy && slept < LONGEST && !gone() => {
                // The sum of the pauses, and not a clock, since a test may have stopped the clock.
                let pause = next.mul_f64(0.5 + fastrand::f64());
                std::thread::sleep(pause);
                slept += pause;
                next = (next * 2).min(PAUSE);
            }
            done => return done,
        }
    }
}
