//! The test kit itself: what each of its words brings about, and that nothing due is left undone.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::sim::{Mishap, Sim};
use leasehold::{Error, Event, LeaseState, LostReason, Observer, Op};

const TTL: Duration = Duration::from_secs(30);

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[derive(Debug, Default)]
struct Log(Mutex<Vec<Event>>);

impl Observer for Log {
    fn on(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Log {
    fn renewed(&self) -> usize {
        self.0.lock().unwrap().iter().filter(|event| matches!(event, Event::Renewed { .. })).count()
    }
}

#[tokio::test]
async fn time_stands_still_until_it_is_moved_and_then_everything_due_happens_in_its_order() {
    let (sim, log) = (Sim::new(), Arc::new(Log::default()));
    let client = sim.host_with("a", |builder| builder.observer(log.clone()));
    let lease = client.lock("x").ttl(TTL).acquire().await.unwrap();
    // What is due late on one host makes nobody skip what is due soon on another.
    let long = sim.host("b").lock("long").ttl(TTL * 60).acquire().await.unwrap();
    let left = lease.remaining();
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!((lease.remaining(), log.renewed()), (left, 0));
    // A leap over several ttl is no leap for the lease: it was renewed at every third of its ttl.
    sim.advance(TTL * 20).await;
    assert_eq!(log.renewed(), 60);
    assert_eq!((lease.state(), long.state()), (LeaseState::Held, LeaseState::Held));
    assert_eq!(sim.host("b").lock("x").try_acquire().await.unwrap().map(drop), None);
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_host_that_is_cut_off_loses_its_lease_before_another_gets_it() {
    let sim = Sim::new();
    let (a, b) = (sim.client(), sim.host("b"));
    let lease = a.lock("x").ttl(TTL).acquire().await.unwrap();
    let waits = tokio::spawn({
        let lock = b.lock("x");
        async move { lock.acquire().await }
    });
    sim.cut_off(&lease);
    sim.advance(TTL - TTL / 6).await;
    assert_eq!(lease.state(), LeaseState::Endangered);
    sim.advance(TTL / 6 - TTL / 100 - Duration::from_millis(2)).await;
    assert_eq!(lease.check().unwrap_err().reason, LostReason::Expired);
    assert!(!waits.is_finished());
    sim.advance(secs(1)).await;
    assert!(waits.await.unwrap().unwrap().token() > lease.token());
    // What is mended brings nothing back.
    sim.mend(&a).await;
    assert!(lease.check().is_err() && lease.ensure(secs(1)).await.is_err());
}

#[tokio::test]
async fn a_frozen_host_believes_in_its_lease_until_it_wakes_up() {
    let sim = Sim::new();
    let lease = sim.client().lock("x").ttl(TTL).acquire().await.unwrap();
    sim.freeze(&lease);
    sim.advance(TTL * 2).await;
    lease.check().expect("no time has passed for it: this is what tokens are for");
    let next = sim.host("b").lock("x").try_acquire().await.unwrap().expect("the store knows better");
    assert!(next.token() > lease.token());
    sim.mend(&lease).await;
    assert_eq!(lease.check().unwrap_err().reason, LostReason::Expired);
}

#[tokio::test]
async fn renewals_alone_may_fail() {
    let sim = Sim::new();
    let client = sim.client();
    let lease = client.lock("x").ttl(TTL).acquire().await.unwrap();
    sim.pause_renewals(&client);
    client.lock("y").acquire().await.expect("all else goes through").release().await.unwrap();
    sim.advance(TTL + secs(1)).await;
    assert!(lease.check().is_err());
}

#[tokio::test]
async fn one_lease_runs_out_and_the_others_of_its_host_do_not() {
    let sim = Sim::new();
    let lock = sim.client().lock("x").ttl(TTL);
    let (lease, other) = (lock.acquire().await.unwrap(), sim.client().lock("y").acquire().await.unwrap());
    sim.expire(&lease).await;
    assert_eq!(lease.lost().await.reason, LostReason::Expired);
    other.check().unwrap();
    let again = lock.acquire().await.unwrap();
    sim.advance(TTL * 3).await;
    again.check().expect("the next is renewed again");
}

#[tokio::test]
async fn a_broken_lease_is_free_at_once_and_its_holder_hears_of_it_with_the_next_renewal() {
    let sim = Sim::new();
    let lease = sim.client().lock("x").ttl(TTL).acquire().await.unwrap();
    sim.break_lease(&lease).await;
    lease.check().expect("not told yet");
    assert!(sim.host("b").lock("x").try_acquire().await.unwrap().is_some());
    sim.advance(TTL / 3).await;
    assert_eq!(lease.check().unwrap_err().reason, LostReason::StoreForgot);
}

#[tokio::test]
async fn a_store_that_fails_over_has_forgotten_and_its_tokens_rise() {
    let sim = Sim::new();
    let old = sim.client().lock("old").ttl(TTL).acquire().await.unwrap();
    sim.advance(secs(10)).await;
    let new = sim.client().lock("new").ttl(TTL).acquire().await.unwrap();
    sim.fail_over_losing(secs(5)).await;
    // A host that never saw the old token.
    let next = sim.host("b").lock("new").try_acquire().await.unwrap().expect("it was forgotten");
    assert!(next.token() > new.token());
    assert!(sim.host("b").lock("old").try_acquire().await.unwrap().is_none(), "it was granted before");
    sim.advance(TTL / 3).await;
    assert_eq!(new.check().unwrap_err().reason, LostReason::StoreForgot);
    old.check().unwrap();
    sim.fail_over().await;
    assert!(
        sim.host("b").lock("old").try_acquire().await.unwrap().expect("all is gone").token() > old.token()
    );
    sim.advance(TTL / 3).await;
    assert!(old.check().is_err());
}

#[tokio::test]
async fn lost_replies_and_slow_answers_cost_time_and_no_lease() {
    let sim = Sim::new();
    let client = sim.client();
    sim.lose_replies(&client, 3);
    let started = sim.clock().now();
    let lease = sim.until(client.lock("x").ttl(TTL).acquire()).await.unwrap();
    assert_eq!(sim.wire(&client).asked(Op::Claim), 4);
    let took = sim.clock().now().since(started);
    assert!(!took.is_zero() && took < secs(1), "as much time as it needed and no more: {took:?}");
    assert_eq!(client.inspect("x").await.unwrap().holders.len(), 1, "granted once");
    sim.advance(secs(3)).await;
    sim.delay(secs(2));
    let (ensured, ()) = tokio::join!(lease.ensure(TTL - secs(1)), sim.advance(secs(2)));
    assert!(ensured.is_err(), "two seconds of its ttl have gone when the answer comes");
    sim.until(lease.release()).await.unwrap();
}

#[tokio::test]
async fn an_answer_that_is_under_way_when_the_wire_is_cut_does_not_arrive() {
    let sim = Sim::new();
    let client = sim.client();
    sim.delay(secs(2));
    let asks = tokio::spawn({
        let lock = client.lock("x");
        async move { lock.acquire().await }
    });
    sim.advance(secs(1)).await;
    sim.cut_off(&client);
    sim.advance(secs(2)).await;
    assert!(!asks.is_finished());
    assert_eq!(sim.wire(&client).asked(Op::Claim), 1);
    sim.mend(&client).await;
    let lease = asks.await.unwrap().expect("now it does");
    sim.until(lease.release()).await.unwrap();
}

#[tokio::test]
async fn a_wait_ends_when_its_time_is_up_by_this_clock() {
    let sim = Sim::new();
    let _held = sim.client().lock("x").acquire().await.unwrap();
    let started = sim.clock().now();
    let waited = sim.until(sim.host("b").lock("x").acquire_within(secs(600))).await;
    assert!(matches!(waited, Err(Error::TimedOut { .. })), "{waited:?}");
    assert_eq!(sim.clock().now().since(started), secs(600));
}

#[tokio::test]
async fn a_waiter_keeps_its_place_while_time_flies_and_gets_its_turn_without_it() {
    let sim = Sim::new();
    let held = sim.client().lock("x").acquire().await.unwrap();
    let waits = tokio::spawn({
        let lock = sim.host("b").lock("x").fair();
        async move { lock.acquire().await }
    });
    sim.advance(secs(60)).await;
    let late = tokio::spawn({
        let lock = sim.host("c").lock("x").fair();
        async move { lock.acquire().await }
    });
    sim.advance(secs(60)).await;
    let now = sim.clock().now();
    held.release().await.unwrap();
    let lease = waits.await.unwrap().unwrap();
    assert_eq!(sim.clock().now(), now, "a release is enough");
    assert!(!late.is_finished());
    lease.release().await.unwrap();
    late.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn anything_else_may_go_wrong_on_the_wire() {
    let sim = Sim::new();
    let client = sim.client();
    sim.wire(&client).next(Op::Claim, Mishap::Refused, 1);
    let lease = sim.until(client.lock("x").try_acquire()).await.unwrap();
    assert_eq!((lease.is_some(), sim.wire(&client).asked(Op::Claim)), (true, 2), "asked again");
    sim.wire(&client).always(Op::Claim, Mishap::Silent);
    assert!(matches!(sim.until(client.lock("y").acquire()).await, Err(Error::Store(_))));
    sim.mend(&client).await;
    client.lock("y").acquire().await.unwrap().release().await.unwrap();
}

#[test]
fn it_works_on_smol_and_without_any_runtime() {
    let sim = Sim::new();
    smol::block_on(async {
        let lease = sim.client().lock("x").ttl(TTL).acquire().await.unwrap();
        let lost = smol::spawn({
            let cancelled = lease.cancelled();
            async move { cancelled.cancelled().await }
        });
        sim.cut_off(&lease);
        sim.advance(TTL).await;
        lost.await;
    });
}

#[tokio::test]
#[should_panic(expected = "no host of this simulation")]
async fn a_stranger_is_no_host() {
    Sim::new().cut_off(&leasehold::Leasehold::memory());
}
