//! What several locks that are wanted together are promised: all of them, or none.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Apart, Mood, Moody, TTL, is_deserted, ms, unheard, until};
use leasehold::{Clock, Error, LeaseState, Leasehold, LockName, LostReason, Op, Outcome};
use leasehold_conformance::drop_after;
use leasehold_core::{Leave, Store};

/// More often than any test asks.
const ALWAYS: u32 = u32::MAX;
/// More polls than any verb here takes to come to an end, or to wait.
const MOST_POLLS: usize = 10;
const EACH_WAY: [Apart; 3] = [Apart::Together, Apart::NotThese, Apart::Never];

fn two(apart: Apart) -> (Arc<Moody>, Leasehold, Leasehold) {
    let store = Arc::new(Moody::claiming(apart));
    let client = Leasehold::builder().timeout(TTL).store(store.clone());
    (store.clone(), client, Leasehold::builder().store(store))
}

async fn all_deserted(client: &Leasehold, names: &[&str]) -> bool {
    for name in names {
        if !is_deserted(client, name).await {
            return false;
        }
    }
    true
}

#[tokio::test]
async fn all_are_held_each_under_a_token_of_its_own() {
    for apart in EACH_WAY {
        let store = Arc::new(Moody::claiming(apart));
        let client = Leasehold::builder().namespace("bank").store(store);
        let set = client.lock_all(["b", "a", "b"]).note("transfer").ttl(TTL).acquire().await.unwrap();
        let names: Vec<_> = set.tokens().map(|(name, _)| name.to_string()).collect();
        assert_eq!(names, ["bank:a", "bank:b"], "sorted, and each once");
        let tokens = [set.token_of("a").unwrap(), set.token_of("b").unwrap()];
        assert_ne!(tokens[0], tokens[1]);
        assert_eq!(set.token_of("c"), None);
        set.check().unwrap();
        assert_eq!(set.state(), LeaseState::Held);
        assert!(set.remaining() > TTL / 2 && set.remaining() < TTL);
        for name in ["a", "b"] {
            let Err(Error::Busy(busy)) = client.lock(name).attempt().await else { panic!("it is held") };
            assert_eq!(busy.holder.unwrap().note.text(), Some("transfer"));
        }
        set.ensure(TTL / 2).await.unwrap();
        // Renewed as any lease is.
        tokio::time::sleep(TTL * 2).await;
        set.check().unwrap();
        set.release().await.unwrap();
        assert!(all_deserted(&client, &["a", "b"]).await);
    }
}

