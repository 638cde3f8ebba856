//! What a lock does when its store cannot be reached, and only then.

use std::sync::Arc;

use crate::common::{Log, Mood, Moody, TTL, ms, until};
use leasehold::{Backed, Clock, Error, Event, Held, Leasehold, MemoryStore, Outcome};
use leasehold::{Op, StoreErrorKind};

fn client() -> (Arc<Moody>, Arc<Log>, Leasehold) {
    let (store, log) = (Arc::new(Moody::new()), Arc::new(Log::default()));
    let builder = Leasehold::builder().timeout(TTL).observer(log.clone());
    (store.clone(), log, builder.store(store))
}

const ALWAYS: u32 = u32::MAX;

#[tokio::test]
async fn a_lock_fails_closed_unless_it_says_otherwise() {
    let (store, _, client) = client();
    store.be(Op::Claim, Mood::Refuse, ALWAYS);
    assert!(matches!(client.lock("x").acquire().await, Err(Error::Store(_))));
    let ran = client.lock("x").run(async |_| panic!("nothing may run")).await;
    assert!(matches!(ran, Err(Error::Store(_))));
}

#[tokio::test]
async fn an_open_lock_takes_a_lease_where_it_can_and_goes_on_without_where_the_store_is_away() {
    let (store, log, client) = client();
    let lock = client.lock("x").or_open();
    let Held::Lease(lease) = lock.acquire().await.unwrap() else { panic!("the store is there") };
    lease.release().await.unwrap();
    for mood in [Mood::Refuse, Mood::Lose, Mood::Hang] {
        store.be(Op::Claim, mood, ALWAYS);
        let told = log.count(|event| matches!(event, Event::WithoutStore { instead: None, .. }));
        let held = lock.acquire().await.unwrap();
        assert!(held.lease().is_none());
        let Held::Open(run) = held else { panic!("the store is away") };
        assert_eq!(run.name().as_str(), "x");
        assert!(matches!(run.why(), Error::Store(error) if error.kind == StoreErrorKind::Unavailable));
        until("it is told", async || {
            log.count(|event| matches!(event, Event::WithoutStore { instead: None, .. })) > told
        })
        .await;
        store.be(Op::Claim, Mood::Fine, 0);
        until("what was granted unseen is given back", async || {
            client.inspect("x").await.unwrap().holders.is_empty()
        })
        .await;
    }
}

#[tokio::test]
async fn an_open_lock_keeps_its_wait_also_where_the_store_says_nothing_at_all() {
    let (store, _, client) = client();
    let lock = client.lock("x").or_open();
    for mood in [Mood::Refuse, Mood::Hang] {
        for op in [Op::Claim, Op::Inspect] {
            store.be(op, mood, ALWAYS);
        }
        let clock = Clock::system();
        let started = clock.now();
        let held = lock.acquire_within(TTL / 3).await.unwrap();
        assert!(matches!(held, Held::Open(_)), "{mood:?}");
        assert!(clock.now().since(started) >= TTL / 3, "not before its time");
    }
}

#[tokio::test]
async fn nothing_opens_a_lock_that_somebody_has() {
    let (store, log, client) = client();
    let other = Leasehold::builder().store(store.clone());
    let held = other.lock("x").acquire().await.unwrap();
    let lock = client.lock("x").or_open();
    assert!(matches!(lock.attempt().await, Err(Error::Busy(_))));
    assert!(matches!(lock.acquire_within(ms(50)).await, Err(Error::TimedOut { .. })));
    let ran = lock.try_run(async |_| panic!("somebody has it")).await.unwrap();
    assert!(matches!(ran, Outcome::Skipped(_)));
    // Nor does who has it being unknown.
    store.be(Op::Inspect, Mood::Hang, ALWAYS);
    assert!(matches!(lock.acquire_within(ms(50)).await, Err(Error::TimedOut { .. })));
    store.be(Op::Inspect, Mood::Fine, 0);
    let backed = client.lock("x").or_else(Leasehold::memory().lock("x"));
    assert!(matches!(backed.attempt().await, Err(Error::Busy(_))), "nor is another store asked");
    assert_eq!(log.count(|event| matches!(event, Event::WithoutStore { .. })), 0);
    held.release().await.unwrap();
}

