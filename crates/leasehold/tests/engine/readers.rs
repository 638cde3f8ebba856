//! What readers and a writer are promised, and a reader that becomes the writer.

use std::sync::Arc;

use crate::common::{Log, Mood, Moody, TTL, is_deserted, ms, unheard, until};
use leasehold::{Clock, Error, Event, Lease, Leasehold, LostReason, Op, RwLock, Share};
use leasehold_conformance::drop_after;
use leasehold_core::{Claim, Leave, State, Store};

/// More often than any test asks.
const ALWAYS: u32 = u32::MAX;
/// More polls than any verb here takes to come to an end, or to wait.
const MOST_POLLS: usize = 8;

struct Two {
    store: Arc<Moody>,
    log: Arc<Log>,
    /// Its own lock `x`, and that of another process.
    here: RwLock,
    there: RwLock,
    client: Leasehold,
    other: Leasehold,
}

fn two() -> Two {
    let (store, log) = (Arc::new(Moody::new()), Arc::new(Log::default()));
    let client = Leasehold::builder().timeout(TTL).observer(log.clone()).store(store.clone());
    let other = Leasehold::builder().store(store.clone());
    Two { store, log, here: client.rwlock("x"), there: other.rwlock("x"), client, other }
}

impl Two {
    async fn waiters(&self) -> usize {
        self.other.inspect("x").await.unwrap().waiters.len()
    }

    /// A new reader gets in: nobody writes, or wishes to.
    async fn lets_readers_in(&self) -> bool {
        match self.there.read().try_acquire().await.unwrap() {
            Some(reader) => {
                reader.release().await.unwrap();
                true
            }
            None => false,
        }
    }
}

async fn upgraded(mut lease: Lease) -> (leasehold::Result<leasehold::Token>, Lease) {
    (lease.upgrade().await, lease)
}

#[tokio::test]
async fn many_read_and_one_writes() {
    let two = two();
    let readers = [two.here.read().acquire().await.unwrap(), two.there.read().acquire().await.unwrap()];
    assert_ne!(readers[0].token(), readers[1].token());
    assert_eq!(readers[0].share(), Share::SHARED);
    assert!(two.here.write().try_acquire().await.unwrap().is_none());
    assert!(two.client.lock("x").try_acquire().await.unwrap().is_none(), "a mutex excludes readers");
    for reader in readers {
        reader.release().await.unwrap();
    }
    let writer = two.here.write().try_acquire().await.unwrap().unwrap();
    assert!(two.there.read().try_acquire().await.unwrap().is_none());
    writer.release().await.unwrap();
}

#[tokio::test]
async fn a_waiting_writer_holds_new_readers_back_from_the_first_moment() {
    let two = two();
    let reader = two.here.read().acquire().await.unwrap();
    let writer = tokio::spawn({
        let lock = two.there.write();
        async move { lock.acquire().await.unwrap() }
    });
    until("the writer waits", async || two.waiters().await == 1).await;
    assert!(!two.lets_readers_in().await);
    let second = tokio::spawn({
        let lock = two.here.read();
        async move { lock.acquire().await.unwrap() }
    });
    until("the reader waits behind it", async || two.waiters().await == 2).await;
    reader.release().await.unwrap();
    let writer = writer.await.unwrap();
    assert!(!second.is_finished());
    let token = writer.token();
    writer.release().await.unwrap();
    assert!(second.await.unwrap().token() > token);
}

#[tokio::test]
async fn an_upgrade_waits_for_the_readers_and_goes_under_a_new_token() {
    let two = two();
    let reader = two.there.read().acquire().await.unwrap();
    let lease = two.here.upgradeable().ttl(TTL).acquire().await.unwrap();
    let before = lease.token();
    let upgrade = tokio::spawn(upgraded(lease));
    until("new readers are held back", async || !two.lets_readers_in().await).await;
    assert!(!upgrade.is_finished());
    reader.release().await.unwrap();
    let (token, lease) = upgrade.await.unwrap();
    let token = token.unwrap();
    assert!(token > before);
    assert_eq!((lease.token(), lease.check().unwrap(), lease.share()), (token, token, Share::EXCLUSIVE));
    assert_eq!(
        two.log.count(|event| matches!(event, Event::Reshaped { token: new, .. } if *new == token)),
        1
    );
    // Renewals, also one that was under way, leave it the writer.
    let renewals = || two.log.count(|event| matches!(event, Event::Renewed { .. }));
    let renewed = renewals();
    until("it is renewed", async || renewals() >= renewed + 3).await;
    let snapshot = two.other.inspect("x").await.unwrap();
    assert_eq!((snapshot.holders[0].token, snapshot.holders[0].share), (Some(token), Share::EXCLUSIVE));
    assert!(!two.lets_readers_in().await);
    let ticket = lease.ticket().await.unwrap();
    assert_eq!(ticket.token(), token, "whoever goes on with it does so under the new one");
    lease.release().await.unwrap();
}

