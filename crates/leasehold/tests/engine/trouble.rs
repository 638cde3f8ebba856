//! What the engine does when the store fails, is silent, or loses its answers.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Log, Mood, Moody, TTL, deserted, ms, until};
use leasehold::sim::{Mishap, Sim, Wire};
use leasehold::{Clock, Error, Event, LeaseState, Leasehold, LostReason, MemoryStore, Op};
use leasehold_core::{Doubt, Leave};

fn client() -> (Arc<Wire>, Arc<Log>, Leasehold) {
    let (store, log) = (Arc::new(Wire::around(Arc::new(MemoryStore::new()))), Arc::new(Log::default()));
    let builder = Leasehold::builder().timeout(TTL).observer(log.clone());
    (store.clone(), log, builder.store(store))
}

#[tokio::test]
async fn a_lost_answer_is_cured_by_asking_again_with_the_same_id() {
    let (store, _, client) = client();
    store.next(Op::Claim, Mishap::ReplyLost, 3);
    let lease = client.lock("x").acquire_within(TTL * 5).await.unwrap();
    let snapshot = client.inspect("x").await.unwrap();
    assert_eq!(snapshot.holders.len(), 1);
    assert_eq!(snapshot.holders[0].token, Some(lease.token()), "it is the one that was granted first");
    assert!(snapshot.waiters.is_empty());
    store.next(Op::Release, Mishap::ReplyLost, 2);
    lease.release().await.expect("the first try succeeded, though its answer was lost");
}

#[tokio::test]
async fn a_store_that_fails_for_longer_than_the_timeout_is_an_error_and_nothing_is_left() {
    let (store, _, client) = client();
    for mishap in [Mishap::Refused, Mishap::ReplyLost, Mishap::Silent] {
        store.always(Op::Claim, mishap);
        let clock = Clock::system();
        let started = clock.now();
        let error = client.lock("x").acquire().await.unwrap_err();
        assert!(matches!(error, Error::Store(_)), "{mishap:?}: {error}");
        assert_eq!(error.outcome_unknown(), mishap != Mishap::Refused, "{mishap:?}");
        assert!(clock.now().since(started) >= TTL, "not before its time");
        until("what was granted unseen is given back", async || {
            client.inspect("x").await.unwrap().holders.is_empty()
        })
        .await;
    }
}

#[tokio::test]
async fn a_wait_that_ends_while_the_store_is_silent_says_that_and_not_busy() {
    let (store, _, client) = client();
    store.always(Op::Claim, Mishap::Refused);
    let error = client.lock("x").acquire_within(TTL / 3).await.unwrap_err();
    assert!(matches!(error, Error::Store(_)), "{error}");
}

#[tokio::test]
async fn a_wait_is_a_hard_bound_also_when_the_store_hangs() {
    let (store, _, client) = client();
    let _held = client.lock("x").acquire().await.unwrap();
    store.always(Op::Inspect, Mishap::Silent);
    let clock = Clock::system();
    let started = clock.now();
    let error = client.lock("x").acquire_within(ms(100)).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    assert!(clock.now().since(started) < ms(100) + Duration::from_secs(2), "the promised bound");
}

#[tokio::test]
async fn renewals_that_fail_for_a_while_cost_nothing() {
    let (store, log, client) = client();
    let lease = client.lock("x").ttl(TTL).acquire().await.unwrap();
    for mishap in [Mishap::Refused, Mishap::ReplyLost, Mishap::Silent] {
        let before = log.count(|event| matches!(event, Event::RenewalFailed { .. }));
        store.next(Op::Renew, mishap, 1);
        until("a renewal fails", async || {
            log.count(|event| matches!(event, Event::RenewalFailed { .. })) > before
        })
        .await;
        let good = log.count(|event| matches!(event, Event::Renewed { .. }));
        until("and the next succeeds", async || {
            log.count(|event| matches!(event, Event::Renewed { .. })) > good
        })
        .await;
        assert_eq!(lease.state(), LeaseState::Held, "{mishap:?}");
    }
    assert_eq!(log.count(|event| matches!(event, Event::Lost { .. })), 0);
    lease.release().await.unwrap();
}

#[tokio::test]
async fn renewals_that_fail_for_good_endanger_the_lease_and_then_lose_it_before_its_end() {
    let (store, log, client) = client();
    let clock = Clock::system();
    let asked = clock.now();
    let lease = client.lock("x").ttl(TTL).grace(TTL / 4).acquire().await.unwrap();
    store.always(Op::Renew, Mishap::Refused);
    lease.endangered().await;
    assert_eq!(lease.state(), LeaseState::Endangered);
    lease.check().expect("it still holds");
    let lost = lease.lost().await;
    assert_eq!(lost.reason, LostReason::Expired);
    assert!(clock.now().since(asked) <= TTL * 2, "told in time");
    until("everybody is told", async || log.count(|event| matches!(event, Event::Lost { .. })) > 0).await;
    assert_eq!(log.count(|event| matches!(event, Event::Endangered { .. })), 1, "told once");
    // The store comes back and would renew it: too late.
    store.mend();
    assert!(lease.check().is_err());
    assert!(lease.ensure(ms(1)).await.is_err());
    assert_eq!(log.count(|event| matches!(event, Event::Lost { .. })), 1, "told once");
}

