//! A timer that counts while the machine sleeps, as leases do.

use std::time::Duration;

use leasehold::{BootTime, Clock};

/// Wakes at a moment of the boot clock.
///
/// tokio's timers stop with the machine: after an hour of sleep they would still wait for what was left, while
/// the lease is long over. A timerfd on `CLOCK_BOOTTIME` goes off as soon as the machine is awake.
#[derive(Debug)]
pub(crate) struct Alarm {
    #[cfg(target_os = "linux")]
    timer: Option<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>>,
}

impl Alarm {
    /// An alarm that is not set. Where the kernel has no such timer, it falls back on tokio's.
    #[cfg(target_os = "linux")]
    pub(crate) fn new() -> Self {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags).ok();
        Self { timer: timer.and_then(|timer| crate::sys::readable(timer).ok()) }
    }

    /// An alarm that is not set.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new() -> Self {
        Self {}
    }

    /// Returns at `at`, or never.
    ///
    /// # Cancel safety
    ///
    /// Nothing happens when it is dropped; each call sets the alarm anew.
    pub(crate) async fn at(&self, clock: &Clock, at: Option<BootTime>) {
        let Some(at) = at else { return std::future::pending().await };
        loop {
            let left = at.since(clock.now());
            if left.is_zero() {
                return;
            }
            self.nap(left).await;
        }
    }

    #[cfg(target_os = "linux")]
    async fn nap(&self, left: Duration) {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let time = Itimerspec { it_interval: zero, it_value: Timespec::try_from(left).unwrap_or(zero) };
        if let Some(timer) = &self.timer
            && timerfd_settime(timer, TimerfdTimerFlags::empty(), &time).is_ok()
            && let Ok(mut ready) = timer.readable().await
        {
            let mut count = [0; 8];
            let _ = rustix::io::read(timer, &mut count);
            ready.clear_ready();
        } else {
            tokio::time::sleep(left).await;
        }
    }

    #[cfg(not(target_os = "linux"))]
    async fn nap(&self, left: Duration) {
        tokio::time::sleep(left).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_off_in_time_and_can_be_set_anew() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (clock, alarm) = (Clock::system(), Alarm::new());
            let start = clock.now();
            for millis in [30, 10] {
                let until = clock.now().after(Duration::from_millis(millis));
                let far = clock.now().after(Duration::from_secs(3600));
                tokio::select! {
                    biased;
                    () = alarm.at(&clock, Some(far)) => panic!("an hour has passed"),
                    () = tokio::time::sleep(Duration::from_millis(5)) => {}
                }
                alarm.at(&clock, Some(until)).await;
                assert!(clock.now() >= until);
            }
            assert!(clock.now().since(start) < Duration::from_secs(10));
            alarm.at(&clock, Some(start)).await;
        });
    }
}
