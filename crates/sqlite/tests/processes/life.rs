//! The death of a holder frees its lease at once, and waiters of other processes are woken.

use std::time::Duration;

use leasehold_core::{ClaimId, Clock, Leave, Release, State, Store, Turn};

use crate::stage::{Player, claim, granted, name, open};

#[tokio::test]
async fn a_killed_holder_frees_its_lease_at_once() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let store = open(&path);
    let mut holder = Player::start("hold", &[path.to_str().unwrap()]);
    holder.hear();
    let mine = claim("a", Turn::Any);
    let standing = store.claim(&mine).await.unwrap();
    assert!(matches!(standing.state, State::Waiting { .. }));
    let clock = Clock::system();
    let (killed, waits) = (clock.now(), store.changed(&mine.name, &standing.cursor));
    holder.kill();
    tokio::time::timeout(Duration::from_secs(1), waits).await.unwrap().unwrap();
    granted(&store.claim(&mine).await.unwrap());
    let took = clock.now().since(killed);
    assert!(took < Duration::from_millis(500), "{took:?}");
    println!("freed after {took:?}");
}

#[tokio::test]
async fn a_try_takes_the_lease_of_a_dead_holder() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let store = open(&path);
    let mut holder = Player::start("hold", &[path.to_str().unwrap()]);
    let old: u64 = holder.hear().parse().unwrap();
    let busy = store.claim(&claim("a", Turn::Now)).await.unwrap();
    assert!(matches!(busy.state, State::Waiting { .. }));
    holder.kill();
    assert!(store.list("", None).await.unwrap().is_empty(), "the dead hold nothing");
    let grant = granted(&store.claim(&claim("a", Turn::Now)).await.unwrap());
    assert!(grant.token.get() > old);
}

#[tokio::test]
async fn a_release_wakes_a_waiter_of_another_process() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let store = open(&path);
    let mut other = Player::start("ping", &[path.to_str().unwrap()]);
    let clock = Clock::system();
    let mut took = Vec::new();
    for _ in 0..200 {
        assert_eq!(other.hear(), "held");
        let mine = claim("a", Turn::Fifo);
        let standing = store.claim(&mine).await.unwrap();
        let wait = store.changed(&mine.name, &standing.cursor);
        other.tell("go");
        tokio::time::timeout(Duration::from_secs(1), wait).await.expect("the release woke us").unwrap();
        granted(&store.claim(&mine).await.unwrap());
        let now = clock.now().as_nanos();
        let released: u64 = other.hear().parse().unwrap();
        took.push(Duration::from_nanos(now - released));
        store.release(&mine.name, mine.id, Leave::Open).await.unwrap();
    }
    other.kill();
    took.sort();
    println!("woken and granted: median {:?}, longest {:?}", took[100], took[199]);
}

#[tokio::test]
async fn a_detached_lease_outlives_its_process_and_ends_by_its_id() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let mut other = Player::start("detach", &[path.to_str().unwrap()]);
    let id = u128::from_str_radix(&other.hear(), 16).unwrap();
    other.ends_well();
    let store = open(&path);
    let busy = store.claim(&claim("a", Turn::Now)).await.unwrap();
    assert!(matches!(busy.state, State::Waiting { .. }), "nobody lives behind it, and still it holds");
    let id = ClaimId::from_bytes(id.to_be_bytes());
    assert_eq!(store.release(&name("a"), id, Leave::Open).await.unwrap(), Release::Released);
    granted(&store.claim(&claim("a", Turn::Now)).await.unwrap());
}

#[tokio::test]
async fn a_frozen_waiter_with_a_full_mailbox_keeps_nobody_up_and_hears_of_its_turn() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let store = open(&path);
    let mine = claim("a", Turn::Now);
    granted(&store.claim(&mine).await.unwrap());
    let mut other = Player::start("hold", &[path.to_str().unwrap()]);
    let clock = Clock::system();
    while store.inspect(&mine.name).await.unwrap().waiters.is_empty() {
        tokio::task::yield_now().await;
    }
    other.signal(rustix::process::Signal::STOP);
    // More changes than a mailbox holds, each of them news to the first waiter.
    let start = clock.now();
    for _ in 0..40 {
        let waiter = claim("a", Turn::Any);
        store.claim(&waiter).await.unwrap();
        store.release(&waiter.name, waiter.id, Leave::Open).await.unwrap();
    }
    store.release(&mine.name, mine.id, Leave::Open).await.unwrap();
    let took = clock.now().since(start);
    assert!(took < Duration::from_secs(2), "{took:?}");
    other.signal(rustix::process::Signal::CONT);
    other.hear();
    other.kill();
}
