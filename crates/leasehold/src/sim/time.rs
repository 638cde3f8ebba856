//! Time in a simulation: it goes from one thing that is due to the next, and waits for everybody each time.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use leasehold_core::Clock;

use super::Sim;

/// A program that never rests is waited for no longer than this many rounds.
const MOST_ROUNDS: usize = 1000;
/// How often the test's own tasks get a chance to run before time moves on.
const CHANCES: usize = 3;
impl Sim {
    /// Returns once so much time was let pass.
    ///
    /// # Cancel safety
    ///
    /// Nothing happens when it is dropped.
    pub async fn sleep(&self, time: Duration) {
        self.0.clock.sleep_until(self.0.clock.now().after(time)).await;
    }

    /// Lets time pass: everything that is due meanwhile has happened when it returns.
    ///
    /// # Cancel safety
    ///
    /// Some of the time has passed.
    pub async fn advance(&self, time: Duration) {
        self.settle().await;
        let end = self.0.clock.now().after(time);
        loop {
            let left = end.since(self.0.clock.now());
            if left.is_zero() {
                return;
            }
            self.step(Some(left)).await;
        }
    }

    /// Lets time pass until `future` is ready, as much as it needs and no more: from one thing that is due to the
    /// next. A future that waits for something that no time brings is waited for in real time.
    ///
    /// # Cancel safety
    ///
    /// Some of the time has passed, and `future` is dropped.
    pub async fn until<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        loop {
            if let Some(value) = poll_fn(|context| Poll::Ready(ready(future.as_mut().poll(context)))).await {
                return value;
            }
            if self.settle().await || self.step(None).await {
                continue;
            }
            // Nothing is due: only something outside can wake it.
            let mut waited = false;
            let woken = poll_fn(|context| match future.as_mut().poll(context) {
                Poll::Pending if !std::mem::replace(&mut waited, true) => Poll::Pending,
                polled => Poll::Ready(ready(polled)),
            });
            if let Some(value) = woken.await {
                return value;
            }
        }
    }

    /// Moves time on to what is due next, by `most` at the most, and waits until it has happened; says whether there
    /// was anything to move to.
    async fn step(&self, most: Option<Duration>) -> bool {
        let moving = self.0.moving.lock().await;
        let clocks = self.running();
        let due = clocks.iter().filter_map(|clock| Some(clock.next_alarm()?.since(clock.now()))).min();
        let Some(by) = due.into_iter().chain(most).min() else { return false };
        // The store's first: whoever it wakes up asks a store for which it is that late.
        for clock in clocks {
            clock.advance(by);
        }
        drop(moving);
        self.settle().await;
        true
    }

    /// The clocks that move: the store's and those of the hosts that are not frozen.
    fn running(&self) -> Vec<Clock> {
        let hosts = self.hosts();
        let running = hosts.iter().filter(|host| !host.frozen).map(|host| host.clock.clone());
        std::iter::once(self.0.clock.clone()).chain(running).collect()
    }

    /// Returns once no client has anything more to do before time moves on; says whether anything happened.
    pub(super) async fn settle(&self) -> bool {
        let (mut happened, mut quiet) = (false, 0);
        for _ in 0..MOST_ROUNDS {
            let before = self.0.activity.load(Ordering::SeqCst);
            let hosts = self.hosts().clone();
            for host in hosts {
                host.rests.rest(&host.client.client).await;
            }
            for _ in 0..CHANCES {
                give_way().await;
            }
            // One host may have woken another that was looked at before.
            if self.0.activity.load(Ordering::SeqCst) == before {
                quiet += 1;
            } else {
                (happened, quiet) = (true, 0);
            }
            if quiet == 2 {
                break;
            }
        }
        happened
    }
}

fn ready<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Lets other tasks of the same executor run.
async fn give_way() {
    let mut gave = false;
    poll_fn(|context| {
        if std::mem::replace(&mut gave, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