#[tokio::test]
async fn a_store_that_was_replaced_endangers_what_is_held_until_it_has_been_asked() {
    let (store, log, client) = client();
    // Its renewal is not due for ten minutes.
    let ttl = Duration::from_secs(1800);
    let kept = client.lock("kept").ttl(ttl).acquire().await.unwrap();
    let gone = client.lock("gone").ttl(ttl).acquire().await.unwrap();
    store.next(Op::Renew, Mishap::Late(ms(100)), 1);
    store.doubts(Doubt::Replaced);
    tokio::time::timeout(TTL * 5, kept.endangered()).await.expect("it is warned at once");
    kept.check().expect("it holds all the same");
    until("it is asked, and still has them", async || {
        kept.state() == LeaseState::Held && gone.state() == LeaseState::Held
    })
    .await;
    assert_eq!(log.count(|event| matches!(event, Event::Endangered { .. })), 2, "each is told once");

    // A connection that breaks is reason enough to ask, and none to warn.
    let holder = client.inspect("gone").await.unwrap().holders.remove(0);
    store.store().release(gone.name(), holder.id, Leave::Open).await.unwrap();
    store.doubts(Doubt::Cut);
    assert_eq!(gone.lost().await.reason, LostReason::StoreForgot);
    assert_eq!(kept.state(), LeaseState::Held);
    assert_eq!(log.count(|event| matches!(event, Event::Endangered { .. })), 2);
    kept.release().await.unwrap();
}

#[tokio::test]
async fn an_answer_from_before_a_doubt_does_not_settle_it() {
    let (store, _, client) = client();
    let ttl = Duration::from_secs(1800);
    let gone = client.lock("gone").ttl(ttl).acquire().await.unwrap();
    store.next(Op::Renew, Mishap::Late(ms(200)), 1);
    let asked = store.asked(Op::Renew);
    let ensuring = async {
        // More than there can be: so it asks, and complains only then.
        drop(gone.ensure(ttl).await);
    };
    let replacing = async {
        until("a renewal is under way", async || store.asked(Op::Renew) > asked).await;
        let holder = client.inspect("gone").await.unwrap().holders.remove(0);
        store.store().release(gone.name(), holder.id, Leave::Open).await.unwrap();
        store.doubts(Doubt::Replaced);
    };
    tokio::join!(ensuring, replacing);
    let lost = tokio::time::timeout(TTL * 5, gone.lost()).await.expect("it is asked again at once");
    assert_eq!(lost.reason, LostReason::StoreForgot);
}

#[tokio::test]
async fn doubts_about_a_store_that_answers_nothing_make_nobody_ask_faster() {
    let (store, log, client) = client();
    let lease = client.lock("x").ttl(Duration::from_secs(1800)).acquire().await.unwrap();
    store.always(Op::Renew, Mishap::Refused);
    store.doubts(Doubt::Replaced);
    until("a renewal fails", async || log.count(|event| matches!(event, Event::RenewalFailed { .. })) > 0)
        .await;
    assert_eq!(lease.state(), LeaseState::Endangered, "it is another store, and it has not said yes");
    let asked = store.asked(Op::Renew);
    for _ in 0..20 {
        store.doubts(Doubt::Replaced);
        tokio::time::sleep(ms(2)).await;
    }
    assert!(store.asked(Op::Renew) <= asked + 1, "{} more", store.asked(Op::Renew) - asked);
    drop(lease);
}

#[tokio::test]
async fn an_answer_that_comes_after_the_end_brings_nothing_back() {
    let (store, _, _) = client();
    let (clock, log) = (Clock::system(), Arc::new(Log::default()));
    let client = Leasehold::builder().clock(clock.clone()).observer(log.clone()).store(store.clone());
    let lease = client.lock("x").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    store.next(Op::Renew, Mishap::Late(ms(200)), 1);
    let lease = Arc::new(lease);
    clock.advance(Duration::from_secs(1));
    let ensured = tokio::spawn({
        let lease = lease.clone();
        async move { lease.ensure(Duration::from_secs(59)).await }
    });
    until("the renewal is under way", async || store.asked(Op::Renew) > 0).await;
    // Past the end that the grant promised, and before the one that the renewal will.
    clock.advance(ms(58_500));
    assert!(lease.check().is_err());
    assert!(ensured.await.unwrap().is_err());
    until("it is answered", async || {
        log.count(|event| matches!(event, Event::Asked { op: Op::Renew, .. })) > 0
    })
    .await;
    assert!(lease.check().is_err(), "though the store has kept it");
}