#[tokio::test]
async fn two_that_want_to_write_never_wait_for_each_other() {
    let two = two();
    let tasks = [&two.here, &two.there].map(|lock| {
        let lock = lock.upgradeable().ttl(TTL);
        tokio::spawn(async move {
            for _ in 0..10 {
                let mut lease = lock.acquire_within(TTL * 20).await.unwrap();
                tokio::task::yield_now().await;
                lease.upgrade_within(TTL * 20).await.unwrap();
                lease.release().await.unwrap();
            }
        })
    });
    for task in tasks {
        task.await.unwrap();
    }
    let first = two.here.upgradeable().acquire().await.unwrap();
    assert!(two.there.upgradeable().try_acquire().await.unwrap().is_none(), "one at a time");
    assert!(two.lets_readers_in().await, "beside readers");
    drop(first);
}

#[tokio::test]
async fn a_plain_reader_hears_how_to_become_a_writer() {
    let two = two();
    let mut reader = two.here.read().acquire().await.unwrap();
    for error in [reader.upgrade().await.unwrap_err(), reader.try_upgrade().await.unwrap_err()] {
        assert!(matches!(error, Error::Config(_)), "{error}");
        assert!(error.help().unwrap().contains("upgradeable()"));
    }
    reader.check().expect("it still reads");
    assert!(two.lets_readers_in().await);
    let mut permit = two.client.semaphore("y", 3).permits(2).acquire().await.unwrap();
    assert!(matches!(permit.upgrade().await, Err(Error::Config(_))));
    assert!(matches!(permit.downgrade().await, Err(Error::Config(_))));
    permit.check().unwrap();
}

#[tokio::test]
async fn an_upgrade_that_times_out_says_who_reads_and_wishes_no_more() {
    let two = two();
    let reader = two.there.read().note("a long report").acquire().await.unwrap();
    let mut lease = two.here.upgradeable().acquire().await.unwrap();
    let before = lease.token();
    let Err(Error::TimedOut { waited, busy }) = lease.upgrade_within(ms(30)).await else {
        panic!("it is read")
    };
    assert_eq!(waited, ms(30));
    assert_eq!(busy.holder.unwrap().note.text(), Some("a long report"), "not the lease itself");
    until("new readers get in", async || two.lets_readers_in().await).await;
    assert_eq!(lease.try_upgrade().await.unwrap(), None);
    assert!(two.lets_readers_in().await, "a try has left nothing when it answers");
    assert_eq!((lease.check().unwrap(), lease.share()), (before, Share::UPGRADEABLE));
    reader.release().await.unwrap();
    let token = lease.try_upgrade().await.unwrap().expect("nobody else reads");
    assert_eq!(lease.upgrade().await.unwrap(), token, "the writer stays the writer");
}

#[tokio::test]
async fn an_upgrade_ends_when_the_lease_is_lost() {
    let two = two();
    let _reader = two.there.read().acquire().await.unwrap();
    let lease = two.here.upgradeable().ttl(TTL * 100).acquire().await.unwrap();
    let token = lease.token();
    let upgrade = tokio::spawn(upgraded(lease));
    until("it waits", async || !two.lets_readers_in().await).await;
    two.other.break_lease("x", token).await.unwrap().expect("it held");
    let (answer, lease) = upgrade.await.unwrap();
    assert!(matches!(answer, Err(Error::Lost(_))), "{answer:?}");
    assert!(lease.check().is_err());
    assert!(two.lets_readers_in().await);

    let clock = Clock::system();
    let client = Leasehold::builder().clock(clock.clone()).store(two.store.clone());
    let lease = client.rwlock("x").upgradeable().ttl(TTL * 100).acquire().await.unwrap();
    let upgrade = tokio::spawn(upgraded(lease));
    until("it waits", async || !two.lets_readers_in().await).await;
    clock.advance(TTL * 100);
    let (answer, lease) = upgrade.await.unwrap();
    assert!(matches!(answer, Err(Error::Lost(lost)) if lost.reason == LostReason::Expired));
    assert!(matches!(lease.release().await, Err(Error::Lost(_))));
}

