//! What became of the command and of what it left behind, for `run` to hear.

use std::io::Read as _;

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, getpid, waitid, waitpid};

use super::{Guard, Guarded};
use crate::guard::link::News;
use crate::guard::tree::{self, Roots};

impl Guard {
    pub(super) fn drain_changes(&mut self) {
        let mut bytes = [0; 64];
        while matches!((&self.changes).read(&mut bytes), Ok(count) if count > 0) {}
    }

    /// Reaps what was adopted. The command itself stays a zombie to the end: so long its number, and that of its
    /// group, are its own, and `run` may signal it.
    pub(super) fn reap_strays(&self) -> Vec<i32> {
        let command = self.guarded.filter(|guarded| !guarded.attached).map(|guarded| guarded.pid);
        let mut left = Vec::new();
        for child in tree::children(getpid().as_raw_nonzero().get()) {
            let Some(pid) = Pid::from_raw(child).filter(|pid| Some(*pid) != command) else { continue };
            if !matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(Some(_))) {
                left.push(child);
            }
        }
        left
    }

    /// Tells what became of the command. The guard stays: should `run` be frozen before it gives the lease back,
    /// somebody must let others in.
    pub(super) fn look_at_children(&mut self) {
        self.drain_changes();
        let left = self.reap_strays();
        let Some(Guarded { pid, attached: false, ended }) = self.guarded else { return };
        if ended {
            if left.is_empty() && !self.done {
                self.done = true;
                let _ = self.link.tell(&News::Gone);
            }
            return;
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        if let Ok(Some(end)) = waitid(WaitId::Pid(pid), options) {
            self.guarded = Some(Guarded { pid, attached: false, ended: true });
            let status = tree::status(&end);
            // What it left may be on its way out just now, and then is nothing to speak of.
            let command = pid.as_raw_nonzero().get();
            let (count, names) =
                if left.is_empty() { (0, String::new()) } else { Roots::own().described(Some(command)) };
            let by_guard = self.asked || self.killed;
            let left = count.max(u32::from(!left.is_empty()));
            self.done = left == 0;
            let _ = self.link.tell(&News::Ended { status, by_guard, left, names });
            return;
        }
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        if waitid(WaitId::Pid(pid), options).is_ok_and(|status| status.is_some()) {
            let _ = self.link.tell(&News::Stopped);
        }
    }
}
