//! The watchdog's alarm: rings at a moment of the boot clock, also when the machine slept over it.

use std::time::Duration;

use leasehold_core::{BootTime, Clock};

/// How often an alarm that cannot follow the boot clock by itself looks at it.
#[cfg(not(target_os = "linux"))]
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// One alarm.
#[derive(Debug)]
pub(crate) struct Timer {
    clock: Clock,
    #[cfg(target_os = "linux")]
    file: Option<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>>,
}

impl Timer {
    /// Must be called on a runtime with I/O.
    #[cfg(target_os = "linux")]
    #[expect(
        deprecated,
        reason = "what replaces it is an unsafe function whose demand, that the descriptor stays open and the \
                  same, holds for an `OwnedFd` that nobody else has"
    )]
    pub(crate) fn new(clock: Clock) -> Self {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        // Tokio's timer counts on CLOCK_MONOTONIC, which stands while the machine sleeps: a laptop that wakes
        // up would tell the holder of a lease that ended an hour ago only when the old timer has run down.
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let file = timerfd_create(TimerfdClockId::Boottime, flags).ok();
        Self { clock, file: file.and_then(|file| tokio::io::unix::AsyncFd::new(file).ok()) }
    }

    /// Must be called on a runtime with timers.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock }
    }

    /// Returns once the boot clock has reached `until`; never without one.
    pub(crate) async fn until(&self, until: Option<BootTime>) {
        let Some(until) = until else { return std::future::pending().await };
        let mut moves = self.clock.moves();
        while self.clock.now() < until {
            tokio::select! {
                () = self.ring(until) => {}
                _ = moves.changed() => {}
            }
        }
    }

    #[cfg(target_os = "linux")]
    async fn ring(&self, until: BootTime) {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        let Some(file) = self.file.as_ref().filter(|_| self.clock.runs()) else {
            return self.clock.sleep_until(until).await;
        };
        let nanos = until.as_nanos().saturating_add_signed(self.clock.ahead_nanos().saturating_neg()).max(1);
        let at = Duration::from_nanos(nanos);
        let value = Timespec {
            tv_sec: i64::try_from(at.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: at.subsec_nanos().into(),
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        if timerfd_settime(file, TimerfdTimerFlags::ABSTIME, &once).is_err() {
            return self.clock.sleep_until(until).await;
        }
        if let Ok(mut ready) = file.readable().await {
            let _rung = rustix::io::read(file, &mut [0; 8]);
            ready.clear_ready();
        }
    }

    #[cfg(not(target_os = "linux"))]
    async fn ring(&self, until: BootTime) {
        let soon = self.clock.now().after(LOOK_EVERY).min(until);
        self.clock.sleep_until(soon).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_rings_when_the_time_has_come_and_when_the_clock_jumps_there() {
        let clock = Clock::system();
        let timer = Timer::new(clock.clone());
        let until = clock.now().after(Duration::from_millis(20));
        timer.until(Some(until)).await;
        assert!(clock.now() >= until);
        let until = clock.now().after(Duration::from_secs(3600));
        let waits = timer.until(Some(until));
        tokio::pin!(waits);
        assert!(tokio::time::timeout(Duration::from_millis(5), &mut waits).await.is_err());
        clock.advance(Duration::from_secs(3600));
        waits.await;
    }
}