#[tokio::test]
async fn a_store_that_has_forgotten_the_lease_is_not_asked_for_a_new_one() {
    // A lease that grows restates its claim as the heir of itself, for this very answer.
    let two = two();
    let lease = two.here.upgradeable().acquire().await.unwrap();
    let ticket = lease.ticket().await.unwrap();
    let entry = two.other.inspect("x").await.unwrap().holders.remove(0);
    let forgetful = Moody::new();
    let claim = Claim {
        name: ticket.name().clone(),
        id: entry.id,
        owner: entry.owner,
        share: Share::EXCLUSIVE,
        reshape: 0,
        turn: leasehold_core::Turn::Fifo,
        ttl: entry.ttl,
        note: entry.note,
        anchored: false,
        aftermath: leasehold_core::Aftermath::NONE,
        succeeds: Some(entry.id),
        tokens: 1,
        seen: None,
        proposed: None,
        not_after: None,
    };
    assert_eq!(forgetful.claim(&claim).await.unwrap().state, State::Spent);
    let snapshot = forgetful.inner.inspect(ticket.name()).await.unwrap();
    assert!(snapshot.holders.is_empty() && snapshot.waiters.is_empty());
    assert!(
        matches!(two.store.claim(&claim).await.unwrap().state, State::Granted(_)),
        "one that holds grows"
    );
}

