//! Knows when a client's thread has nothing more to do, so that a simulation can wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use crate::client::Client;
use crate::event::{Event, Observer};

/// Counts how often a client's thread has gone to rest.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rests(Arc<watch::Sender<u64>>);

/// Rings in the thread, and for good once the thread has ended: nobody may wait for it then.
struct Bell(Rests);

impl Drop for Bell {
    fn drop(&mut self) {
        self.0.0.send_replace(u64::MAX);
    }
}

impl Rests {
    /// What the thread calls each time that it has run everything there was to run.
    pub(crate) fn bell(&self) -> impl Fn() + Send + Sync + 'static {
        let bell = Bell(self.clone());
        move || bell.0.0.send_modify(|rests| *rests = rests.saturating_add(1))
    }

    /// Returns once the thread has run all that was ready when this was called, and what followed from it.
    pub(super) async fn rest(&self, client: &Client) {
        if !client.is_running() {
            return;
        }
        let rests = self.0.clone();
        let look = move |_| -> futures_util::future::LocalBoxFuture<'static, u64> {
            Box::pin(async move { *rests.borrow() })
        };
        // A client that was closed does nothing any more.
        let Ok(so_far) = client.on_engine(look).await else { return };
        let mut rests = self.0.subscribe();
        drop(rests.wait_for(|rests| *rests > so_far).await);
    }
}

/// Counts what happens: while something does, there may be more to come.
#[derive(Debug)]
pub(super) struct Pulse(pub(super) Arc<AtomicU64>);

impl Observer for Pulse {
    fn on(&self, _: &Event) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
