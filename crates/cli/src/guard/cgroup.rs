//! A cgroup of its own for the command, where version 2 can be written to: what is in it is killed at one blow,
//! wherever it went, and whoever its parents are.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::getpid;

use super::tree::{self, Roots};

/// How often a process is tried that cannot be moved.
const TRIES: u32 = 20;
/// What passes between two tries.
const PAUSE: Duration = Duration::from_millis(1);

/// A cgroup below our own.
#[derive(Debug)]
pub(super) struct Shelter(PathBuf);

impl Shelter {
    /// Makes one, where that is allowed.
    pub(super) fn build() -> Option<Self> {
        let own = own_cgroup()?;
        let path = own.join(format!("leasehold-{}", getpid().as_raw_nonzero()));
        fs::create_dir(&path).ok()?;
        let shelter = Self(path);
        // Linux 5.14; without it there is nothing to win.
        if shelter.0.join("cgroup.kill").exists() {
            return Some(shelter);
        }
        shelter.dissolve();
        None
    }

    /// Takes in all that there is of the command; what cannot be moved here is found by walking, and then there is
    /// none.
    pub(super) fn take_in_all(self, roots: Roots) -> Option<Self> {
        let mut known = HashSet::new();
        loop {
            let new: Vec<i32> = roots.living().into_iter().filter(|pid| known.insert(*pid)).collect();
            if new.is_empty() {
                return Some(self);
            }
            if !new.into_iter().all(|pid| self.has_or_outlives(pid)) {
                self.dissolve();
                return None;
            }
        }
    }

    /// One that a guard before us made.
    pub(super) fn at(path: String) -> Self {
        Self(path.into())
    }

    pub(super) fn path(&self) -> Option<&str> {
        self.0.to_str()
    }

    /// Takes a process in; what that starts from then on is in it, too.
    fn take_in(&self, pid: i32) -> bool {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).is_ok()
    }

    /// Takes a process in, or sees it end: one that is about to end cannot be moved any more, and still looks alive.
    fn has_or_outlives(&self, pid: i32) -> bool {
        for _ in 0..TRIES {
            if self.take_in(pid) || !tree::lives(pid) {
                return true;
            }
            std::thread::sleep(PAUSE);
        }
        false
    }

    /// Kills all that is in it.
    pub(super) fn kill(&self) {
        // What it does not reach is found by walking.
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
    }

    /// Whether nothing in it lives.
    pub(super) fn is_empty(&self) -> bool {
        let events = fs::read_to_string(self.0.join("cgroup.events")).unwrap_or_default();
        !events.lines().any(|line| line == "populated 1")
    }

    /// Takes it away; what still lives in it goes where we are.
    pub(super) fn dissolve(&self) {
        if fs::remove_dir(&self.0).is_ok() {
            return;
        }
        if let Some(above) = self.0.parent() {
            let procs = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
            for pid in procs.lines() {
                let _ = fs::write(above.join("cgroup.procs"), pid);
            }
        }
        let _ = fs::remove_dir(&self.0);
    }
}

/// The folder of our own cgroup.
fn own_cgroup() -> Option<PathBuf> {
    let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = membership.lines().find_map(|line| line.strip_prefix("0::/"))?.to_owned();
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let folder = mount_point(&mounts)?.join(path);
    // In a container the path may count from elsewhere than the mount: only where we stand ourselves is ours.
    let here = fs::read_to_string(folder.join("cgroup.procs")).ok()?;
    let own = getpid().as_raw_nonzero().to_string();
    here.lines().any(|line| line == own).then_some(folder)
}

fn mount_point(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let is_ours = back.split_whitespace().next() == Some("cgroup2");
        // A blank in it would be written as an escape, and is in no mount point of a cgroup that there is.
        is_ours.then(|| front.split_whitespace().nth(4).map(|path| Path::new(path).to_owned()))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_point_is_found() {
        let mounts = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - tmpfs tmpfs rw\n\
            31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point(mounts).unwrap(), Path::new("/sys/fs/cgroup/unified"));
        assert_eq!(mount_point("30 24 0:26 / /proc rw - proc proc rw\n"), None);
    }
}
