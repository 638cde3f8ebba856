//! What a semaphore promises.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{TTL, is_deserted, ms, until};
use leasehold::{Code, Error, Leasehold, Lock, MemoryStore};
use leasehold_conformance::drop_after;

#[tokio::test]
async fn so_many_get_in_and_no_more_each_with_a_token_of_its_own() {
    let client = Leasehold::memory();
    let lock = client.semaphore("smtp", 3);
    let (one, two) = (lock.acquire().await.unwrap(), lock.clone().permits(2).acquire().await.unwrap());
    assert_ne!(one.token(), two.token());
    assert!(lock.try_acquire().await.unwrap().is_none());
    let Err(Error::TimedOut { busy, .. }) = lock.acquire_within(ms(20)).await else { panic!("it is full") };
    assert!(busy.holder.is_some());
    two.release().await.unwrap();
    assert!(lock.clone().permits(3).try_acquire().await.unwrap().is_none(), "one is still out");
    let two = lock.clone().permits(2).try_acquire().await.unwrap().expect("both came back together");
    assert!(client.lock("smtp").try_acquire().await.unwrap().is_none(), "a mutex excludes permits");
    drop((one, two));
    client.lock("smtp").acquire_within(TTL).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn numbers_that_cannot_be_are_told_when_it_is_asked_for() {
    let client = Leasehold::memory();
    let wrong = async |lock: Lock| match lock.try_acquire().await {
        Err(Error::Config(error)) => error,
        other => panic!("{other:?}"),
    };
    for lock in [
        client.semaphore("x", 0),
        client.semaphore("x", u32::MAX),
        client.semaphore("x", 0).permits(1),
        client.semaphore("x", 5).permits(6),
        client.semaphore("x", 5).permits(0),
        client.lock("x").permits(1),
        client.rwlock("x").read().permits(1),
    ] {
        assert!(wrong(lock).await.help.is_some());
    }
    let _five = client.semaphore("x", 5).acquire().await.unwrap();
    let error = wrong(client.semaphore("x", 3)).await;
    assert_eq!(error.code, Code::DISAGREES);
}

#[tokio::test]
async fn a_holder_that_is_gone_returns_its_permits_after_their_ttl() {
    let store = Arc::new(MemoryStore::new());
    let (dies, lives) =
        (Leasehold::builder().store(store.clone()), Leasehold::builder().store(store.clone()));
    let smtp = |client: &Leasehold, permits| client.semaphore("smtp", 3).permits(permits).ttl(TTL);
    // What a killed process does: renews no more, and gives nothing back.
    smtp(&dies, 2).acquire().await.unwrap().keep();
    assert!(smtp(&lives, 2).try_acquire().await.unwrap().is_none());
    let all = smtp(&lives, 3).acquire_within(TTL * 5).await.expect("they came back");
    all.release().await.unwrap();
    assert!(is_deserted(&lives, "smtp").await);
}

#[tokio::test]
async fn who_asks_for_many_is_not_passed_for_ever_by_those_who_ask_for_few() {
    let client = Leasehold::memory();
    let stop = Arc::new(AtomicBool::new(false));
    let few: Vec<_> = (0..4)
        .map(|_| {
            let (lock, stop) = (client.semaphore("x", 3), stop.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    lock.run(async |_| tokio::time::sleep(ms(5)).await).await.unwrap();
                }
            })
        })
        .collect();
    for _ in 0..3 {
        let all = client.semaphore("x", 3).permits(3).acquire_within(TTL * 5).await.expect("its turn comes");
        all.release().await.unwrap();
    }
    stop.store(true, Ordering::SeqCst);
    for task in few {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_dropped_future_leaves_no_permit_and_no_place_behind() {
    let store = Arc::new(MemoryStore::new());
    let (client, other) = (Leasehold::builder().store(store.clone()), Leasehold::builder().store(store));
    for full in [false, true] {
        for polls in 0..8 {
            let full =
                if full { Some(other.semaphore("x", 3).permits(2).acquire().await.unwrap()) } else { None };
            let lock = client.semaphore("x", 3).permits(2);
            drop(drop_after(polls, lock.acquire()).await);
            drop(drop_after(polls, lock.try_acquire()).await);
            drop(drop_after(polls, lock.acquire_within(ms(5))).await);
            if let Some(full) = full {
                full.release().await.unwrap();
            }
            until("nothing is left", async || is_deserted(&other, "x").await).await;
        }
    }
}