#[tokio::test]
async fn a_downgrade_keeps_the_token_and_lets_readers_in() {
    let two = two();
    let mut writer = two.here.write().ttl(TTL).acquire().await.unwrap();
    let token = writer.token();
    writer.downgrade().await.unwrap();
    assert!(two.lets_readers_in().await);
    assert!(two.there.write().try_acquire().await.unwrap().is_none());
    assert_eq!((writer.check().unwrap(), writer.share()), (token, Share::SHARED));
    writer.downgrade().await.expect("a reader stays one");
    assert!(matches!(writer.upgrade().await, Err(Error::Config(_))), "it was not taken upgradeable");
    let renewals = || two.log.count(|event| matches!(event, Event::Renewed { .. }));
    let renewed = renewals();
    until("it is renewed", async || renewals() >= renewed + 2).await;
    assert!(two.lets_readers_in().await);
    writer.release().await.unwrap();
    assert!(is_deserted(&two.other, "x").await);

    let mut lease = two.here.upgradeable().acquire().await.unwrap();
    let first = lease.upgrade().await.unwrap();
    lease.downgrade().await.unwrap();
    assert_eq!((lease.share(), lease.token()), (Share::UPGRADEABLE, first));
    assert!(lease.upgrade().await.unwrap() > first, "each time it writes under a token of its own");
    lease.downgrade().await.unwrap();
    lease.downgrade().await.unwrap();
    assert_eq!(lease.share(), Share::SHARED);
    assert!(two.there.upgradeable().try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn writers_that_wait_in_the_process_of_a_downgraded_one_get_their_turn() {
    let two = two();
    let mut writer = two.here.write().acquire().await.unwrap();
    let token = writer.token();
    let next = tokio::spawn({
        let lock = two.here.write();
        async move { lock.acquire().await.unwrap() }
    });
    tokio::time::sleep(ms(5)).await;
    writer.downgrade().await.unwrap();
    until("it stands in the store's line", async || two.waiters().await == 1).await;
    assert!(!two.lets_readers_in().await, "where it holds newcomers back");
    writer.release().await.unwrap();
    assert!(next.await.unwrap().token() > token);
}

#[tokio::test]
async fn lost_replies_are_cured_by_asking_again() {
    let two = two();
    let mut lease = two.here.upgradeable().acquire().await.unwrap();
    two.store.be(Op::Claim, Mood::Lose, 3);
    let token = lease.upgrade().await.unwrap();
    let held = async || two.other.inspect("x").await.unwrap().holders.remove(0);
    assert_eq!(held().await.token, Some(token), "it grew once");
    two.store.be(Op::Claim, Mood::Lose, 3);
    lease.downgrade().await.unwrap();
    assert_eq!((held().await.token, held().await.share), (Some(token), Share::UPGRADEABLE));
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_request_for_less_that_arrives_late_lets_nobody_in_beside_the_writer() {
    let two = two();
    let client = Leasehold::builder().timeout(ms(50)).store(two.store.clone());
    let mut lease = client.rwlock("x").upgradeable().acquire().await.unwrap();
    lease.upgrade().await.unwrap();
    two.store.be(Op::Claim, Mood::Stray(400), 1);
    // Its second try is answered; the first one is still on its way.
    while lease.downgrade().await.is_err() {}
    lease.upgrade().await.unwrap();
    until("it has arrived", async || two.store.strayed() == 1).await;
    assert!(!two.lets_readers_in().await);
    lease.check().unwrap();
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_request_for_more_that_arrives_late_is_undone() {
    let two = two();
    let client = Leasehold::builder().timeout(ms(50)).store(two.store.clone());
    let mut lease = client.rwlock("x").upgradeable().acquire().await.unwrap();
    two.store.be(Op::Claim, Mood::Stray(400), 1);
    assert!(lease.upgrade_within(ms(10)).await.is_err());
    until("it has arrived", async || two.store.strayed() == 1).await;
    until("new readers get in", async || two.lets_readers_in().await).await;
    lease.check().unwrap();
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_store_that_fails_leaves_the_reader_what_it_was() {
    let two = two();
    let mut lease = two.here.upgradeable().acquire().await.unwrap();
    let before = lease.token();
    for mood in [Mood::Refuse, Mood::Lose, Mood::Hang] {
        two.store.be(Op::Claim, mood, ALWAYS);
        let error = lease.upgrade().await.unwrap_err();
        assert!(matches!(error, Error::Store(_)), "{mood:?}: {error}");
        let error = lease.upgrade_within(ms(30)).await.unwrap_err();
        assert!(matches!(error, Error::Store(_) | Error::TimedOut { .. }), "{mood:?}: {error}");
        assert_eq!((lease.check().unwrap(), lease.share()), (before, Share::UPGRADEABLE));
        two.store.be(Op::Claim, Mood::Fine, 0);
        until("the store has heard that it wishes no more", async || two.lets_readers_in().await).await;
    }
    lease.upgrade().await.unwrap();
    two.store.be(Op::Claim, Mood::Refuse, ALWAYS);
    assert!(matches!(lease.downgrade().await, Err(Error::Store(_))));
    assert_eq!(lease.share(), Share::UPGRADEABLE, "it counts as a reader from the call on");
    two.store.be(Op::Claim, Mood::Fine, 0);
    until("the downgrade goes on in the background", async || two.lets_readers_in().await).await;
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_dropped_upgrade_wishes_no_more_however_often_it_was_polled() {
    let two = two();
    for read in [false, true] {
        for polls in 0..=MOST_POLLS {
            for verb in 0..5 {
                let reader = if read { Some(two.there.read().acquire().await.unwrap()) } else { None };
                let mut lease = two.here.upgradeable().acquire().await.unwrap();
                let before = lease.token();
                let heard = match verb {
                    0 => drop_after(polls, lease.upgrade()).await.is_some(),
                    1 => drop_after(polls, lease.upgrade_within(ms(4))).await.is_some(),
                    2 => drop_after(polls, lease.try_upgrade()).await.is_some(),
                    3 => unheard(lease.upgrade()).await,
                    _ => unheard(lease.try_upgrade()).await,
                };
                // One that came to its end is a writer.
                if heard && lease.share() == Share::EXCLUSIVE {
                    lease.downgrade().await.unwrap();
                }
                until("new readers get in", async || two.lets_readers_in().await).await;
                assert!(lease.check().unwrap() >= before);
                assert_eq!(lease.share(), Share::UPGRADEABLE);
                lease.release().await.unwrap();
                drop(reader);
                until("nothing is left", async || is_deserted(&two.other, "x").await).await;
            }
        }
    }
}

#[tokio::test]
async fn a_dropped_downgrade_goes_on_and_a_dropped_acquire_leaves_nothing() {
    let two = two();
    for polls in 0..=MOST_POLLS {
        let mut writer = two.here.write().acquire().await.unwrap();
        drop(drop_after(polls, writer.downgrade()).await);
        if polls > 0 {
            until("readers get in", async || two.lets_readers_in().await).await;
        }
        writer.release().await.unwrap();
        for lock in [two.here.read(), two.here.upgradeable(), two.here.write()] {
            let reader = two.there.read().acquire().await.unwrap();
            drop(drop_after(polls, lock.acquire()).await);
            drop(drop_after(polls, lock.acquire_within(ms(4))).await);
            drop(drop_after(polls, lock.try_acquire()).await);
            unheard(lock.acquire()).await;
            reader.release().await.unwrap();
            until("nothing is left", async || is_deserted(&two.other, "x").await).await;
        }
    }
}

#[tokio::test]
async fn a_client_that_is_closed_takes_its_wish_back() {
    let two = two();
    let _reader = two.there.read().acquire().await.unwrap();
    let lease = two.here.upgradeable().acquire().await.unwrap();
    let upgrade = tokio::spawn(upgraded(lease));
    until("it waits", async || !two.lets_readers_in().await).await;
    let Two { client, .. } = &two;
    client.clone().close().await.unwrap();
    assert!(two.lets_readers_in().await);
    assert!(upgrade.await.unwrap().0.is_err());
    let id = two
        .other
        .inspect("x")
        .await
        .unwrap()
        .holders
        .iter()
        .find(|h| h.share == Share::UPGRADEABLE)
        .unwrap()
        .id;
    two.store.inner.release(&leasehold::LockName::parse("x").unwrap(), id, Leave::Open).await.unwrap();
}
