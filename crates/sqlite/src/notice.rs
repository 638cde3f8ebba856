//! What a wait watches besides its mailbox: the lives in its way, and for onlookers the log of the database.

use std::collections::HashMap;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::unix::pipe::Receiver;

use crate::config::beside;
use crate::life::{RunDir, is_over};

/// When an onlooker looks again after something was written to the log. What is written becomes visible a little
/// later, through shared memory, of which the system tells nobody: a look in between sees nothing new, and no second
/// event follows. The writer may even have been stopped right there, so the last pause goes on for ever.
const LOOK_AGAIN: [Duration; 4] =
    [Duration::from_millis(1), Duration::from_millis(20), Duration::from_millis(200), Duration::from_secs(1)];
/// How often an onlooker looks where the system does not tell of changes to files.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The lives that a wait watches: each open for reading, so that the kernel tells when its owner is gone.
#[derive(Debug, Default)]
pub(crate) struct Ends(HashMap<Arc<str>, Receiver>);

impl Ends {
    /// Watches these lives and no others. Says whether one of them is over already: it may have ended between
    /// the look that named it and now.
    pub(crate) fn watch(&mut self, dir: &RunDir, lives: &[Arc<str>]) -> bool {
        self.0.retain(|life, _| lives.contains(life));
        if leasehold_core::fault!("sqlite_ignores_life") {
            return false;
        }
        let mut over = false;
        for life in lives {
            if self.0.contains_key(life) {
                continue;
            }
            // Without a watch the timer of the wait has to do: the lease runs out at the latest.
            let Ok(fd) = dir.watch(life) else { continue };
            over |= is_over(&fd);
            if let Ok(end) = Receiver::from_owned_fd(fd) {
                self.0.insert(life.clone(), end);
            }
        }
        over
    }

    /// Returns when one of them has ended.
    pub(crate) async fn any(&mut self) {
        poll_fn(|context| self.poll(context)).await;
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut bytes = [0; 64];
        for end in self.0.values_mut() {
            let mut read = ReadBuf::new(&mut bytes);
            // Nobody writes: what can be read is the end, once the last descriptor for writing is closed.
            while let Poll::Ready(done) = Pin::new(&mut *end).poll_read(context, &mut read) {
                if done.is_err() || read.filled().is_empty() {
                    return Poll::Ready(());
                }
                read.clear();
            }
        }
        Poll::Pending
    }
}

/// Tells an onlooker, who stands in no line, that something was committed.
#[derive(Debug)]
pub(crate) struct Commits {
    #[cfg(target_os = "linux")]
    log: Option<AsyncFd<OwnedFd>>,
    /// How often was looked again since the last event.
    again: AtomicUsize,
}

impl Commits {
    #[cfg(target_os = "linux")]
    #[expect(
        deprecated,
        reason = "what took its place is unsafe, against types that lie about their descriptor: `OwnedFd` does not"
    )]
    pub(crate) fn watch(file: &Path) -> Self {
        use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
        let watch = || {
            let fd = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
            add_watch(&fd, beside(file, "-wal"), WatchFlags::MODIFY | WatchFlags::DELETE_SELF)?;
            // A file that was replaced has another log.
            add_watch(&fd, file, WatchFlags::ATTRIB | WatchFlags::MOVE_SELF)?;
            AsyncFd::with_interest(fd, Interest::READABLE)
        };
        Self { log: watch().ok(), again: AtomicUsize::new(0) }
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn watch(file: &Path) -> Self {
        let _ = beside(file, "-wal");
        Self { again: AtomicUsize::new(0) }
    }

    /// Returns after a commit, or after a while.
    pub(crate) async fn next(&self) {
        #[cfg(target_os = "linux")]
        if let Some(log) = &self.log {
            let again = self.again.load(Ordering::Relaxed).min(LOOK_AGAIN.len() - 1);
            tokio::select! {
                ready = log.readable() => if let Ok(mut guard) = ready {
                    let mut bytes = [0; 4096];
                    while rustix::io::read(log.get_ref(), &mut bytes).is_ok_and(|read| read > 0) {}
                    guard.clear_ready();
                    self.again.store(0, Ordering::Relaxed);
                },
                () = tokio::time::sleep(LOOK_AGAIN[again]) => self.again.store(again + 1, Ordering::Relaxed),
            }
            return;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
