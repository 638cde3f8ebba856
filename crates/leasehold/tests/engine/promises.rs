//! What the engine promises, over the store in memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::common::{Log, TTL, ms, until};
use leasehold::sim::Sim;
use leasehold::{
    Clock, Error, Event, LeaseState, LeaseTicket, Leasehold, LostReason, MemoryStore, Outcome, Token,
};

#[tokio::test]
async fn one_has_it_and_the_others_hear_who() {
    let client = Leasehold::memory();
    let lock = client.lock("report:daily").note("first");
    let lease = lock.acquire().await.unwrap();
    assert_eq!(lease.check().unwrap(), lease.token());
    assert_eq!(lease.state(), LeaseState::Held);
    assert!(lock.try_acquire().await.unwrap().is_none());
    let Err(Error::Busy(busy)) = lock.attempt().await else { panic!("it is held") };
    let holder = busy.holder.unwrap();
    assert!(holder.is_you && holder.token == lease.token() && holder.note.text() == Some("first"));
    let Err(Error::TimedOut { busy, .. }) = lock.acquire_within(ms(20)).await else { panic!("it is held") };
    assert_eq!(busy.holder.unwrap().id, lease.owner_id());
    assert!(matches!(lock.try_run(async |_| ()).await, Ok(Outcome::Skipped(busy)) if busy.holder.is_some()));
    let first = lease.token();
    lease.release().await.unwrap();
    let second = lock.try_acquire().await.unwrap().unwrap();
    assert!(second.token() > first);
}

#[tokio::test]
async fn bad_names_notes_and_ttls_are_told_when_it_is_asked_for() {
    let client = Leasehold::memory();
    assert!(matches!(client.lock("").acquire().await, Err(Error::Name(_))));
    assert!(matches!(client.lock("a").note("\n").acquire().await, Err(Error::Config(_))));
    for ttl in [ms(0), ms(99), Duration::from_secs(86_401), Duration::MAX] {
        assert!(
            matches!(client.lock("a").ttl(ttl).try_acquire().await, Err(Error::Unsupported(_))),
            "{ttl:?}"
        );
    }
}

#[tokio::test]
async fn tasks_of_one_process_hand_a_lease_on_each_with_a_higher_token() {
    let log = Arc::new(Log::default());
    let client = Leasehold::builder().observer(log.clone()).memory();
    let inside = Arc::new(Mutex::new(Vec::<Token>::new()));
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let (lock, inside) = (client.lock("busy").ttl(ms(5000)), inside.clone());
            tokio::spawn(async move {
                lock.run(async |lease| {
                    let alone = inside.try_lock().is_ok();
                    tokio::task::yield_now().await;
                    inside.lock().unwrap().push(lease.check().unwrap());
                    alone
                })
                .await
                .unwrap()
            })
        })
        .collect();
    for task in tasks {
        assert!(task.await.unwrap());
    }
    let tokens = inside.lock().unwrap();
    assert_eq!(tokens.len(), 50);
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{tokens:?}");
    let handed = log.count(|event| matches!(event, Event::Released { handed_on: true, .. }));
    assert!(handed >= 25, "most are handed on without asking the store, {handed} were");
    let claims = log.count(|event| matches!(event, Event::Asked { op: leasehold::Op::Claim, .. }));
    assert!(claims <= 25, "{claims} claims for 50 tenures");
}

