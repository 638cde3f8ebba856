//! The clock that decides whether a lease still holds, and the one that dates tokens.

use std::collections::BTreeSet;
use std::fmt;
use std::future::poll_fn;
use std::ops::Bound;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;

/// A moment on the boot clock: nanoseconds since this machine started, counting on while it sleeps.
///
/// It never leaves the machine: durations cross the wire, instants don't.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BootTime(u64);

impl BootTime {
    /// The moment so many nanoseconds after the start of the machine.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the machine started.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The moment `duration` later; the end of the scale (584 years after the start) past that.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// The moment `duration` earlier; the start of the machine before that.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }

    /// How long ago `earlier` was; zero if it is still to come.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A moment by a store's own clock: microseconds since 1970 as that store counts them.
///
/// Only a store compares two of them; the client hands back what it was told, moved on by its own boot clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerTime(u64);

impl ServerTime {
    /// The moment so many microseconds after 1970.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The moment `duration` later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)))
    }
}

/// The clock of a client, a store or a test.
///
/// - [`Clock::system`] reads `CLOCK_BOOTTIME` on Linux. `std::time::Instant` is `CLOCK_MONOTONIC` there, which
///   stops while the machine sleeps, as the store's clock does not: a laptop would wake up believing in leases
///   that ended an hour ago.
/// - [`Clock::frozen`] stands still until a test moves it.
///
/// Either can be [moved](Clock::advance), which wakes all who wait on it.
#[derive(Clone)]
pub struct Clock(Arc<Inner>);

struct Inner {
    runs: bool,
    /// Added to the boot clock and to the wall clock, in nanoseconds.
    ahead: AtomicI64,
    /// Added to the wall clock alone: a step by an administrator or by NTP.
    stepped: AtomicI64,
    moved: watch::Sender<()>,
    /// What is waited for on a clock that stands still, each with a number of its own.
    alarms: Mutex<BTreeSet<(BootTime, u64)>>,
    next_alarm: AtomicU64,
}

impl Inner {
    fn alarms(&self) -> MutexGuard<'_, BTreeSet<(BootTime, u64)>> {
        self.alarms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One wait on a clock that stands still; forgotten with the wait.
struct Alarm<'a> {
    clock: &'a Inner,
    entry: (BootTime, u64),
}

impl<'a> Alarm<'a> {
    fn set(clock: &'a Inner, until: BootTime) -> Self {
        let entry = (until, clock.next_alarm.fetch_add(1, Ordering::Relaxed));
        clock.alarms().insert(entry);
        Self { clock, entry }
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        self.clock.alarms().remove(&self.entry);
    }
}

/// Where a frozen clock starts: far enough from zero that tests can look back.
const FROZEN_BOOT: u64 = 1_000_000_000_000;
/// 2026-01-01, for frozen clocks.
const FROZEN_WALL_MICROS: u64 = 1_767_225_600_000_000;

impl Clock {
    /// The machine's clock.
    #[must_use]
    pub fn system() -> Self {
        Self::new(true)
    }

    /// A clock that stands still until it is [advanced](Self::advance).
    #[must_use]
    pub fn frozen() -> Self {
        Self::new(false)
    }

    fn new(runs: bool) -> Self {
        let (ahead, stepped) = (AtomicI64::new(0), AtomicI64::new(0));
        let (moved, alarms, next_alarm) = (watch::Sender::new(()), Mutex::default(), AtomicU64::new(0));
        Self(Arc::new(Inner { runs, ahead, stepped, moved, alarms, next_alarm }))
    }

    /// Now, by the boot clock.
    #[must_use]
    pub fn now(&self) -> BootTime {
        let base = if self.0.runs { boot_nanos() } else { FROZEN_BOOT };
        BootTime(base.saturating_add_signed(self.0.ahead.load(Ordering::SeqCst)))
    }

    /// Microseconds since 1970 by the wall clock. It dates tokens and nothing else: wall clocks step.
    #[must_use]
    pub fn wall_micros(&self) -> u64 {
        let base = if self.0.runs { wall_micros() } else { FROZEN_WALL_MICROS };
        let moved = self.0.ahead.load(Ordering::SeqCst) + self.0.stepped.load(Ordering::SeqCst);
        base.saturating_add_signed(moved / 1000)
    }

