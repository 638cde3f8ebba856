//! How the guard kills the command's tree: again and again, until nothing is left.

use std::time::Duration;

use leasehold::fault;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, getpid, getppid, kill_process_group};

use super::{Guard, Guarded};
use crate::guard::cgroup::Shelter;
use crate::guard::tree::Roots;

/// Between two rounds of killing: what was killed needs a moment to be gone.
const ROUND: Duration = Duration::from_millis(5);
/// After so many rounds something is there that cannot be killed: look less often.
const QUICK_ROUNDS: u32 = 200;
const SLOW_ROUND: Duration = Duration::from_millis(250);

impl Guard {
    /// Where all that belongs to the command is found.
    pub(super) fn roots(&self) -> Roots {
        match self.guarded {
            Some(Guarded { pid, attached: true, .. }) => {
                // Once `run` is gone, what it had adopted is somebody else's.
                let below = self.run.filter(|run| getppid() == Some(*run));
                Roots { below, command: Some(pid), except: Some(getpid()) }
            }
            _ => Roots::own(),
        }
    }

    /// Kills until nothing is left.
    pub(super) fn kill_tree(&mut self) {
        if fault!("guard_walks_no_tree") {
            if let Some(Guarded { pid, .. }) = self.guarded {
                let _ = kill_process_group(pid, Signal::KILL);
            }
            return;
        }
        for round in 0_u32.. {
            // Anew each time: `run` may die meanwhile.
            let roots = self.roots();
            if let Some(shelter) = &self.shelter {
                shelter.kill();
            }
            let found = roots.kill();
            self.reap_strays();
            if found == 0 && self.shelter.as_ref().is_none_or(Shelter::is_empty) {
                return;
            }
            let pause = if round < QUICK_ROUNDS { ROUND } else { SLOW_ROUND };
            let mut polled = [PollFd::new(&self.changes, PollFlags::IN)];
            let pause = rustix::time::Timespec::try_from(pause).unwrap_or_default();
            // For the pause alone: what changed is looked at by the walk.
            let _ = poll(&mut polled, Some(&pause));
            self.drain_changes();
        }
    }

    /// Lets others in although `run` is frozen and so has the life open: the lock on it is of the file as we
    /// share it, and ends for all who do. Nothing is left that it would protect.
    pub(super) fn end_life(&self) {
        if let Some(life) = &self.life {
            let _ = rustix::fs::flock(life, rustix::fs::FlockOperation::Unlock);
        }
    }
}