#[tokio::test]
async fn validity_counts_from_before_the_request_was_sent() {
    let (sim, ttl, late) = (Sim::new(), Duration::from_secs(20), ms(700));
    let (client, lock) = (sim.client(), sim.client().lock("x").ttl(ttl));
    sim.wire(&client).next(Op::Claim, Mishap::Late(late), 1);
    let lease = sim.until(lock.acquire()).await.unwrap();
    assert_eq!(lease.remaining(), lease_end(ttl) - late, "after the grant");
    sim.wire(&client).next(Op::Renew, Mishap::Late(late), 1);
    sim.until(lease.ensure(ttl - ms(1000))).await.unwrap();
    assert_eq!(lease.remaining(), lease_end(ttl) - late, "after the renewal");
    lease.release().await.unwrap();
}

/// What the design gives up: one percent and 2 ms.
fn lease_end(ttl: Duration) -> Duration {
    ttl - ttl / 100 - ms(2)
}

#[tokio::test]
async fn a_repeated_grant_holds_no_longer_than_the_first() {
    let (store, _, client) = client();
    store.next(Op::Claim, Mishap::ReplyLost, 4);
    let clock = Clock::system();
    let asked = clock.now();
    let lease = client.lock("x").ttl(Duration::from_secs(2)).acquire().await.unwrap();
    let promised = lease.remaining() + clock.now().since(asked);
    let snapshot = store.store().inspect(lease.name()).await.unwrap();
    assert!(lease.remaining() < snapshot.holders[0].left, "it ends before the store lets others in");
    assert!(promised <= Duration::from_secs(2), "counted from the first time it was asked");
    drop(lease);
}

#[tokio::test]
async fn a_lease_that_the_store_no_longer_knows_is_lost_at_the_next_renewal() {
    let (store, _, client) = client();
    let lease = client.lock("x").ttl(TTL).acquire().await.unwrap();
    let id = store.store().inspect(lease.name()).await.unwrap().holders[0].id;
    store.store().release(lease.name(), id, Leave::Open).await.unwrap();
    assert_eq!(lease.lost().await.reason, LostReason::StoreForgot);
    assert!(matches!(lease.release().await, Err(Error::Lost(_))));
}

#[tokio::test]
async fn a_release_of_what_somebody_else_ended_says_so() {
    let (store, _, client) = client();
    let lease = client.lock("x").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let id = store.store().inspect(lease.name()).await.unwrap().holders[0].id;
    store.store().release(lease.name(), id, Leave::Open).await.unwrap();
    assert!(matches!(lease.release().await, Err(Error::Lost(_))));
}

#[tokio::test]
async fn a_release_that_is_not_answered_goes_on_in_the_background() {
    let (store, log, client) = client();
    let lease = client.lock("x").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    store.always(Op::Release, Mishap::Refused);
    assert!(matches!(lease.release().await, Err(Error::Store(_))));
    assert_eq!(log.count(|event| matches!(event, Event::ReleaseFailed { .. })), 1, "told once");
    store.mend();
    until("it is given back", async || client.inspect("x").await.unwrap().holders.is_empty()).await;
}

/// As one whose replicas are gone, which gives back what it granted: the same id is then spent, which is an answer.
#[tokio::test]
async fn a_store_that_takes_each_grant_back_is_given_up_too() {
    let store = Arc::new(Moody::new());
    let client = Leasehold::builder().timeout(TTL).store(store.clone());
    store.be(Op::Claim, Mood::Undo, u32::MAX);
    let clock = Clock::system();
    let started = clock.now();
    let tried = tokio::time::timeout(TTL * 30, client.lock("x").acquire()).await;
    let error = tried.expect("it never gives up").unwrap_err();
    assert!(matches!(error, Error::Store(_)), "{error}");
    assert!(clock.now().since(started) >= TTL, "not before its time");
    deserted(&client, "x").await;
}

#[tokio::test]
async fn a_grant_that_nobody_takes_lapses() {
    let (store, _, client) = client();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    // The engine may be so quick that the first poll has it; such a lease was taken.
    for try_again in 0..50 {
        let name = format!("x:{try_again}");
        let lock = client.lock(&name).ttl(TTL);
        let mut future = std::pin::pin!(lock.acquire());
        if future.as_mut().poll(&mut context).is_ready() {
            continue;
        }
        // It is granted, but the future is never polled again: it must not be renewed.
        let held = async || !store.store().inspect(&name.parse_name()).await.unwrap().holders.is_empty();
        until("it is granted", held).await;
        until("it lapses", async || !held().await).await;
        return;
    }
    panic!("the first poll always has it");
}

trait ParseName {
    fn parse_name(&self) -> leasehold::LockName;
}

impl ParseName for str {
    fn parse_name(&self) -> leasehold::LockName {
        leasehold::LockName::parse(self).unwrap()
    }
}
