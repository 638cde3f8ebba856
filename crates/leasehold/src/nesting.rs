//! What an acquire stands in, as far as that is certain: the task that polls it, the scope that asks, and the runs
//! whose work it is part of.
//!
//! Async Rust has no identity of its own. A lease may have moved to another task, and one task may poll several
//! that have nothing to do with each other. What is known for certain is only what is written down here.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Waker;

use leasehold_core::{LockName, Share};

use crate::client::Client;
use crate::hold::Hold;
use crate::lease::Lease;

thread_local! {
    /// The runs whose work is being polled on this thread right now, outermost first.
    static AROUND: RefCell<Vec<Frame>> = const { RefCell::new(Vec::new()) };
}

/// A run whose work is being polled.
#[derive(Debug, Clone)]
struct Frame {
    client: usize,
    hold: Arc<Hold>,
    task: TaskMark,
}

/// Tells tasks apart, on any executor, by whom they wake: two futures with the same waker are polled by one task.
///
/// Only the address: a waker that is kept would keep its task, which may own the very lease that keeps the waker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskMark(usize, usize);

impl TaskMark {
    fn of(waker: &Waker) -> Self {
        Self(waker.data().addr(), std::ptr::from_ref(waker.vtable()).addr())
    }
}

/// A scope, as others need to know it.
#[derive(Debug, Clone)]
pub(crate) struct ScopeMark {
    pub(crate) id: usize,
    pub(crate) label: Arc<str>,
}

/// Who asks for a lease.
#[derive(Debug, Clone)]
pub(crate) struct Asker {
    pub(crate) task: TaskMark,
    pub(crate) scope: Option<ScopeMark>,
    /// How much it asks for.
    pub(crate) share: Share,
    /// The holds of the runs that certainly cannot end before this has an answer: it is part of their work.
    pub(crate) within: Vec<u64>,
    /// The holds of runs inside which it was polled by somebody else's waker: most likely a part of their work, as in
    /// a `FuturesUnordered`; perhaps another task of an executor that this work drives.
    pub(crate) perhaps_within: Vec<u64>,
}

impl Asker {
    /// The asker whose future is being polled now, and whether a run around it holds what excludes the share that
    /// it wants: then it would wait for itself.
    pub(crate) fn now(
        waker: &Waker,
        client: &Arc<Client>,
        name: &LockName,
        share: Share,
        scope: Option<ScopeMark>,
    ) -> (Self, bool) {
        let task = TaskMark::of(waker);
        let frames = AROUND.try_with(|around| around.borrow().clone()).unwrap_or_default();
        let client = address(client);
        let (mut within, mut perhaps_within, mut own) = (Vec::new(), Vec::new(), false);
        for Frame { client: theirs, hold, task: polled } in frames {
            if theirs != client || hold.reason().is_some() {
                continue;
            }
            if polled == task {
                let held = hold.asker().map_or(Share::EXCLUSIVE, |asker| asker.share);
                own |= hold.name == *name && held.excludes(share);
                within.push(hold.id);
            } else {
                perhaps_within.push(hold.id);
            }
        }
        (Self { task, scope, share, within, perhaps_within }, own)
    }
}

fn address(client: &Arc<Client>) -> usize {
    Arc::as_ptr(client).addr()
}

/// Polls the work of a run under these leases, so that an acquire inside it knows where it stands.
pub(crate) async fn polled_under<T>(leases: &[&Lease], work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        let task = TaskMark::of(context.waker());
        let frame =
            |lease: &&Lease| Frame { client: address(lease.client()), hold: lease.hold().clone(), task };
        let _around = Around::enter(leases.iter().map(frame));
        work.as_mut().poll(context)
    })
    .await
}

/// Takes back on drop what it put around, also when the work panics.
struct Around(usize);

impl Around {
    fn enter(frames: impl Iterator<Item = Frame>) -> Self {
        // A thread that is ending has no place for it any more; then nothing inside is known to be inside.
        let entered = AROUND.try_with(|around| {
            let mut around = around.borrow_mut();
            let before = around.len();
            around.extend(frames);
            around.len() - before
        });
        Self(entered.unwrap_or(0))
    }
}

impl Drop for Around {
    fn drop(&mut self) {
        let left = |around: &RefCell<Vec<Frame>>| {
            let mut around = around.borrow_mut();
            let keep = around.len().saturating_sub(self.0);
            around.split_off(keep)
        };
        // The frames are dropped outside the borrow: with the last handle of a hold anything may run.
        drop(AROUND.try_with(left));
    }
}
