//! Re-entrancy by scopes: counted, one hold, one loss.

use std::sync::Arc;
use std::task::{Context, Waker};

use crate::common::{Log, Mood, Moody, TTL, ms, until};
use leasehold::{Clock, Code, Error, Event, Leasehold, LostReason, MemoryStore, Op, Scope};

fn client() -> (Arc<Moody>, Arc<Log>, Leasehold) {
    let (store, log) = (Arc::new(Moody::new()), Arc::new(Log::default()));
    let client = Leasehold::builder().timeout(TTL).observer(log.clone()).store(store.clone());
    (store, log, client)
}

async fn is_free(client: &Leasehold, name: &str) -> bool {
    let snapshot = client.inspect(name).await.unwrap();
    snapshot.holders.is_empty() && snapshot.waiters.is_empty()
}

#[tokio::test]
async fn what_a_scope_holds_it_takes_again_under_one_token_without_asking_the_store() {
    let (store, _, client) = client();
    let me = client.scope("request-8c1f");
    let first = me.lock("x").acquire().await.unwrap();
    let asked = store.asked(Op::Claim);
    let second = me.clone().lock("x").ttl(TTL * 9).acquire_within(ms(0)).await.unwrap();
    let third = client.lock("x").within(&me).try_acquire().await.unwrap().expect("it is ours");
    assert_eq!((second.token(), third.token()), (first.token(), first.token()));
    assert_eq!(second.ttl(), first.ttl(), "the options are those of the acquire that took it");
    assert_eq!(store.asked(Op::Claim), asked, "the store was not asked");
    // Whatever the order in which they go.
    first.release().await.unwrap();
    drop(third);
    second.check().expect("one is left");
    assert!(client.lock("x").try_acquire().await.unwrap().is_none(), "others are kept out");
    assert_eq!(store.asked(Op::Release), 0);
    second.release().await.unwrap();
    assert!(is_free(&client, "x").await);
    assert_eq!(store.asked(Op::Release), 1, "given back once");
    let again = me.lock("x").acquire().await.unwrap();
    drop(again);
    until("the last is given back on drop", async || is_free(&client, "x").await).await;
}

#[tokio::test]
async fn two_scopes_exclude_each_other_whatever_their_labels_and_plain_locks_exclude_both() {
    let client = Leasehold::memory();
    let (one, other) = (client.scope("same"), client.scope("same"));
    let lease = one.lock("x").acquire().await.unwrap();
    for lock in [other.lock("x"), client.lock("x")] {
        let Err(Error::Busy(busy)) = lock.attempt().await else { panic!("it is another's") };
        assert!(busy.holder.unwrap().is_you);
    }
    assert_eq!(one.label(), other.label());
    lease.release().await.unwrap();
}

#[tokio::test]
async fn tasks_of_one_scope_that_race_for_the_first_acquire_get_it_together() {
    for round in 0..20 {
        let (store, _, client) = client();
        let me = client.scope("fan-out");
        let blocker = client.lock("x").acquire().await.unwrap();
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let me = me.clone();
                tokio::spawn(async move { me.lock("x").acquire().await.unwrap() })
            })
            .collect();
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        blocker.release().await.unwrap();
        let mut leases = Vec::new();
        for task in tasks {
            leases.push(task.await.unwrap());
        }
        assert!(leases.iter().all(|lease| lease.token() == leases[0].token()));
        let releases = store.asked(Op::Release);
        drop(leases);
        until("it is given back", async || is_free(&client, "x").await).await;
        assert_eq!(store.asked(Op::Release), releases + 1, "once for all");
    }
}

