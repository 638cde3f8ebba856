//! Two locks held as one, in two stores.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use crate::common::{Mood, Moody, TTL, ms, until};
use leasehold::{Clock, Error, LeaseState, Leasehold, Op, Outcome};

fn client() -> (Arc<Moody>, Leasehold) {
    let store = Arc::new(Moody::new());
    (store.clone(), Leasehold::builder().timeout(TTL).store(store))
}

async fn is_free(client: &Leasehold, name: &str) -> bool {
    let snapshot = client.inspect(name).await.unwrap();
    snapshot.holders.is_empty() && snapshot.waiters.is_empty()
}

#[tokio::test]
async fn both_are_held_and_both_are_given_back() {
    let ((_, old), (_, new)) = (client(), client());
    let lock = old.lock("cron:report").and(new.lock("report:daily"));
    let pair = lock.acquire().await.unwrap();
    assert_eq!(pair.first().name().as_str(), "cron:report", "as they were written");
    assert_eq!(pair.second().name().as_str(), "report:daily");
    assert_eq!(pair.check().unwrap(), (pair.first().token(), pair.second().token()));
    assert_eq!(pair.state(), LeaseState::Held);
    assert!(pair.remaining() > TTL);
    pair.ensure(ms(1)).await.unwrap();
    // Who knows the one only is kept out as well as who knows the other.
    assert!(old.lock("cron:report").try_acquire().await.unwrap().is_none());
    assert!(new.lock("report:daily").try_acquire().await.unwrap().is_none());
    assert!(lock.try_acquire().await.unwrap().is_none());
    pair.release().await.unwrap();
    assert!(is_free(&old, "cron:report").await && is_free(&new, "report:daily").await);
    assert_eq!(lock.run(async |pair| pair.check().is_ok()).await.ok(), Some(true));
    assert!(is_free(&old, "cron:report").await && is_free(&new, "report:daily").await);
}

#[tokio::test]
async fn all_or_none_within_one_deadline() {
    let ((_, old), (_, new)) = (client(), client());
    let lock = old.lock("x").and(new.lock("y"));
    for (client, name) in [(&old, "x"), (&new, "y")] {
        let blocker = client.lock(name).acquire().await.unwrap();
        let Err(Error::Busy(busy)) = lock.attempt().await else { panic!("one is held") };
        assert_eq!(busy.name.as_str(), name, "it says which");
        let clock = Clock::system();
        let started = clock.now();
        let Err(Error::TimedOut { waited, .. }) = lock.acquire_within(ms(200)).await else { panic!("held") };
        let took = clock.now().since(started);
        assert!(took >= ms(200) && took < ms(200) + Duration::from_secs(2), "{took:?}");
        assert!(waited >= ms(200), "the whole wait is told: {waited:?}");
        let ran = lock.try_run(async |_| panic!("one is held")).await.unwrap();
        assert!(matches!(ran, Outcome::Skipped(_)));
        blocker.release().await.unwrap();
        assert!(is_free(&old, "x").await && is_free(&new, "y").await, "none is left");
    }
}

#[tokio::test]
async fn who_writes_them_the_other_way_round_waits_and_never_for_ever() {
    let ((_, old), (_, new)) = (client(), client());
    let tasks: Vec<_> = (0..40)
        .map(|n| {
            let (one, other) = (old.lock("x"), new.lock("x"));
            let lock = if n % 2 == 0 { one.and(other) } else { other.and(one) };
            tokio::spawn(async move { lock.run_within(TTL * 50, async |pair| pair.check().is_ok()).await })
        })
        .collect();
    for task in tasks {
        assert!(task.await.unwrap().unwrap());
    }
    assert!(is_free(&old, "x").await && is_free(&new, "x").await);
}

#[tokio::test]
async fn the_loss_of_one_is_the_loss_of_both() {
    for first in [true, false] {
        let ((_, old), (_, new)) = (client(), client());
        let lock = old.lock("x").ttl(TTL).and(new.lock("y").ttl(TTL));
        let ran = lock
            .run(async |pair| {
                let (client, lease) = if first { (&old, pair.first()) } else { (&new, pair.second()) };
                client.break_lease(lease.name().as_str(), lease.token()).await.unwrap().unwrap();
                pair.lost().await;
                assert!(pair.check().is_err());
                assert_eq!((pair.state(), pair.remaining()), (LeaseState::Lost, Duration::ZERO));
                std::future::pending::<()>().await;
            })
            .await;
        assert!(matches!(ran, Err(Error::Lost(_))));
        until("the other is given back", async || is_free(&old, "x").await && is_free(&new, "y").await).await;
    }
}

