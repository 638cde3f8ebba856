//! The signals that `run` answers to. One that was ignored when Leasehold started stays ignored, and is inherited.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::sys;

/// What is passed on to the command; the first four also end a wait.
const PASSED: [i32; 8] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    libc::SIGCONT,
];
const ENDING: usize = 4;
/// More waiting signals than any person or supervisor sends at once.
const ROOM: usize = 64;

/// The signals of this process, from when it is made.
pub(crate) struct Signals {
    arrived: mpsc::Receiver<i32>,
    asked_to_end: Arc<AtomicUsize>,
}

impl Signals {
    /// Starts to catch them.
    pub(crate) fn catch() -> io::Result<Self> {
        let (sender, arrived) = mpsc::channel(ROOM);
        let asked_to_end = Arc::new(AtomicUsize::new(0));
        for (index, number) in PASSED.into_iter().enumerate() {
            if sys::is_ignored(number) {
                continue;
            }
            if index < ENDING {
                let value = usize::try_from(number).unwrap_or(0);
                signal_hook::flag::register_usize(number, asked_to_end.clone(), value)?;
            }
            let mut stream = signal(SignalKind::from_raw(number))?;
            let sender = sender.clone();
            tokio::spawn(async move {
                while stream.recv().await.is_some() && sender.send(number).await.is_ok() {}
            });
        }
        Ok(Self { arrived, asked_to_end })
    }

    /// The next signal.
    ///
    /// # Cancel safety
    ///
    /// None is lost when it is dropped.
    pub(crate) async fn next(&mut self) -> i32 {
        match self.arrived.recv().await {
            Some(number) => number,
            // All were ignored at the start.
            None => std::future::pending().await,
        }
    }

    /// The next signal that ends a wait.
    pub(crate) async fn next_ending(&mut self) -> i32 {
        loop {
            let number = self.next().await;
            if PASSED[..ENDING].contains(&number) {
                return number;
            }
        }
    }

    /// The signal that asked us to end, known from the very moment it arrived: a stream tells of it only when the
    /// runtime comes round, and a command must not start after that.
    pub(crate) fn asked_to_end(&self) -> Option<i32> {
        match self.asked_to_end.load(Ordering::SeqCst) {
            0 => None,
            number => i32::try_from(number).ok(),
        }
    }

    /// The same question, for the child to ask itself before it becomes the command.
    pub(crate) fn watch(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let asked = self.asked_to_end.clone();
        move || asked.load(Ordering::SeqCst) != 0
    }
}