    /// Moves the clock on, as a test or as a machine that slept, and wakes all who wait on it.
    pub fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_nanos()).unwrap_or(i64::MAX);
        self.0.ahead.fetch_add(by, Ordering::SeqCst);
        self.0.moved.send_replace(());
    }

    /// Steps the wall clock alone, by microseconds, as an administrator would. No lease may care.
    pub fn step_wall(&self, micros: i64) {
        self.0.stepped.fetch_add(micros.saturating_mul(1000), Ordering::SeqCst);
    }

    /// Tells of each [`advance`](Self::advance).
    #[must_use]
    pub fn moves(&self) -> watch::Receiver<()> {
        self.0.moved.subscribe()
    }

    /// Whether it runs by itself.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.0.runs
    }

    /// How far this clock is ahead of the machine's, in nanoseconds.
    #[must_use]
    pub fn ahead_nanos(&self) -> i64 {
        self.0.ahead.load(Ordering::SeqCst)
    }

    /// The next moment to come that somebody waits for, on a clock that stands still; none on one that runs. A test
    /// that moves from one to the next skips nothing that was due between.
    #[must_use]
    pub fn next_alarm(&self) -> Option<BootTime> {
        let now = self.now();
        self.0.alarms().range((Bound::Excluded((now, u64::MAX)), Bound::Unbounded)).next().map(|(at, _)| *at)
    }

    /// What `future` gives, unless that takes longer than `limit`. For the silence of somebody who was asked: of a
    /// machine that slept meanwhile it counts only the time awake. Must be called on a tokio runtime with its timer
    /// on.
    ///
    /// # Cancel safety
    ///
    /// `future` is dropped with it.
    pub async fn within<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        if self.0.runs {
            return tokio::time::timeout(limit, future).await.ok();
        }
        let mut future = pin!(future);
        let mut late = pin!(self.sleep_until(self.now().after(limit)));
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => late.as_mut().poll(context).map(|()| None),
        })
        .await
    }

    /// Returns once the boot clock has reached `until`.
    ///
    /// The timer behind it stops while the machine sleeps and may come late after that; what it wakes decides
    /// by [`now`](Self::now). Must be called on a tokio runtime with its timer on.
    ///
    /// # Cancel safety
    ///
    /// Nothing happens when it is dropped.
    pub async fn sleep_until(&self, until: BootTime) {
        let mut moves = self.moves();
        let mut alarm = None;
        loop {
            let left = until.since(self.now());
            if left.is_zero() {
                return;
            }
            if !self.0.runs && alarm.is_none() {
                alarm = Some(Alarm::set(&self.0, until));
            }
            // The sender lives as long as `self`, so `changed` ends only when the clock moved.
            let moved = async { drop(moves.changed().await) };
            if self.0.runs {
                drop(tokio::time::timeout(left, moved).await);
            } else {
                moved.await;
            }
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.runs { "Clock(system)" } else { "Clock(frozen)" })
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

fn boot_nanos() -> u64 {
    use rustix::time::{ClockId, clock_gettime};
    #[cfg(target_os = "linux")]
    let id = if crate::fault!("clock_monotonic") { ClockId::Monotonic } else { ClockId::Boottime };
    // macOS counts sleep in CLOCK_MONOTONIC itself.
    #[cfg(not(target_os = "linux"))]
    let id = ClockId::Monotonic;
    let time = clock_gettime(id);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

fn wall_micros() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frozen_clock_moves_only_when_told() {
        let clock = Clock::frozen();
        let (start, wall) = (clock.now(), clock.wall_micros());
        assert_eq!(clock.now(), start);
        clock.advance(Duration::from_secs(31));
        assert_eq!(clock.now().since(start), Duration::from_secs(31));
        assert_eq!(clock.wall_micros() - wall, 31_000_000);
        clock.step_wall(-3_600_000_000);
        assert_eq!(clock.now().since(start), Duration::from_secs(31), "a wall step is not time");
    }

    #[test]
    fn the_system_clock_runs() {
        let clock = Clock::system();
        let (start, wall) = (clock.now(), clock.wall_micros());
        while clock.now() == start || clock.wall_micros() == wall {}
        assert!(clock.now() > start);
    }

    #[tokio::test]
    async fn a_move_wakes_who_waits() {
        let clock = Clock::frozen();
        let until = clock.now().after(Duration::from_secs(3600));
        let waits = clock.sleep_until(until);
        tokio::pin!(waits);
        assert!(tokio::time::timeout(Duration::from_millis(10), &mut waits).await.is_err());
        clock.advance(Duration::from_secs(3600));
        waits.await;
    }

    #[tokio::test]
    async fn a_frozen_clock_knows_what_is_waited_for_until_nobody_waits() {
        let clock = Clock::frozen();
        assert_eq!(clock.next_alarm(), None);
        let (soon, late) =
            (clock.now().after(Duration::from_secs(1)), clock.now().after(Duration::from_secs(9)));
        let mut waits = Box::pin(clock.sleep_until(soon));
        let answer = clock.within(Duration::from_secs(9), std::future::pending::<()>());
        tokio::pin!(answer);
        std::future::poll_fn(|context| {
            assert!(waits.as_mut().poll(context).is_pending() && answer.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        assert_eq!(clock.next_alarm(), Some(soon));
        drop(waits);
        assert_eq!(clock.next_alarm(), Some(late));
        clock.advance(Duration::from_secs(9));
        assert_eq!(answer.await, None);
        assert_eq!(clock.next_alarm(), None);
        assert_eq!(
            clock.within(Duration::ZERO, async { 1 }).await,
            Some(1),
            "an answer that is there is no silence"
        );
    }
}