#[tokio::test]
async fn when_the_first_of_a_scope_gives_up_the_next_goes_on_waiting() {
    let client = Leasehold::memory();
    let me = client.scope("me");
    let blocker = client.lock("x").acquire().await.unwrap();
    let lock = me.lock("x");
    let (first, second) = (lock.acquire_within(ms(30)), lock.acquire_within(TTL * 10));
    let (first, second) = tokio::join!(first, async {
        tokio::time::sleep(ms(100)).await;
        drop(blocker);
        second.await
    });
    assert!(matches!(first, Err(Error::TimedOut { .. })));
    second.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_loss_is_a_loss_for_all_and_what_was_lost_is_not_entered_again() {
    let (store, clock) = (Arc::new(MemoryStore::new()), Clock::system());
    let client = Leasehold::builder().clock(clock.clone()).store(store);
    let me = client.scope("me");
    let (first, second) = (me.lock("x").acquire().await.unwrap(), me.lock("x").acquire().await.unwrap());
    clock.advance(first.ttl());
    assert_eq!(first.lost().await.reason, LostReason::Expired);
    assert_eq!(second.check().unwrap_err().reason, LostReason::Expired);
    // The store still keeps what was lost here; it is another claim's.
    let Err(Error::Busy(_)) = me.lock("x").attempt().await else { panic!("it must not be entered") };
    assert!(matches!(first.release().await, Err(Error::Lost(_))));
    assert!(matches!(second.release().await, Err(Error::Lost(_))));
    let third = me.lock("x").acquire_within(TTL * 10).await.unwrap();
    third.check().unwrap();
    third.release().await.unwrap();
}

#[tokio::test]
async fn old_leases_of_a_lost_hold_do_not_count_for_the_new_one() {
    let client = Leasehold::memory();
    let me = client.scope("me");
    let old = [me.lock("x").acquire().await.unwrap(), me.lock("x").acquire().await.unwrap()];
    client.break_lease("x", old[0].token()).await.unwrap().expect("it was held");
    // The holder hears of it with the next renewal; ask for one.
    assert!(old[0].ensure(old[0].ttl()).await.is_err());
    let new = me.lock("x").acquire_within(TTL * 10).await.unwrap();
    assert!(new.token() > old[0].token());
    drop(old);
    tokio::time::sleep(ms(20)).await;
    new.check().expect("it is its own");
    assert!(client.lock("x").try_acquire().await.unwrap().is_none());
    new.release().await.unwrap();
    assert!(is_free(&client, "x").await);
}

#[tokio::test]
async fn a_dropped_acquire_of_a_scope_leaves_nothing_behind_however_often_it_was_polled() {
    let store = Arc::new(MemoryStore::new());
    let client = Leasehold::builder().store(store.clone());
    let other = Leasehold::builder().store(store);
    for polls in 0..6 {
        for held in ["free", "by another", "by the scope"] {
            let name = format!("x:{polls}:{held}");
            let me = client.scope("me");
            let blocker = match held {
                "free" => None,
                "by another" => Some(other.lock(&name).acquire().await.unwrap()),
                _ => Some(me.lock(&name).acquire().await.unwrap()),
            };
            {
                let lock = me.lock(&name);
                let mut future = std::pin::pin!(lock.acquire());
                for _ in 0..polls {
                    let mut context = Context::from_waker(Waker::noop());
                    if let std::task::Poll::Ready(lease) = future.as_mut().poll(&mut context) {
                        drop(lease);
                        break;
                    }
                    tokio::time::sleep(ms(1)).await;
                }
            }
            if let Some(blocker) = blocker {
                blocker.check().expect("it was not ended by another's going");
                blocker.release().await.unwrap();
            }
            until("nothing is left", async || is_free(&other, &name).await).await;
            let debug = format!("{me:?}");
            assert!(debug.contains("me"), "{debug}");
        }
    }
}

#[tokio::test]
async fn a_scope_survives_lost_answers_of_the_store() {
    let (store, _, client) = client();
    let me = client.scope("me");
    let lock = me.lock("x");
    store.be(Op::Claim, Mood::Lose, 2);
    let (first, second) = tokio::join!(lock.acquire(), lock.acquire());
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.token(), second.token());
    store.be(Op::Release, Mood::Lose, 2);
    first.release().await.unwrap();
    second.release().await.unwrap();
    assert!(is_free(&client, "x").await);
    // And an acquire that fails leaves the scope able to try again.
    store.be(Op::Claim, Mood::Refuse, u32::MAX);
    assert!(matches!(me.lock("x").acquire().await, Err(Error::Store(_))));
    store.be(Op::Claim, Mood::Fine, 0);
    me.lock("x").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn the_last_of_several_gives_back_as_any_of_them_asked() {
    let client = Leasehold::memory();
    let me = client.scope("me");
    let (first, second) = (me.lock("x").acquire().await.unwrap(), me.lock("x").acquire().await.unwrap());
    first.release_closed(TTL * 100, "cooling").await.unwrap();
    second.check().expect("not before the last has gone");
    drop(second);
    until("it is shut", async || client.inspect("x").await.unwrap().closed.is_some()).await;
    let (first, second) = (me.lock("y").acquire().await.unwrap(), me.lock("y").acquire().await.unwrap());
    let token = first.token();
    first.keep();
    second.release().await.unwrap();
    assert!(client.find("y", token).await.unwrap().is_some(), "it was kept");
}

#[tokio::test]
async fn a_run_in_a_scope_enters_the_run_around_it() {
    let client = Leasehold::memory();
    let me = client.scope("me");
    let (outer, inner) = me
        .lock("x")
        .run(async |outer| (outer.token(), me.lock("x").run(async |inner| inner.token()).await.unwrap()))
        .await
        .unwrap();
    assert_eq!(outer, inner);
    assert!(is_free(&client, "x").await);
}

#[test]
fn a_scope_travels_over_threads_and_needs_no_runtime() {
    fn check<T: Send + Sync + Clone + 'static>(_: &T) {}
    fn send<T: Send>(_: &T) {}
    let client = Leasehold::memory();
    let me: Scope = client.scope("me");
    check(&me);
    let lock = me.lock("x");
    send(&lock.acquire());
    send(&lock.run(async |lease| lease.check().is_ok()));
    let lease = smol::block_on(lock.acquire()).unwrap();
    let again = std::thread::spawn(move || smol::block_on(me.lock("x").acquire()).unwrap()).join().unwrap();
    assert_eq!(lease.token(), again.token());
    drop(lease);
    again.check().unwrap();
}

#[tokio::test]
async fn the_number_is_known_under_which_a_scope_that_cannot_grow_is_told_so() {
    assert_eq!(Code::GROW.to_string(), "LH0043");
    let (_, log, client) = client();
    let me = client.scope("me");
    let lease = me.lock("x").acquire().await.unwrap();
    drop(me.lock("x").acquire().await.unwrap());
    lease.release().await.unwrap();
    assert_eq!(log.count(|event| matches!(event, Event::Acquired { .. })), 1, "one hold, one event");
    assert_eq!(log.count(|event| matches!(event, Event::Released { .. })), 1);
}
