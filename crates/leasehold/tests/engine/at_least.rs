//! A task that is run at most once in a while: [`leasehold::Lock::at_least`] and a try.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{TTL, ms, until};
use leasehold::{Clock, Leasehold, MemoryStore, Outcome};

#[tokio::test]
async fn five_hosts_whose_clocks_differ_run_a_short_task_once() {
    let (store, ran) = (Arc::new(MemoryStore::new()), AtomicU32::new(0));
    let least = TTL * 2;
    let first = store_client(&store, 0).clock().now();
    for offset in [0, 3, 8, -3, -8] {
        let task = store_client(&store, offset).lock("task").at_least(least);
        let outcome = task.try_run(async |_| ran.fetch_add(1, Ordering::SeqCst)).await.unwrap();
        if let Outcome::Skipped(busy) = outcome {
            assert!(busy.closed.is_some(), "it is kept shut, not held: {busy}");
        }
    }
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    let lease = store_client(&store, 0).lock("task").acquire_within(TTL * 10).await.unwrap();
    assert!(lease.remaining() > ms(0) && Clock::system().now().since(first) >= least, "not before its time");
}

/// A client whose wall clock is off by so many seconds.
fn store_client(store: &Arc<MemoryStore>, offset: i64) -> Leasehold {
    let clock = Clock::system();
    clock.step_wall(offset * 1_000_000);
    Leasehold::builder().clock(clock).store(store.clone())
}

#[tokio::test]
async fn whoever_did_nothing_keeps_nobody_out() {
    let client = Leasehold::memory();
    let lock = client.lock("x").at_least(TTL * 100);
    lock.acquire().await.unwrap().unused().release().await.unwrap();
    drop(lock.acquire_within(TTL).await.expect("it was left open").unused());
    // Nor does a future that was dropped with a lease that it never gave to anybody.
    for polls in 0..4 {
        crate::common::polled(polls, async { drop(lock.acquire().await.unwrap().unused()) }).await;
        until("it is open", async || client.inspect("x").await.unwrap().holders.is_empty()).await;
    }
    drop(lock.acquire_within(TTL).await.expect("it was left open"));
    until("it is shut", async || client.inspect("x").await.unwrap().closed.is_some()).await;
}
