//! The one thread that has the connection, and how others ask it.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::db::Db;
use crate::fail::{Fail, Result};
use crate::retry::Gone;

/// After so long without a job the thread tidies up, if there is anything to tidy.
const IDLE: Duration = Duration::from_secs(1);
/// Less than this was written is not worth a wake-up.
const WORTH_IT: u32 = 64;

type Job = Box<dyn FnOnce(&mut Db) + Send>;

enum Order {
    Run(Job),
    Close(oneshot::Sender<Result<()>>),
}

/// The thread. It ends when this is dropped or closed.
#[derive(Debug)]
pub(crate) struct Worker {
    orders: mpsc::Sender<Order>,
    /// Only kept: whoever closes is told by message.
    _thread: Arc<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread.
    pub(crate) fn start(db: Db) -> Result<Self> {
        let (orders, inbox) = mpsc::channel();
        let thread = std::thread::Builder::new().name("leasehold-sqlite".to_owned());
        let thread = thread.spawn(move || work(db, &inbox)).map_err(|error| {
            Fail::new(leasehold_core::StoreErrorKind::Full, format!("cannot start a thread: {error}"))
        })?;
        Ok(Self { orders, _thread: Arc::new(thread) })
    }

    /// Has a job done on the database. When the caller goes away before it began, it is done all the same; it
    /// is only not waited for that others get out of its way.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Db, Gone<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let job = move |db: &mut Db| {
            let done = job(db, &|| answer.is_closed());
            // Nobody listens any more: the outcome is unknown to him.
            let _ = answer.send(done);
        };
        self.orders.send(Order::Run(Box::new(job))).map_err(|_| closed())?;
        answered.await.map_err(|_| {
            Fail::new(leasehold_core::StoreErrorKind::Unexpected, "the thread of the store ended").unknown()
        })?
    }

    /// Closes the file and ends the thread.
    pub(crate) async fn close(&self) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        if self.orders.send(Order::Close(answer)).is_err() {
            return Ok(());
        }
        // Closed by somebody else meanwhile, if it does not answer.
        answered.await.unwrap_or(Ok(()))
    }
}

fn closed() -> Fail {
    Fail::new(leasehold_core::StoreErrorKind::Unavailable, "the store was closed")
}

fn work(mut db: Db, inbox: &mpsc::Receiver<Order>) {
    let mut retry = None;
    loop {
        let busy = retry.or((db.writes >= WORTH_IT).then_some(IDLE));
        let order = match busy {
            Some(limit) => inbox.recv_timeout(limit),
            None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match order {
            Ok(Order::Run(job)) => job(&mut db),
            Ok(Order::Close(answer)) => {
                let _ = answer.send(db.close());
                return;
            }
            Err(RecvTimeoutError::Timeout) if retry.is_none() => db.tidy(true),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                // Dropped without being closed: nobody is there to be told.
                let _ = db.close();
                return;
            }
        }
        retry = db.retry_letters();
    }
}
