//! The words without `async`: they mean the same, in plain threads and inside runtimes.

mod primitives;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::blocking::{Lease, Leasehold};
use leasehold::sim::Sim;
use leasehold::{Clock, Error, LeaseState, LostReason, MemoryStore, Outcome};

const TTL: Duration = Duration::from_millis(600);

fn pass(sim: &Sim, time: Duration) {
    smol::block_on(sim.advance(time));
}

#[test]
fn three_verbs_and_three_answers() {
    let client = Leasehold::memory();
    let lock = client.lock("x").note("first");
    let lease = lock.acquire().unwrap();
    assert_eq!((lease.check().unwrap(), lease.state()), (lease.token(), LeaseState::Held));
    assert!(lock.try_acquire().unwrap().is_none());
    assert!(matches!(lock.attempt(), Err(Error::Busy(busy)) if busy.holder.is_some()));
    assert!(matches!(lock.acquire_within(TTL / 30), Err(Error::TimedOut { .. })));
    assert!(matches!(lock.try_run(|_| ()), Ok(Outcome::Skipped(_))));
    assert_eq!(client.inspect("x").unwrap().holders.len(), 1);
    assert_eq!(client.list("").unwrap(), [lease.name().clone()]);
    let token = lease.token();
    lease.release().unwrap();
    assert!(lock.run(|lease| lease.token() > token).unwrap());
    assert!(client.list("").unwrap().is_empty());
    client.clone().close().unwrap();
    assert!(lock.acquire().is_err());
}

#[test]
fn threads_take_turns_and_those_who_wait_are_woken_by_a_release() {
    let client = Leasehold::memory();
    let inside = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let alone = |_: &Lease| {
                        let was = inside.swap(true, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.store(false, Ordering::SeqCst);
                        !was
                    };
                    assert!(client.lock("x").run(alone).unwrap());
                }
            });
        }
    });
}

#[test]
fn a_thread_that_computes_for_five_ttl_keeps_its_lease() {
    let client = Leasehold::memory();
    let lease = client.lock("x").ttl(TTL).acquire().unwrap();
    std::thread::sleep(TTL * 5);
    lease.check().expect("it was renewed meanwhile");
    lease.release().unwrap();
}

#[test]
fn work_whose_lease_is_lost_goes_on_to_its_end_and_is_not_vouched_for() {
    let sim = Sim::new();
    let client = Leasehold::from(sim.client());
    let mut ended = false;
    let ran = client.lock("x").run(|lease| {
        sim.pause_renewals(lease);
        pass(&sim, Duration::from_secs(31));
        assert!(lease.is_lost());
        ended = true;
    });
    assert!(matches!(ran, Err(Error::Lost(_))) && ended, "{ran:?}");
    client.lock("x").run(|_| ()).expect("it has run out, and is free");
}

#[test]
fn a_loss_is_waited_for_with_a_bound() {
    let sim = Sim::new();
    let lease = Leasehold::from(sim.client()).lock("x").acquire().unwrap();
    let (lease, hour) = (&lease, Duration::from_secs(3600));
    std::thread::scope(|scope| {
        // By the client's clock, which stands still until it is moved.
        let waits = scope.spawn(move || lease.lost_within(hour));
        let (clock, soon) = (Clock::system(), Clock::system().now().after(Duration::from_secs(10)));
        while !waits.is_finished() {
            assert!(clock.now() < soon, "an hour has passed many times");
            pass(&sim, hour);
        }
        assert_eq!(waits.join().unwrap(), None, "it was renewed all the time");
        sim.cut_off(lease);
        let waits = scope.spawn(move || lease.lost());
        pass(&sim, Duration::from_secs(31));
        assert_eq!(waits.join().unwrap().reason, LostReason::Expired);
    });
    assert!(lease.lost_within(hour).is_some(), "it is lost already");
}

#[test]
fn a_panic_gives_the_lease_back() {
    let client = Leasehold::memory();
    let lock = client.lock("x");
    let work = std::panic::AssertUnwindSafe(|| lock.run(|_| panic!("work fails")));
    assert!(std::panic::catch_unwind(work).is_err());
    lock.acquire_within(TTL).unwrap().release().unwrap();
}

#[test]
fn it_may_be_called_inside_runtimes_also_inside_one_another() {
    let client = Leasehold::builder().namespace("ns").store(Arc::new(MemoryStore::new()));
    let work = |client: &Leasehold| {
        let token = client.lock("x").run(|lease| lease.check()).unwrap().unwrap();
        let nested = client.lock("y").run(|_| client.lock("z").run(|lease| lease.token()));
        assert!(nested.unwrap().unwrap() > token);
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { work(&client) });
    smol::block_on(async { work(&client) });
    runtime.block_on(async {
        let lease = client.clone().into_async().lock("x").acquire().await.unwrap();
        Lease::from(lease).release().unwrap();
    });
}

#[test]
fn a_lease_goes_on_elsewhere() {
    let store = Arc::new(MemoryStore::new());
    let (first, second) =
        (Leasehold::builder().store(store.clone()), Leasehold::builder().store(store.clone()));
    let lease = first.lock("x").acquire().unwrap();
    let (token, ticket) = (lease.token(), lease.ticket().unwrap());
    lease.keep();
    let lease = second.resume(ticket).unwrap();
    assert_eq!(lease.token(), token);
    assert!(first.break_lease("x", token).unwrap().is_some());
    assert!(first.find("x", token).unwrap().is_none());
    assert!(matches!(lease.release(), Err(Error::Lost(_))));
}

#[test]
fn an_acquire_inside_a_run_of_the_same_name_says_that_it_is_you() {
    let client = Leasehold::memory();
    let lock = client.lock("x");
    let is_you = |answer: Result<(), Error>| matches!(answer, Err(Error::Busy(busy)) if busy.holder.as_ref().unwrap().is_you);
    let acquire = || lock.acquire().map(drop);
    lock.run(|_| {
        assert!(is_you(lock.acquire_within(TTL).map(drop)), "with an end");
        assert!(is_you(acquire()), "and without");
        assert!(is_you(lock.run(|_| ())) && is_you(client.lock_all(["w", "x"]).acquire().map(drop)));
        assert!(is_you(client.scope("other").lock("x").acquire().map(drop)), "a scope that does not hold it");
        assert!(is_you(client.lock("y").run(|_| acquire()).unwrap()), "deeper inside");
        // Another thread, and an executor that the work drives, may have nothing to do with it.
        let other = std::thread::scope(|scope| scope.spawn(|| lock.acquire_within(TTL / 30)).join().unwrap());
        assert!(matches!(other, Err(Error::TimedOut { .. })), "{other:?}");
        let driven = smol::block_on(lock.clone().into_async().acquire_within(TTL / 30));
        assert!(matches!(driven, Err(Error::TimedOut { .. })), "{driven:?}");
    })
    .unwrap();
    let inside = client.clone().into_async().lock("x");
    assert!(
        is_you(smol::block_on(inside.run(async |_| acquire())).unwrap()),
        "the thread blocks in an async run"
    );
    acquire().expect("nothing is left");
}