#[tokio::test]
async fn one_that_is_lost_while_the_other_is_waited_for_is_taken_again() {
    let ((_, old), (_, new)) = (client(), client());
    // Whichever is taken first.
    let blockers = [old.lock("x").acquire().await.unwrap(), new.lock("x").acquire().await.unwrap()];
    let lock = old.lock("x").ttl(TTL).and(new.lock("x").ttl(TTL));
    let waits = tokio::spawn(async move { lock.acquire().await });
    let [one, other] = blockers;
    tokio::time::sleep(ms(20)).await;
    one.release().await.unwrap();
    tokio::time::sleep(ms(50)).await;
    if let Some(holder) = old.inspect("x").await.unwrap().holders.first() {
        // It holds the first and waits for the second.
        let token = holder.token.unwrap();
        old.break_lease("x", token).await.unwrap();
        until("it is taken again", async || {
            let holders = old.inspect("x").await.unwrap().holders;
            holders.first().is_some_and(|holder| holder.token != Some(token))
        })
        .await;
    }
    other.release().await.unwrap();
    let pair = waits.await.unwrap().unwrap();
    pair.check().unwrap();
    pair.release().await.unwrap();
}

#[tokio::test]
async fn a_store_that_fails_or_loses_its_answers_leaves_none_held() {
    for mood in [Mood::Refuse, Mood::Lose, Mood::Hang] {
        let ((old_store, old), (new_store, new)) = (client(), client());
        let lock = old.lock("x").and(new.lock("y"));
        for store in [&old_store, &new_store] {
            store.be(Op::Claim, mood, u32::MAX);
            assert!(matches!(lock.acquire().await, Err(Error::Store(_))), "{mood:?}");
            store.be(Op::Claim, Mood::Fine, 0);
            until("none is left", async || is_free(&old, "x").await && is_free(&new, "y").await).await;
        }
    }
    let ((old_store, old), (_, new)) = (client(), client());
    old_store.be(Op::Claim, Mood::Lose, 2);
    old_store.be(Op::Release, Mood::Lose, 2);
    let pair = old.lock("x").and(new.lock("y")).acquire().await.unwrap();
    pair.release().await.expect("lost answers are cured");
}

#[tokio::test]
async fn a_dropped_acquire_of_both_leaves_nothing_behind_however_often_it_was_polled() {
    let ((_, old), (_, new)) = (client(), client());
    for polls in 0..10 {
        for held in [false, true] {
            let name = format!("x:{polls}:{held}");
            let blocker = if held { Some(new.lock(&name).acquire().await.unwrap()) } else { None };
            {
                let lock = old.lock(&name).and(new.lock(&name));
                let mut future = std::pin::pin!(lock.acquire());
                for _ in 0..polls {
                    if future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                        break;
                    }
                    tokio::time::sleep(ms(1)).await;
                }
            }
            drop(blocker);
            until("none is left", async || is_free(&old, &name).await && is_free(&new, &name).await).await;
        }
    }
}

#[tokio::test]
async fn the_same_lock_twice_is_refused_before_it_waits_for_itself() {
    let (store, client) = client();
    let again = Leasehold::builder().store(store);
    for lock in [client.lock("x").and(client.lock("x")), client.lock("x").and(again.lock("x"))] {
        let error = lock.acquire().await.unwrap_err();
        assert!(matches!(error, Error::Config(_)), "{error}");
        assert!(error.help().is_some());
    }
    client.lock("x").and(client.lock("y")).acquire().await.unwrap().release().await.unwrap();
    assert!(matches!(client.lock("").and(client.lock("y")).acquire().await, Err(Error::Name(_))));
}

#[test]
fn both_may_cross_threads() {
    fn send<T: Send>(_: &T) {}
    let client = Leasehold::memory();
    let lock = client.lock("x").and(client.lock("y"));
    send(&lock.acquire());
    send(&lock.run(async |pair| pair.check().is_ok()));
    smol::block_on(async {
        let pair = lock.acquire().await.unwrap();
        send(&pair.lost());
        send(&pair.release());
    });
}
