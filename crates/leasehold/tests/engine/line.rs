//! Those who wait in the line of their own process when somebody before them goes in an unusual way.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use leasehold::{Clock, Error, Leasehold, Ledger, MemoryStore, Op, Result};

use crate::common::{Mood, Moody, ms, until};

/// Returns once the engine has done all that it was told so far.
async fn settled(client: &Leasehold) {
    fn nothing(_: &dyn Ledger) -> BoxFuture<'_, Result<()>> {
        async { Ok(()) }.boxed()
    }
    client.with_ledger(nothing).await.unwrap();
}

#[tokio::test]
async fn who_waits_behind_one_that_gives_up_goes_on_under_his_claim() {
    let clock = Clock::frozen();
    let store = Arc::new(MemoryStore::with_clock(clock.clone()));
    let (host, other) = (
        Leasehold::builder().clock(clock.clone()).store(store.clone()),
        Leasehold::builder().clock(clock.clone()).store(store),
    );
    let held = host.lock("x").acquire().await.unwrap();
    let lock = other.lock("x");
    let first = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    until("the first waits", async || host.inspect("x").await.unwrap().waiters.len() == 1).await;
    let second = tokio::spawn(async move { lock.acquire().await });
    tokio::task::yield_now().await;
    settled(&other).await;
    first.abort();
    // The place is refreshed some times, by whoever waits now.
    for _ in 0..6 {
        settled(&other).await;
        clock.advance(ms(500));
    }
    assert_eq!(host.inspect("x").await.unwrap().waiters.len(), 1);
    held.release().await.unwrap();
    until("the second has it", async || {
        clock.advance(ms(50));
        second.is_finished()
    })
    .await;
    second.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_behind_a_lease_that_ended_unnoticed_gets_it() {
    let client = Leasehold::memory();
    let lock = client.lock("x").ttl(ms(150));
    let lease = lock.acquire().await.unwrap();
    let second = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    tokio::task::yield_now().await;
    settled(&client).await;
    // The engine's thread is stopped, as a whole machine may be, for longer than the ttl.
    let (go_on, stopped) = channel::<()>();
    let (is_stopped, stops) = channel::<()>();
    let stop = for_all(move |_: &dyn Ledger| {
        is_stopped.send(()).unwrap();
        stopped.recv().unwrap();
        async { Ok(()) }.boxed()
    });
    let stopping = {
        let client = client.clone();
        tokio::spawn(async move { client.with_ledger(stop).await })
    };
    tokio::task::spawn_blocking(move || stops.recv().unwrap()).await.unwrap();
    until("the lease has run out", async || lease.check().is_err()).await;
    drop(lease);
    go_on.send(()).unwrap();
    stopping.await.unwrap().unwrap();
    until("the second has it", async || second.is_finished()).await;
    second.await.unwrap().unwrap().release().await.unwrap();
}

/// Tells the compiler that it is for all lifetimes.
fn for_all<F>(work: F) -> F
where
    F: for<'a> FnOnce(&'a dyn Ledger) -> BoxFuture<'a, Result<()>> + Send + 'static,
{
    work
}

#[tokio::test]
async fn a_release_that_fails_for_longer_than_the_ttl_says_so() {
    let store = Arc::new(Moody::new());
    let client = Leasehold::builder().timeout(Duration::from_secs(60)).store(store.clone());
    let lease = client.lock("x").ttl(ms(150)).acquire().await.unwrap();
    store.be(Op::Release, Mood::Refuse, 1000);
    let error = lease.release().await.unwrap_err();
    assert!(matches!(error, Error::Store(_)), "{error}");
}

#[tokio::test]
async fn what_a_session_carries_is_given_back_however_long_the_store_was_away() {
    let store = Arc::new(Moody::of_sessions());
    let client = Leasehold::builder().timeout(Duration::from_secs(60)).store(store.clone());
    let lease = client.lock("x").ttl(ms(100)).acquire().await.unwrap();
    // The last of these tries comes long after the ttl: what was asked for is told then, and goes on.
    store.be(Op::Release, Mood::Refuse, 6);
    assert!(matches!(lease.release().await, Err(Error::Store(_))));
    until("it is asked until it is answered", async || store.asked(Op::Release) == 7).await;
}
