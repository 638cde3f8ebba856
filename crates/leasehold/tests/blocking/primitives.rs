//! Each primitive in plain words: what its async twin promises, and what a thread that waits needs besides.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use leasehold::blocking::{Backed, Held, Lease, Leasehold};
use leasehold::sim::Sim;
use leasehold::{Clock, Error, MemoryStore, OnceOutcome, Outcome, Share};

use crate::{TTL, pass};

/// Does work that blocks while the clock is moved, for as long as it takes.
fn meanwhile<T: Send>(sim: &Sim, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let work = scope.spawn(work);
        let (clock, soon) = (Clock::system(), Clock::system().now().after(Duration::from_secs(20)));
        while !work.is_finished() {
            assert!(clock.now() < soon, "it still waits, however much time passes");
            pass(sim, Duration::from_secs(1));
        }
        work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn readers_make_room_for_one_writer_and_get_in_beside_it_again() {
    let config = Leasehold::memory().rwlock("config");
    let reader = config.read().acquire().unwrap();
    let mut lease = config.upgradeable().acquire().unwrap();
    let before = lease.token();
    assert!(matches!(lease.upgrade_within(TTL / 30), Err(Error::TimedOut { .. })));
    assert!(lease.try_upgrade().unwrap().is_none());
    reader.release().unwrap();
    assert!(lease.upgrade().unwrap() > before);
    assert_eq!(lease.share(), Share::EXCLUSIVE);
    assert!(config.read().try_acquire().unwrap().is_none());
    lease.downgrade().unwrap();
    config.read().acquire_within(TTL).unwrap().release().unwrap();
    assert!(config.write().try_acquire().unwrap().is_none());
}

#[test]
fn permits_are_taken_together_and_no_more_than_there_are() {
    let gpus = Leasehold::memory().semaphore("gpus", 8);
    let job = gpus.clone().permits(6).acquire().unwrap();
    assert!(gpus.clone().permits(3).try_acquire().unwrap().is_none());
    gpus.clone().permits(2).run(|small| assert!(small.token() > job.token())).unwrap();
    job.release().unwrap();
    gpus.permits(8).acquire_within(TTL).unwrap().release().unwrap();
}

#[test]
fn several_locks_are_held_together_or_not_at_all() {
    let sim = Sim::new();
    let client = Leasehold::from(sim.client());
    let all = client.lock_all(["b", "a"]);
    let set = all.acquire().unwrap();
    let tokens: Vec<_> = set.leases().iter().map(|lease| (lease.name(), lease.token())).collect();
    assert_eq!(set.tokens().collect::<Vec<_>>(), tokens);
    assert_eq!(set.token_of("b"), Some(set.leases()[1].token()));
    assert!(matches!(all.try_run(|_| ()), Ok(Outcome::Skipped(_))));
    assert!(all.try_acquire().unwrap().is_none());
    set.release().unwrap();

    let mut lost = Vec::new();
    let ran = all.run(|set| {
        client.break_lease("a", set.leases()[0].token()).unwrap().expect("it was held");
        pass(&sim, Duration::from_secs(31));
        lost = set.leases().iter().map(Lease::is_lost).collect();
    });
    assert!(matches!(ran, Err(Error::Lost(_))), "{ran:?}");
    assert_eq!(lost, [true, false]);
    let set = all.acquire_within(TTL).expect("what was lost, and what was not, was given back");
    assert!(set.lost_within(Duration::ZERO).is_none());
    let set = set.into_async();
    assert!(set.check().is_ok() && all.try_acquire().unwrap().is_none(), "it is the same one");
}

#[test]
fn two_locks_are_held_as_one() {
    let client = Leasehold::memory();
    let (old, new) = (client.lock("old"), client.lock("new"));
    let both = old.clone().and(new.clone());
    let pair = both.acquire().unwrap();
    assert_eq!(pair.check().unwrap(), (pair.first().token(), pair.second().token()));
    assert_eq!((pair.first().name().as_str(), pair.second().name().as_str()), ("old", "new"));
    assert!(both.try_acquire().unwrap().is_none() && new.try_acquire().unwrap().is_none());
    assert!(pair.lost_within(Duration::ZERO).is_none());
    let pair = pair.into_async();
    assert!(
        both.try_acquire().unwrap().is_none() && old.try_acquire().unwrap().is_none(),
        "it is the same one"
    );
    drop(pair);
    let ran = both.run_within(TTL, |pair| {
        assert!(old.try_acquire().unwrap().is_none(), "it is held while the work goes on");
        client.break_lease("new", pair.second().token()).unwrap().expect("it was held");
        drop(pair.second().ensure(pair.second().ttl()));
        pair.state()
    });
    assert!(matches!(ran, Err(Error::Lost(_))), "{ran:?}");
    both.acquire_within(TTL).unwrap().release().unwrap();
}

#[test]
fn a_store_that_cannot_be_reached_is_gone_on_without_if_that_was_asked_for() {
    let sim = Sim::new();
    let (client, other) = (Leasehold::from(sim.client()), Leasehold::memory());
    let (open, backed) = (client.lock("x").or_open(), client.lock("x").or_else(other.lock("x")));
    assert!(open.run(|held| held.lease().is_some()).unwrap());
    assert!(backed.run(|backed| matches!(backed, Backed::First(_))).unwrap());
    assert!(matches!(open.acquire().unwrap().into_async(), leasehold::Held::Lease(_)));

    let lose = |lease: &Lease| {
        client.break_lease("x", lease.token()).unwrap().expect("it was held");
        pass(&sim, Duration::from_secs(31));
    };
    let ran = open.run(|held| lose(held.lease().unwrap()));
    assert!(matches!(ran, Err(Error::Lost(_))), "{ran:?}");
    let ran = backed.run(|backed| lose(backed.lease()));
    assert!(matches!(ran, Err(Error::Lost(_))), "{ran:?}");

    sim.cut_off(&sim.client());
    meanwhile(&sim, || {
        assert!(open.run(|held| matches!(held, Held::Open(_)) && held.lease().is_none()).unwrap());
        open.attempt().unwrap().release().expect("there is nothing to give back");
        let lease = backed.acquire().unwrap().into_lease();
        assert!(other.lock("x").try_acquire().unwrap().is_none(), "it is held there");
        assert!(matches!(backed.try_run(|_| ()), Ok(Outcome::Skipped(_))));
        lease.release().unwrap();
    });
}

#[test]
fn who_leads_works_until_its_term_is_over_and_campaigns_again() {
    let sim = Sim::new();
    let client = Leasehold::from(sim.client());
    let mut leader = client.election("x").watch();
    assert!(leader.changed().unwrap().is_none());
    let mut tokens = Vec::new();
    let ended = client.election("x").note("a").lead(|term| {
        tokens.push(term.check().unwrap());
        if tokens.len() == 1 {
            assert!(term.ends_within(Duration::ZERO).is_none() && !term.is_cancelled());
            assert!(client.lock("x").try_acquire().unwrap().is_none(), "somebody leads");
            sim.pause_renewals(&client);
            pass(&sim, Duration::from_secs(31));
            smol::block_on(sim.mend(&client));
            assert!(term.is_cancelled() && term.ends_within(Duration::ZERO).is_some());
            return ControlFlow::Continue(());
        }
        assert_eq!(term.owner_id(), client.owner().id());
        ControlFlow::Break("the end")
    });
    assert_eq!(ended.unwrap(), "the end");
    assert!(tokens.len() == 2 && tokens[0] < tokens[1], "{tokens:?}");
    assert!(client.lock("x").try_acquire().unwrap().is_some(), "the last term was given up");
}

#[test]
fn what_the_work_of_a_term_answers_counts_after_its_end_too() {
    let sim = Sim::new();
    let client = Leasehold::from(sim.client());
    let mut rounds = 0;
    let ended = client.election("x").lead(|term| {
        rounds += 1;
        assert_eq!(rounds, 1, "it was told to end");
        sim.pause_renewals(&client);
        pass(&sim, Duration::from_secs(31));
        ControlFlow::Break(term.check().is_err())
    });
    assert!(ended.unwrap());
}

#[test]
fn a_term_whose_work_panics_is_given_up() {
    let election = Leasehold::memory().election("x");
    let work =
        std::panic::AssertUnwindSafe(|| election.lead(|_| -> ControlFlow<()> { panic!("work fails") }));
    assert!(std::panic::catch_unwind(work).is_err());
    election.campaign().unwrap().resign().unwrap();
}

#[test]
fn followers_hear_who_leads_and_wait_with_a_bound() {
    let client = Leasehold::memory();
    let mut leader = client.election("x").watch();
    assert!(leader.changed().unwrap().is_none());
    assert!(!leader.changed_within(Duration::from_millis(5)).unwrap(), "nothing has changed");
    let term = client.election("x").campaign().unwrap();
    assert!(leader.changed_within(Duration::from_secs(20)).unwrap());
    assert_eq!(leader.latest().map(|holder| holder.token), Some(term.token()));
    std::thread::scope(|scope| {
        scope.spawn(|| term.resign().unwrap());
        assert!(leader.changed().unwrap().is_none());
    });
}

#[test]
fn what_is_done_once_is_not_done_again() {
    let sim = Sim::new();
    let client = Leasehold::from(sim.client());
    let once = client.once("x");
    assert!(matches!(once.run(|_| Err::<(), _>("no")), Ok(OnceOutcome::Ran(Err("no")))));
    let lost = once.run(|run| {
        sim.pause_renewals(&client);
        pass(&sim, Duration::from_secs(31));
        assert!(run.lease().is_lost());
        Ok::<_, Error>(())
    });
    assert!(matches!(lost, Err(Error::Lost(_))), "{lost:?}");
    smol::block_on(sim.mend(&client));
    let ran = once.run(|run| {
        assert_eq!(run.token(), run.lease().check()?);
        assert!(matches!(once.run(|_| Ok::<_, Error>(())), Ok(OnceOutcome::InProgress(_))));
        run.remember_text("done").map(|()| 1)
    });
    assert!(matches!(ran, Ok(OnceOutcome::Ran(Ok(1)))), "neither an error nor a loss leaves a mark: {ran:?}");
    let again = once.run_within(TTL, |_| Ok::<_, Error>(2)).unwrap();
    assert!(
        matches!(again, OnceOutcome::AlreadyDone { remembered: Some(told), .. } if told.text() == "done")
    );
    assert!(once.forget().unwrap() && client.list("").unwrap().is_empty());
}

#[test]
fn a_scope_takes_again_what_it_holds_in_any_thread() {
    let client = Leasehold::memory();
    let me = client.scope("me");
    let lease = me.lock("x").acquire().unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let again = client.lock("x").within(&me).acquire().unwrap();
            assert_eq!(again.token(), lease.token());
        });
    });
    assert!(client.scope("me").lock("x").try_acquire().unwrap().is_none(), "another scope is somebody else");
    lease.release().unwrap();
    assert!(client.list("").unwrap().is_empty());
}

#[test]
fn a_lease_is_handed_over_or_given_back() {
    let store = Arc::new(MemoryStore::new());
    let (giver, taker) =
        (Leasehold::builder().store(store.clone()), Leasehold::builder().store(store.clone()));
    let lease = giver.lock("x").acquire().unwrap();
    let old = lease.token();
    let given = lease.hand_over().unwrap();
    assert!(taker.lock("x").try_acquire().unwrap().is_none(), "it is never free");
    let taken = taker.take_over(given.ticket().clone()).unwrap();
    assert!(taken.check().unwrap() > old);
    assert!(given.taken_within(Duration::from_secs(20)).unwrap());

    let given = taken.hand_over().unwrap();
    assert!(!given.taken_within(Duration::from_millis(5)).unwrap());
    giver.lock("x").acquire_within(TTL).expect("nobody took it, so it was given back").release().unwrap();
}
