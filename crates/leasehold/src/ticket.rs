//! What an acquire future and the engine share: a place for the answer, and signs of life.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use leasehold_core::Result;

use crate::hold::Hold;

/// One acquire of one task.
#[derive(Debug)]
pub(crate) struct Ticket {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    phase: Phase,
    waker: Option<Waker>,
    /// Polled since the engine last asked.
    polled: bool,
}

#[derive(Debug)]
enum Phase {
    Waiting,
    Answered(Result<Arc<Hold>>),
    Taken,
    Abandoned,
}

impl Ticket {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { inner: Mutex::new(Inner { phase: Phase::Waiting, waker: None, polled: true }) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called by the future: takes the answer if it is there. A lease counts as taken from here on.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Result<Arc<Hold>>> {
        let mut inner = self.lock();
        inner.polled = true;
        if !matches!(inner.phase, Phase::Answered(_)) {
            inner.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        match std::mem::replace(&mut inner.phase, Phase::Taken) {
            Phase::Answered(Ok(hold)) => {
                hold.take();
                Poll::Ready(Ok(hold))
            }
            Phase::Answered(Err(error)) => Poll::Ready(Err(error)),
            Phase::Waiting | Phase::Taken | Phase::Abandoned => Poll::Pending,
        }
    }

    /// Called by the future when it is dropped. Gives the lease that nobody will take, if one was there, and
    /// says whether the engine has to hear of it at all.
    pub(crate) fn abandon(&self) -> (bool, Option<Arc<Hold>>) {
        let mut inner = self.lock();
        match std::mem::replace(&mut inner.phase, Phase::Abandoned) {
            Phase::Waiting => (true, None),
            Phase::Answered(Ok(hold)) => (true, Some(hold)),
            Phase::Answered(Err(_)) | Phase::Taken | Phase::Abandoned => (false, None),
        }
    }

    /// Called by the engine: leaves the answer and wakes the future. Gives it back if nobody waits any more.
    pub(crate) fn answer(&self, answer: Result<Arc<Hold>>) -> std::result::Result<(), Result<Arc<Hold>>> {
        let waker = {
            let mut inner = self.lock();
            if !matches!(inner.phase, Phase::Waiting) {
                return Err(answer);
            }
            inner.phase = Phase::Answered(answer);
            inner.waker.take()
        };
        // Outside the lock: a waker may run the future right here.
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Called by the engine: takes a lease back that was answered but not taken yet.
    pub(crate) fn retract(&self) -> Option<Arc<Hold>> {
        let mut inner = self.lock();
        match std::mem::replace(&mut inner.phase, Phase::Waiting) {
            Phase::Answered(Ok(hold)) => Some(hold),
            other => {
                inner.phase = other;
                None
            }
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.lock().phase, Phase::Waiting)
    }

    /// Whether nothing will ever be answered to it any more.
    pub(crate) fn is_over(&self) -> bool {
        match self.lock().phase {
            Phase::Waiting | Phase::Answered(Ok(_)) => false,
            Phase::Answered(Err(_)) | Phase::Taken | Phase::Abandoned => true,
        }
    }

    /// Called by the engine before it refreshes a place: whether the future was polled since the last call.
    /// A future that nobody polls will take no lease, so its place may lapse.
    pub(crate) fn shows_life(&self) -> bool {
        let (alive, waker) = {
            let mut inner = self.lock();
            (std::mem::replace(&mut inner.polled, false), inner.waker.clone())
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        alive
    }
}
