//! Servers for the cases of the suite: each has one to itself, and the next case gets it emptied.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::host::Host;
use super::ways::Way;

/// Servers that no case uses now, by the way to them.
static IDLE: Mutex<Vec<(Way, Host)>> = Mutex::new(Vec::new());

fn idle() -> MutexGuard<'static, Vec<(Way, Host)>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server for one case. It goes back once this is dropped and nobody else has it.
#[derive(Debug)]
pub(crate) struct Borrowed(Way, Option<Arc<Host>>);

impl Borrowed {
    /// An idle one, emptied, or one that `start` starts.
    pub(crate) fn or_start(
        way: Way,
        start: impl FnOnce() -> io::Result<Host>,
    ) -> io::Result<(Self, Arc<Host>)> {
        let found = {
            let mut idle = idle();
            let at = idle.iter().position(|(other, _)| *other == way);
            at.map(|at| idle.swap_remove(at).1)
        };
        let server = found.map_or_else(start, Ok)?;
        server.empty()?;
        let server = Arc::new(server);
        Ok((Self(way, Some(server.clone())), server))
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // A case that hung still has it, and may go on to use it.
        if let Some(server) = self.1.take().and_then(|server| Arc::try_unwrap(server).ok()) {
            idle().push((self.0, server));
        }
    }
}

/// Ends all idle servers: what is static is never dropped.
pub(crate) fn end() {
    idle().clear();
}