#[tokio::test]
async fn neither_a_bad_name_nor_a_bad_ttl_opens_a_lock() {
    let (_, _, client) = client();
    assert!(matches!(client.lock("").or_open().acquire().await, Err(Error::Name(_))));
    assert!(matches!(client.lock("x").ttl(ms(1)).or_open().acquire().await, Err(Error::Unsupported(_))));
    client.clone().close().await.unwrap();
    assert!(client.lock("x").or_open().acquire().await.is_err(), "nor does a closed client");
}

#[tokio::test]
async fn work_runs_under_a_lease_or_openly_and_is_stopped_when_its_lease_is_lost() {
    let (store, _, client) = client();
    let lock = client.lock("x").ttl(TTL).or_open();
    let lost = lock
        .run(async |held| {
            let token = held.lease().unwrap().token();
            client.break_lease("x", token).await.unwrap();
            std::future::pending::<()>().await;
        })
        .await;
    assert!(matches!(lost, Err(Error::Lost(_))));
    assert!(lock.run(async |held| held.lease().is_some()).await.unwrap());
    store.be(Op::Claim, Mood::Refuse, ALWAYS);
    assert!(lock.run_within(TTL, async |held| held.lease().is_none()).await.unwrap());
    assert!(matches!(lock.try_run(async |_| 7).await, Ok(Outcome::Ran(7))));
}

#[tokio::test]
async fn a_second_store_is_asked_where_the_first_is_away() {
    let (store, log, client) = client();
    let second = Leasehold::memory();
    let lock = client.lock("x").or_else(second.lock("x"));
    let Backed::First(lease) = lock.acquire().await.unwrap() else { panic!("the first is there") };
    lease.release().await.unwrap();
    store.be(Op::Claim, Mood::Lose, ALWAYS);
    let Backed::Second(lease) = lock.acquire_within(TTL / 3).await.unwrap() else { panic!("it is away") };
    assert_eq!(second.inspect("x").await.unwrap().holders[0].token, Some(lease.token()));
    let told = |event: &Event| matches!(event, Event::WithoutStore { instead: Some(store), .. } if store == "memory:");
    until("it is told", async || log.count(told) > 0).await;
    assert!(matches!(lock.try_run(async |_| ()).await, Ok(Outcome::Skipped(_))), "it is held there");
    lease.release().await.unwrap();
    assert_eq!(lock.run(async |backed| backed.lease().name().to_string()).await.unwrap(), "x");
    store.be(Op::Claim, Mood::Fine, 0);
    until("nothing is left in the first", async || client.inspect("x").await.unwrap().holders.is_empty())
        .await;
}

#[tokio::test]
async fn a_dropped_acquire_of_an_open_lock_leaves_nothing_behind() {
    use std::task::{Context, Waker};
    let store = Arc::new(MemoryStore::new());
    let client = Leasehold::builder().store(store);
    for polls in 0..5 {
        let name = format!("x:{polls}");
        {
            let lock = client.lock(&name).or_open();
            let mut future = std::pin::pin!(lock.acquire());
            for _ in 0..polls {
                if future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                    break;
                }
                tokio::time::sleep(ms(1)).await;
            }
        }
        until("nothing is left", async || client.inspect(&name).await.unwrap().holders.is_empty()).await;
    }
}

#[test]
fn what_fails_open_may_cross_threads() {
    fn send<T: Send>(_: &T) {}
    let client = Leasehold::memory();
    let (open, backed) = (client.lock("x").or_open(), client.lock("x").or_else(client.lock("y")));
    send(&open.acquire());
    send(&open.run(async |held| held.lease().is_some()));
    send(&backed.acquire());
    send(&backed.run(async |backed| backed.lease().token()));
}