#[tokio::test]
async fn hand_on_leaves_other_processes_their_turn() {
    // Two clients of one store are two processes to each other.
    let store = Arc::new(MemoryStore::new());
    let log = Arc::new(Log::default());
    let busy = Leasehold::builder().observer(log.clone()).store(store.clone());
    let other = Leasehold::builder().store(store);
    let handed = || log.count(|event| matches!(event, Event::Released { handed_on: true, .. }));
    let (ttl, stop) = (Duration::from_secs(60), Arc::new(AtomicBool::new(false)));
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let (lock, stop) = (busy.lock("x").ttl(ttl), stop.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    lock.run(async |_| tokio::time::sleep(ms(50)).await).await.unwrap();
                }
            })
        })
        .collect();
    for _ in 0..3 {
        let before = handed();
        until("they hand it on among themselves", async || handed() > before).await;
        // Half a second of handing on, and the two seconds that anybody may cost.
        let lease = other.lock("x").ttl(ttl).acquire_within(ms(2500)).await.expect("its turn comes");
        lease.release().await.unwrap();
    }
    stop.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_dropped_future_leaves_nothing_behind_however_often_it_was_polled() {
    let store = Arc::new(MemoryStore::new());
    let client = Leasehold::builder().store(store.clone());
    let other = Leasehold::builder().store(store);
    for polls in 0..6 {
        for held in [false, true] {
            let name = format!("x:{polls}:{held}");
            let blocker = if held { Some(other.lock(&name).acquire().await.unwrap()) } else { None };
            {
                let lock = client.lock(&name);
                let mut future = std::pin::pin!(lock.acquire());
                for _ in 0..polls {
                    let mut context = Context::from_waker(Waker::noop());
                    let poll = future.as_mut().poll(&mut context);
                    if let Poll::Ready(lease) = poll {
                        drop(lease);
                        break;
                    }
                    tokio::time::sleep(ms(1)).await;
                }
            }
            if let Some(blocker) = blocker {
                blocker.release().await.unwrap();
            }
            until("nothing is left", async || {
                let snapshot = other.inspect(&name).await.unwrap();
                snapshot.holders.is_empty() && snapshot.waiters.is_empty()
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_dropped_lease_is_given_back() {
    let client = Leasehold::memory();
    drop(client.lock("x").acquire().await.unwrap());
    client.lock("x").acquire_within(TTL).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_panic_gives_the_lease_back() {
    let client = Leasehold::memory();
    let lock = client.lock("x");
    let panicked = tokio::spawn(async move { lock.run(async |_| panic!("work fails")).await }).await;
    assert!(panicked.unwrap_err().is_panic());
    client.lock("x").acquire_within(TTL).await.unwrap().release().await.unwrap();
}

#[test]
fn a_program_that_blocks_its_only_thread_for_five_ttl_keeps_its_lease() {
    let store = Arc::new(MemoryStore::new());
    let client = Leasehold::builder().store(store.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let lease = client.lock("x").ttl(TTL).acquire().await.unwrap();
        std::thread::sleep(TTL * 5);
        let token = lease.check().expect("it was renewed meanwhile");
        let other = Leasehold::builder().store(store);
        assert!(other.lock("x").try_acquire().await.unwrap().is_none(), "nobody else gets in");
        assert_eq!(token, lease.token());
        lease.release().await.unwrap();
    });
}

#[test]
fn it_works_on_smol_and_without_any_runtime() {
    let client = Leasehold::memory();
    smol::block_on(async {
        let first = client.lock("x").acquire().await.unwrap();
        let task = smol::spawn({
            let lock = client.lock("x");
            async move { lock.acquire_within(TTL * 10).await.map(|lease| lease.token()) }
        });
        smol::Timer::after(ms(20)).await;
        let token = first.token();
        first.release().await.unwrap();
        assert!(task.await.unwrap() > token);
    });
    smol::block_on(client.close()).unwrap();
}

#[tokio::test]
async fn a_jump_of_the_boot_clock_ends_the_lease_at_once() {
    let clock = Clock::system();
    // The store's clock is another machine's: it does not jump.
    let client = Leasehold::builder().clock(clock.clone()).store(Arc::new(MemoryStore::new()));
    let lease = client.lock("x").ttl(Duration::from_secs(3600)).acquire().await.unwrap();
    let lost = tokio::spawn({
        let cancelled = lease.cancelled();
        async move { cancelled.cancelled().await }
    });
    clock.advance(Duration::from_secs(3600));
    assert_eq!(lease.check().unwrap_err().reason, LostReason::Expired);
    assert_eq!(lease.lost().await.reason, LostReason::Expired);
    tokio::time::timeout(TTL, lost).await.expect("told at once").unwrap();
    assert_eq!(lease.state(), LeaseState::Lost);
    // The store would have kept it, but it never comes back to life.
    assert!(lease.ensure(ms(1)).await.is_err());
    assert!(lease.check().is_err());
    assert!(matches!(lease.release().await, Err(Error::Lost(_))));
}

#[tokio::test]
async fn work_is_stopped_when_the_lease_is_lost() {
    let clock = Clock::system();
    let client = Leasehold::builder().clock(clock.clone()).store(Arc::new(MemoryStore::new()));
    let ran = client
        .lock("x")
        .run(async |_| {
            clock.advance(Duration::from_secs(3600));
            std::future::pending::<()>().await;
        })
        .await;
    assert!(matches!(ran, Err(Error::Lost(_))), "{ran:?}");
}

#[tokio::test]
async fn held_too_long_is_lost_even_if_it_could_be_renewed() {
    let client = Leasehold::memory();
    let lease = client.lock("x").ttl(TTL).max_hold(TTL * 2).acquire().await.unwrap();
    let started = client.clock().now();
    assert_eq!(lease.lost().await.reason, LostReason::HeldTooLong);
    assert!(client.clock().now().since(started) >= TTL, "not before its time");
}

#[tokio::test]
async fn ensure_renews_if_too_little_is_left() {
    let client = Leasehold::memory();
    let lease = client.lock("x").ttl(ms(3000)).acquire().await.unwrap();
    tokio::time::sleep(ms(200)).await;
    lease.ensure(ms(2900)).await.unwrap();
    assert!(lease.remaining() > ms(2800));
    assert!(matches!(lease.ensure(ms(4000)).await, Err(Error::Config(_))), "longer than its ttl");
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_closed_client_says_so() {
    let client = Leasehold::memory();
    let clone = client.clone();
    let lease = client.lock("x").acquire().await.unwrap();
    client.close().await.unwrap();
    assert!(clone.lock("y").acquire().await.is_err());
    drop(lease);
}

#[tokio::test]
async fn a_lease_of_a_closed_client_is_endangered_at_once_and_lost_at_its_end() {
    let client = Leasehold::memory();
    let clock = client.clock().clone();
    let lease = client.lock("x").ttl(TTL).acquire().await.unwrap();
    let other = client.lock("y").ttl(TTL).acquire().await.unwrap();
    let asked = clock.now();
    client.close().await.unwrap();
    tokio::time::timeout(TTL * 3, lease.endangered()).await.expect("it is told that the end is near");
    assert_eq!(lease.state(), LeaseState::Endangered, "it still holds");
    // Giving one back is of no use any more, and harms the other in nothing.
    drop(other);
    let lost = tokio::time::timeout(TTL * 3, lease.lost()).await.expect("it is told of its end");
    assert_eq!(lost.reason, LostReason::Expired);
    assert!(clock.now().since(asked) <= TTL * 2);
    assert!(lease.check().is_err());
}

#[tokio::test]
async fn a_client_that_is_closed_while_it_waits_leaves_no_place_behind() {
    let store = Arc::new(MemoryStore::new());
    let holder = Leasehold::builder().store(store.clone());
    let _held = holder.lock("x").acquire().await.unwrap();
    let client = Leasehold::builder().store(store);
    let waits = tokio::spawn({
        let lock = client.lock("x");
        async move { lock.acquire().await.map(drop) }
    });
    until("it stands in line", async || holder.inspect("x").await.unwrap().waiters.len() == 1).await;
    client.close().await.unwrap();
    assert!(holder.inspect("x").await.unwrap().waiters.is_empty());
    assert!(waits.await.unwrap().is_err());
}

#[tokio::test]
async fn a_lease_that_is_kept_can_be_found_and_gone_on_with_under_its_token() {
    let store = Arc::new(MemoryStore::new());
    let first = Leasehold::builder().store(store.clone());
    let second = Leasehold::builder().store(store);
    let lease = first.lock("x").ttl(TTL).acquire().await.unwrap();
    let token = lease.token();
    lease.keep();
    let ticket = second.find("x", token).await.unwrap().expect("it still holds");
    let ticket = LeaseTicket::from_bytes(&ticket.to_bytes()).unwrap();
    let resumed = second.resume(ticket.clone()).await.unwrap();
    assert_eq!(resumed.token(), token);
    tokio::time::sleep(TTL * 2).await;
    assert_eq!(resumed.check().unwrap(), token, "it is renewed here now");
    resumed.release().await.unwrap();
    assert!(second.find("x", token).await.unwrap().is_none());
    assert!(matches!(second.resume(ticket).await, Err(Error::Lost(_))), "what was given back stays so");
}

#[tokio::test]
async fn only_the_lease_with_that_token_is_broken_and_its_holder_hears_of_it() {
    let client = Leasehold::memory();
    let lease = client.lock("x").ttl(TTL).acquire().await.unwrap();
    let other = Token::new(lease.token().get() - 1).unwrap();
    assert!(client.break_lease("x", other).await.unwrap().is_none());
    lease.check().expect("nothing was done");
    let holder = client.break_lease("x", lease.token()).await.unwrap().expect("it was the holder's");
    assert_eq!(holder.token, lease.token());
    lease.lost().await;
    assert!(client.lock("x").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_name_may_be_kept_shut_after_the_release() {
    let client = Leasehold::memory();
    let lock = client.lock("x");
    lock.acquire().await.unwrap().release_closed(TTL, "cooling").await.unwrap();
    let Err(Error::Busy(busy)) = lock.attempt().await else { panic!("it is shut") };
    assert_eq!(busy.closed.unwrap().note.text(), Some("cooling"));
    lock.acquire_within(TTL * 5).await.expect("it opens by itself").release().await.unwrap();
}

#[tokio::test]
async fn names_are_listed_within_their_namespace() {
    let store = Arc::new(MemoryStore::new());
    let prod = Leasehold::builder().namespace("prod").store(store.clone());
    let test = Leasehold::builder().namespace("test").store(store);
    let (one, two) = (prod.lock("a").acquire().await.unwrap(), test.lock("a").acquire().await.unwrap());
    assert_eq!(one.name().as_str(), "prod:a");
    let names = prod.list("").await.unwrap();
    assert_eq!(names, [one.name().clone()]);
    two.release().await.unwrap();
}

#[tokio::test]
async fn a_no_says_who_has_it_since_when_why_and_how_many_are_ahead() {
    let sim = Sim::new();
    let (a, b, c) = (sim.client(), sim.host("b"), sim.host("c"));
    let lease = a.lock("import").note("import of June").acquire().await.unwrap();
    sim.advance(Duration::from_secs(72)).await;
    let mut waits = Vec::new();
    // Whoever came last gives up first.
    for (client, most) in [(&b, 60), (&c, 50), (&c, 40)] {
        let lock = client.lock("import").fair();
        waits.push(tokio::spawn(async move { lock.acquire_within(Duration::from_secs(most)).await }));
        sim.advance(Duration::from_secs(1)).await;
    }
    sim.advance(Duration::from_secs(60)).await;
    let mut ahead = Vec::new();
    for wait in waits {
        let Err(Error::TimedOut { busy, .. }) = wait.await.unwrap() else { panic!("it is held") };
        let holder = busy.holder.as_ref().unwrap();
        assert_eq!((holder.host.as_str(), holder.is_you, holder.token), ("a", false, lease.token()));
        assert_eq!(holder.note.text(), Some("import of June"));
        assert!(holder.held >= Duration::from_secs(72 + 42), "{:?}", holder.held);
        assert!(busy.to_string().contains("held by a (sim, pid 1000, sim) for "), "{busy}");
        assert!(busy.to_string().contains(" (import of June)"), "{busy}");
        ahead.extend(busy.ahead);
    }
    // The holder, whoever came from other hosts before, and the tasks of the same host.
    assert_eq!(ahead, [1, 2, 3]);
    let Err(Error::Busy(busy)) = b.lock("import").attempt().await else { panic!("it is held") };
    assert_eq!(busy.ahead, Some(1));
}