#[tokio::test]
async fn one_to_sixty_four_names() {
    let client = Leasehold::memory();
    let names = |count: usize| (0..count).map(|number| format!("shelf:{number}")).collect::<Vec<_>>();
    for wrong in [0, 65, 1000] {
        let error = client.lock_all(names(wrong)).acquire().await.unwrap_err();
        assert!(matches!(error, Error::Config(_)) && error.help().is_some(), "{error}");
    }
    assert!(matches!(client.lock_all(["a", ""]).acquire().await, Err(Error::Name(_))));
    assert!(matches!(client.lock_all(["a"]).note("\n").acquire().await, Err(Error::Config(_))));
    for apart in EACH_WAY {
        let (_, client, other) = two(apart);
        let set = client.lock_all(names(64)).acquire().await.unwrap();
        assert_eq!(set.tokens().count(), 64);
        let last = other.lock("shelf:63");
        assert!(last.try_acquire().await.unwrap().is_none());
        set.release().await.unwrap();
        last.try_acquire().await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_no_says_which_is_in_the_way_and_leaves_nothing() {
    for apart in EACH_WAY {
        let (_, client, other) = two(apart);
        let all = client.lock_all(["c", "a", "b"]);
        let held = other.lock("b").acquire().await.unwrap();
        let Err(Error::Busy(busy)) = all.attempt().await else { panic!("one is held") };
        assert_eq!((busy.name.as_str(), &*busy.holder.unwrap().id), ("b", held.owner_id()));
        assert!(all_deserted(&other, &["a", "c"]).await, "{apart:?}: nothing is left when it answers");
        assert!(all.try_acquire().await.unwrap().is_none());
        assert!(all_deserted(&other, &["a", "c"]).await);
        assert!(
            matches!(all.try_run(async |_| ()).await, Ok(Outcome::Skipped(busy)) if busy.name.as_str() == "b")
        );
        let Err(Error::TimedOut { waited, busy }) = all.acquire_within(ms(30)).await else {
            panic!("one is held")
        };
        assert_eq!((waited, busy.name.as_str()), (ms(30), "b"));
        until("nothing is left", async || all_deserted(&other, &["a", "c"]).await).await;
        held.release().await.unwrap();
        let three = all.run_within(TTL * 5, async |set| set.tokens().count()).await.unwrap();
        assert_eq!(three, 3);
        assert!(matches!(all.try_run(async |_| 1).await, Ok(Outcome::Ran(1))));
    }
}

#[tokio::test]
async fn a_wait_is_one_for_all_of_them_not_one_for_each() {
    let (_, client, other) = two(Apart::Together);
    let names = ["a", "b", "c", "d", "e"];
    let mut held = Vec::new();
    for name in names {
        held.push(other.lock(name).acquire().await.unwrap());
    }
    let waits = tokio::spawn({
        let all = client.lock_all(names);
        async move { all.acquire_within(ms(300)).await }
    });
    // Each lets it wait for half as long as it will wait for all.
    for lease in held {
        let name = lease.name().as_str().to_owned();
        until("it waits for this one, or no more", async || {
            waits.is_finished() || other.inspect(&name).await.unwrap().waiters.len() == 1
        })
        .await;
        tokio::time::sleep(ms(150)).await;
        lease.release().await.unwrap();
    }
    let answer = waits.await.unwrap();
    assert!(matches!(answer, Err(Error::TimedOut { waited, .. }) if waited == ms(300)), "{answer:?}");
    until("nothing is left", async || all_deserted(&other, &names).await).await;
}

#[tokio::test]
async fn opposite_orders_never_wait_for_each_other() {
    for apart in EACH_WAY {
        let (_, client, other) = two(apart);
        let tasks: Vec<_> = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"], ["c", "a", "b"]]
            .into_iter()
            .enumerate()
            .map(|(index, names)| {
                let all = if index % 2 == 0 { &client } else { &other }.lock_all(names);
                tokio::spawn(async move {
                    for _ in 0..10 {
                        let ran = all.run_within(TTL * 20, async |set| {
                            tokio::time::sleep(ms(1)).await;
                            set.check()
                        });
                        ran.await.unwrap().unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        until("nothing is left", async || all_deserted(&other, &["a", "b", "c"]).await).await;
    }
}

#[tokio::test]
async fn what_is_held_while_others_are_waited_for_stays_held() {
    for apart in EACH_WAY {
        let (_, client, other) = two(apart);
        let in_the_way = other.lock("b").ttl(TTL).acquire().await.unwrap();
        let waits = tokio::spawn({
            let all = client.lock_all(["a", "b", "c"]).ttl(TTL);
            async move { all.acquire().await.unwrap() }
        });
        until("it waits", async || other.inspect("b").await.unwrap().waiters.len() == 1).await;
        let token = other.inspect("a").await.unwrap().holders[0].token;
        assert!(is_deserted(&other, "c").await, "what comes after is left alone");
        tokio::time::sleep(TTL * 3).await;
        in_the_way.release().await.unwrap();
        let set = waits.await.unwrap();
        assert_eq!(set.token_of("a"), token);
        set.release().await.unwrap();
    }
}

#[tokio::test]
async fn how_long_they_may_be_held_is_counted_from_when_all_are() {
    let (_, client, other) = two(Apart::Together);
    let in_the_way = other.lock("b").acquire().await.unwrap();
    let waits = tokio::spawn({
        let all = client.lock_all(["a", "b"]).ttl(TTL * 100).max_hold(TTL);
        async move { all.acquire().await.unwrap() }
    });
    until("it waits", async || other.inspect("b").await.unwrap().waiters.len() == 1).await;
    let token = other.inspect("a").await.unwrap().holders[0].token;
    tokio::time::sleep(TTL * 2).await;
    in_the_way.release().await.unwrap();
    let set = waits.await.unwrap();
    assert_eq!(set.token_of("a"), token, "it was not lost meanwhile");
    set.check().unwrap();
    // Long before the first renewal.
    assert_eq!(set.lost().await.reason, LostReason::HeldTooLong);
    let lease = client.lock("c").ttl(TTL * 100).max_hold(TTL).acquire().await.unwrap();
    let clock = Clock::system();
    let since = clock.now();
    assert_eq!(lease.lost().await.reason, LostReason::HeldTooLong);
    assert!(clock.now().since(since) < TTL * 20, "nor does one alone wait for its first renewal");
}

#[tokio::test]
async fn a_future_that_nobody_polls_keeps_nothing() {
    let (_, client, other) = two(Apart::Together);
    let in_the_way = other.lock("b").acquire().await.unwrap();
    let all = client.lock_all(["a", "b"]).ttl(TTL);
    let mut waits = Box::pin(all.acquire());
    // Until it holds the first and waits for the second.
    until("it waits", async || {
        let poll =
            std::future::poll_fn(|context| std::task::Poll::Ready(waits.as_mut().poll(context).is_ready()));
        assert!(!poll.await);
        other.inspect("b").await.unwrap().waiters.len() == 1
    })
    .await;
    assert!(!is_deserted(&other, "a").await);
    until("what it holds lapses", async || is_deserted(&other, "a").await).await;
    // Polled again, it goes on, and what it gives is held.
    in_the_way.release().await.unwrap();
    waits.await.unwrap().check().unwrap();
}

#[tokio::test]
async fn one_that_is_lost_while_others_are_waited_for_is_asked_for_again() {
    let (store, client, other) = two(Apart::Together);
    let in_the_way = other.lock("b").acquire().await.unwrap();
    let waits = tokio::spawn({
        let all = client.lock_all(["a", "b"]).ttl(TTL);
        async move { all.acquire().await.unwrap() }
    });
    until("it waits", async || other.inspect("b").await.unwrap().waiters.len() == 1).await;
    let entry = other.inspect("a").await.unwrap().holders.remove(0);
    store.inner.release(&LockName::parse("a").unwrap(), entry.id, Leave::Open).await.unwrap();
    until("it has it again", async || {
        other.inspect("a").await.unwrap().holders.first().is_some_and(|holder| holder.token > entry.token)
    })
    .await;
    in_the_way.release().await.unwrap();
    let set = waits.await.unwrap();
    set.check().unwrap();
    assert!(set.token_of("a") > entry.token);
}

#[tokio::test]
async fn the_set_is_lost_when_one_of_it_is() {
    let (store, client, other) = two(Apart::Together);
    let set = client.lock_all(["a", "b", "c"]).ttl(TTL).acquire().await.unwrap();
    let cancelled = set.cancelled();
    assert!(!cancelled.is_cancelled());
    let id = other.inspect("b").await.unwrap().holders[0].id;
    store.inner.release(&LockName::parse("b").unwrap(), id, Leave::Open).await.unwrap();
    assert_eq!(set.lost().await.reason, LostReason::StoreForgot);
    cancelled.cancelled().await;
    assert_eq!(set.state(), LeaseState::Lost);
    assert_eq!(set.check().unwrap_err().reason, LostReason::StoreForgot);
    assert_eq!(set.remaining(), Duration::ZERO);
    assert!(set.ensure(ms(1)).await.is_err());
    assert!(set.cancelled().is_cancelled());
    assert!(set.leases()[0].check().is_ok(), "the others are held until it is given back");
    assert!(set.token_of("b").is_some(), "for logs");
    assert!(matches!(set.release().await, Err(Error::Lost(_))));
    until("nothing is left", async || all_deserted(&other, &["a", "b", "c"]).await).await;
}

#[tokio::test]
async fn work_is_stopped_when_one_is_lost() {
    let (store, client, _) = two(Apart::Together);
    let all = client.lock_all(["a", "b"]).ttl(TTL);
    let ran = all.run(async |set| {
        set.check().unwrap();
        let name = LockName::parse("b").unwrap();
        let id = store.inner.inspect(&name).await.unwrap().holders[0].id;
        store.inner.release(&name, id, Leave::Open).await.unwrap();
        std::future::pending::<()>().await;
    });
    assert!(matches!(ran.await, Err(Error::Lost(_))));
}

#[tokio::test]
async fn a_store_that_fails_is_an_error_and_nothing_is_left() {
    let (store, client, other) = two(Apart::Together);
    for mood in [Mood::Refuse, Mood::Lose, Mood::Hang] {
        store.be(Op::Claim, mood, ALWAYS);
        let clock = Clock::system();
        let started = clock.now();
        let all = client.lock_all(["a", "b"]);
        let error = all.acquire().await.unwrap_err();
        assert!(matches!(error, Error::Store(_)), "{mood:?}: {error}");
        assert!(clock.now().since(started) >= TTL, "not before its time");
        let error = all.acquire_within(TTL / 3).await.unwrap_err();
        assert!(matches!(error, Error::Store(_) | Error::TimedOut { .. }), "{mood:?}: {error}");
        until("what was granted unseen is given back", async || all_deserted(&other, &["a", "b"]).await)
            .await;
    }
}

#[tokio::test]
async fn lost_replies_are_cured_by_asking_again_with_the_same_ids() {
    for apart in EACH_WAY {
        let (store, client, other) = two(apart);
        store.be(Op::Claim, Mood::Lose, 3);
        let set = client.lock_all(["a", "b"]).acquire_within(TTL * 5).await.unwrap();
        for name in ["a", "b"] {
            let holders = other.inspect(name).await.unwrap().holders;
            assert_eq!(holders.iter().map(|holder| holder.token).collect::<Vec<_>>(), [set.token_of(name)]);
        }
        store.be(Op::Release, Mood::Lose, 2);
        set.release().await.expect("the first tries succeeded, though their answers were lost");
        assert!(all_deserted(&other, &["a", "b"]).await);
    }
}

#[tokio::test]
async fn a_dropped_future_leaves_none_of_them_behind_however_often_it_was_polled() {
    let names = ["a", "b", "c"];
    for apart in EACH_WAY {
        let (_, client, other) = two(apart);
        let all = client.lock_all(names);
        for in_the_way in [None, Some("a"), Some("b"), Some("c")] {
            for polls in 0..=MOST_POLLS {
                for verb in 0..6 {
                    let held = match in_the_way {
                        Some(name) => Some(other.lock(name).acquire().await.unwrap()),
                        None => None,
                    };
                    match verb {
                        0 => drop(drop_after(polls, all.acquire()).await),
                        1 => drop(drop_after(polls, all.acquire_within(ms(4))).await),
                        2 => drop(drop_after(polls, all.try_acquire()).await),
                        3 => drop(drop_after(polls, all.run(async |_| ms(1))).await),
                        4 => drop(drop_after(polls, all.attempt()).await),
                        _ => drop(unheard(all.acquire()).await),
                    }
                    if let Some(held) = held {
                        held.release().await.unwrap();
                    }
                    until("nothing is left", async || all_deserted(&other, &names).await).await;
                }
            }
        }
        for polls in 0..=MOST_POLLS {
            let set = all.acquire().await.unwrap();
            drop(drop_after(polls, set.release()).await);
            until("nothing is left", async || all_deserted(&other, &names).await).await;
        }
    }
}

#[tokio::test]
async fn a_client_that_is_closed_while_it_waits_leaves_nothing_behind() {
    let (_, client, other) = two(Apart::Together);
    let held = other.lock("b").acquire().await.unwrap();
    let waits = tokio::spawn({
        let all = client.lock_all(["a", "b"]).ttl(TTL);
        async move { all.acquire().await }
    });
    until("it waits", async || other.inspect("b").await.unwrap().waiters.len() == 1).await;
    client.close().await.unwrap();
    assert!(waits.await.unwrap().is_err());
    held.release().await.unwrap();
    until("nothing is left", async || all_deserted(&other, &["a", "b"]).await).await;
}
