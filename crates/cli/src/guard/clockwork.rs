//! The guard's alarm: a timer that counts while the machine sleeps, and can be polled with the rest.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use leasehold::BootTime;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// Becomes readable at a moment of the boot clock, until it is set anew.
#[derive(Debug)]
pub(super) struct Alarm(OwnedFd);

impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self(timerfd_create(TimerfdClockId::Boottime, flags)?))
    }

    /// Goes off at `at`, or never.
    pub(super) fn set(&self, at: Option<BootTime>) {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let at = at.map(|at| {
            // Zero would disarm it.
            let nanos = i64::try_from(at.as_nanos()).unwrap_or(i64::MAX).max(1);
            Timespec { tv_sec: nanos / 1_000_000_000, tv_nsec: nanos % 1_000_000_000 }
        });
        let time = Itimerspec { it_interval: zero, it_value: at.unwrap_or(zero) };
        // A time that is in range cannot fail.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &time);
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
