//! Which moment it is for all processes of this kernel, and which boot and machine this is.

use std::time::Duration;

use leasehold_core::{BootTime, Clock, Code, Moment, ServerTime};
use rustix::io::Errno;

use crate::fail::{Fail, Result};

/// The boot clock as every process of this kernel reads it, whatever time namespace it lives in.
#[derive(Debug, Clone)]
pub(crate) struct HostTime {
    clock: Clock,
    /// How far the clock of this time namespace is ahead of the kernel's own, in nanoseconds.
    offset: i64,
}

impl HostTime {
    pub(crate) fn new(clock: Clock) -> Result<Self> {
        Ok(Self { clock, offset: namespace_offset()? })
    }

    pub(crate) fn now(&self) -> BootTime {
        let nanos = self.clock.now().as_nanos();
        BootTime::from_nanos(nanos.saturating_add_signed(self.offset.saturating_neg()))
    }

    /// Judges what has run out, and dates tokens and answers.
    pub(crate) fn moment(&self) -> Moment {
        Moment { boot: self.now(), wall: ServerTime::from_micros(self.wall_micros()) }
    }

    pub(crate) fn wall_micros(&self) -> u64 {
        self.clock.wall_micros()
    }

    /// Returns once `until` has come.
    pub(crate) async fn sleep_until(&self, until: BootTime) {
        let here = until.as_nanos().saturating_add_signed(self.offset);
        self.clock.sleep_until(BootTime::from_nanos(here)).await;
    }
}

/// SQLite's integers are signed; the moments of 292 years are enough for everybody.
pub(crate) fn to_sql(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

/// A moment as it was kept.
pub(crate) fn from_sql(nanos: i64) -> BootTime {
    BootTime::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

/// A duration as it is kept.
pub(crate) fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// A duration as it was kept.
pub(crate) fn duration(nanos: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

/// Reads a small file of the kernel or of the system; `None` where there is none.
fn read(path: &str) -> Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            Err(Fail::io(format_args!("cannot read {path}"), errno))
        }
    }
}

/// A container may run in a time namespace whose boot clock is hours ahead of its neighbour's, and both may
/// use one file.
#[cfg(target_os = "linux")]
fn namespace_offset() -> Result<i64> {
    // The kernel tells the offsets that a child would get; they are ours only outside the one moment between
    // `unshare` and the `fork` or `exec` that follows it.
    let link = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).ok();
    if link("time") != link("time_for_children") {
        return Err(Fail::protocol(Code::FOREIGN, "this process is between two time namespaces")
            .help("open the store after the fork that follows unshare(CLONE_NEWTIME)"));
    }
    let text = read("/proc/self/timens_offsets")?.unwrap_or_default();
    Ok(parse_offset(&text).unwrap_or(0))
}

#[cfg(not(target_os = "linux"))]
fn namespace_offset() -> Result<i64> {
    Ok(0)
}

#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only Linux has time namespaces"))]
fn parse_offset(text: &str) -> Option<i64> {
    let line = text.lines().find_map(|line| line.strip_prefix("boottime"))?;
    let mut numbers = line.split_whitespace();
    let seconds: i64 = numbers.next()?.parse().ok()?;
    let nanos: i64 = numbers.next()?.parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

/// What names the present run of this kernel.
#[cfg(target_os = "linux")]
pub(crate) fn boot_id() -> Result<String> {
    let path = "/proc/sys/kernel/random/boot_id";
    read(path)?.filter(|id| !id.is_empty()).ok_or_else(|| Fail::io(path, Errno::NOENT))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn boot_id() -> Result<String> {
    let asked = std::process::Command::new("/usr/sbin/sysctl").args(["-n", "kern.bootsessionuuid"]).output();
    let id = asked.ok().and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    let id = id.trim();
    if id.is_empty() {
        return Err(Fail::io("cannot learn which boot this is", Errno::NOENT));
    }
    Ok(id.to_owned())
}

/// What names this machine; empty where nothing does.
pub(crate) fn machine_id() -> String {
    // A machine without one, or one that hides it from us, is told by its boot id alone.
    read("/etc/machine-id").ok().flatten().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_a_time_namespace_is_read_with_its_sign() {
        let text = "monotonic           0         0\nboottime       86400  250000000\n";
        assert_eq!(parse_offset(text), Some(86_400_250_000_000));
        assert_eq!(parse_offset("boottime -2 500000000"), Some(-1_500_000_000));
        assert_eq!(parse_offset(""), None);
    }
}
