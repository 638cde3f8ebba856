//! Elections: one leader at a time, whose term is over before anybody else can lead.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Mood, Moody, TTL, deserted, ms, polled, until};
use leasehold::{BootTime, Clock, Error, Leasehold, MemoryStore, Op, Token};

/// More often than any test asks.
const ALWAYS: u32 = u32::MAX;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A client whose renewals can be made to fail, on a clock that stands still.
fn frozen() -> (Clock, Arc<Moody>, Leasehold) {
    let clock = Clock::frozen();
    let store = Arc::new(Moody::over(MemoryStore::with_clock(clock.clone())));
    let client = Leasehold::builder().clock(clock.clone()).store(store.clone());
    (clock, store, client)
}

#[tokio::test]
async fn a_term_is_over_before_its_lease_is() {
    let (clock, store, client) = frozen();
    let election = client.election("x").ttl(secs(100)).grace(secs(20));
    let term = election.campaign().await.unwrap();
    store.be(Op::Renew, Mood::Refuse, ALWAYS);
    // It holds for 100 s in the store, less 1.002 s in the client, less as much again as a term.
    clock.advance(ms(78_000));
    until("renewals fail", async || store.asked(Op::Renew) > 0).await;
    assert!(!term.cancelled().is_cancelled());
    clock.advance(ms(1_200));
    until("it is told to wind down", async || term.cancelled().is_cancelled()).await;
    term.check().expect("it may wind down until its end");
    clock.advance(ms(18_900));
    tokio::time::timeout(TTL * 10, term.ends()).await.expect("it is over");
    assert!(term.check().is_err());
    let holder = &client.inspect("x").await.unwrap().holders[0];
    assert!(holder.left > secs(1), "while the store keeps everybody out: {:?}", holder.left);
    assert_eq!(holder.token, Some(term.token()));
}

#[tokio::test]
async fn a_term_that_was_told_to_wind_down_never_recovers() {
    let (clock, store, client) = frozen();
    let term = client.election("x").ttl(secs(100)).grace(secs(20)).campaign().await.unwrap();
    store.be(Op::Renew, Mood::Refuse, ALWAYS);
    clock.advance(ms(78_000));
    until("renewals fail", async || store.asked(Op::Renew) > 0).await;
    clock.advance(ms(1_200));
    until("it is told to wind down", async || term.cancelled().is_cancelled()).await;
    store.be(Op::Renew, Mood::Fine, 0);
    clock.advance(ms(10_000));
    until("its lease is renewed", async || client.inspect("x").await.unwrap().holders[0].left > secs(90))
        .await;
    clock.advance(ms(10_000));
    tokio::time::timeout(TTL * 10, term.ends()).await.expect("it is over all the same");
    assert!(term.check().is_err() && term.remaining().is_zero());
    term.resign().await.expect("what it had is given back");
}

#[tokio::test]
async fn who_asks_after_the_end_ends_it_whatever_is_answered_later() {
    let (clock, _, client) = frozen();
    let term = client.election("x").ttl(secs(100)).campaign().await.unwrap();
    clock.advance(ms(98_500));
    assert!(term.check().is_err(), "its lease would hold for a moment");
    assert!(term.cancelled().is_cancelled());
    tokio::time::timeout(TTL * 10, term.ends()).await.expect("it is over");
}

/// One term, as its leader lived it.
struct Lived {
    token: Token,
    start: BootTime,
    end: BootTime,
}

/// Writes down a term when the work of it ends, also when it is dropped.
struct Pen<'a>(&'a Mutex<Vec<Lived>>, Token, BootTime);

impl Drop for Pen<'_> {
    fn drop(&mut self) {
        let Self(all, token, start) = self;
        all.lock().unwrap().push(Lived { token: *token, start: *start, end: Clock::system().now() });
    }
}

#[tokio::test]
async fn terms_follow_one_another_however_they_end() {
    for _ in 0..5 {
        let Err(overlap) = lead_in_turns().await else { return };
        // Who was starved himself stopped too late, and can say nothing of the others.
        assert!(overlap.starved > ms(20), "{overlap:?}");
        println!("{overlap:?}: once more");
    }
    panic!("this machine has no time for it");
}

/// Two who led at once, as it seems.
#[derive(Debug)]
#[expect(dead_code, reason = "it is read by people")]
struct Overlap {
    nanos: i64,
    starved: Duration,
}

async fn lead_in_turns() -> Result<(), Overlap> {
    let shared = MemoryStore::new();
    let (lived, lost) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU32::new(0)));
    let leaders: Vec<_> = (0..4)
        .map(|number| {
            let store = Arc::new(Moody::over(shared.clone()));
            let client = Leasehold::builder().store(store.clone());
            let (lived, lost) = (lived.clone(), lost.clone());
            tokio::spawn(async move {
                let election = client.election("x").ttl(secs(2));
                loop {
                    let leads = election.lead(async |term| {
                        let _pen = Pen(&lived, term.token(), Clock::system().now());
                        assert!(term.check().is_ok(), "it has only begun");
                        match number {
                            // Works until it is stopped, since its renewals fail.
                            0 => {
                                lost.fetch_add(1, Ordering::SeqCst);
                                store.be(Op::Renew, Mood::Refuse, 100);
                                std::future::pending::<()>().await;
                            }
                            // Winds down when it is told to.
                            1 => {
                                store.be(Op::Renew, Mood::Refuse, 100);
                                term.cancelled().cancelled().await;
                                store.be(Op::Renew, Mood::Fine, 0);
                            }
                            _ => tokio::time::sleep(ms(20)).await,
                        }
                        ControlFlow::<()>::Continue(())
                    });
                    // One drops the future now and then.
                    let patience = if number == 2 { ms(50) } else { secs(3600) };
                    assert!(tokio::time::timeout(patience, leads).await.is_err(), "it leads for ever");
                }
            })
        })
        .collect();
    let clock = Clock::system();
    let deadline = clock.now().after(secs(60));
    let mut starved = Duration::ZERO;
    while lost.load(Ordering::SeqCst) < 3 || lived.lock().unwrap().len() < 12 {
        assert!(clock.now() < deadline, "too few terms");
        let asked = clock.now();
        tokio::time::sleep(ms(5)).await;
        starved = starved.max(clock.now().since(asked.after(ms(5))));
    }
    for leader in leaders {
        assert!(!leader.is_finished());
        leader.abort();
    }
    let mut lived = std::mem::take(&mut *lived.lock().unwrap());
    lived.sort_by_key(|term| term.start);
    for pair in lived.windows(2) {
        assert!(pair[0].token < pair[1].token, "tokens rise");
        let gap = pair[1].start.as_nanos().cast_signed() - pair[0].end.as_nanos().cast_signed();
        if gap < 0 {
            return Err(Overlap { nanos: gap, starved });
        }
    }
    Ok(())
}

#[tokio::test]
async fn it_leads_again_after_each_term_until_it_says_stop() {
    let client = Leasehold::memory();
    let tokens = std::cell::RefCell::new(Vec::new());
    let stopped = client
        .election("x")
        .lead(async |term| {
            tokens.borrow_mut().push(term.token());
            if tokens.borrow().len() < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break("enough") }
        })
        .await
        .unwrap();
    assert_eq!(stopped, "enough");
    let tokens = tokens.into_inner();
    assert!(tokens.len() == 3 && tokens.is_sorted());
    assert!(client.inspect("x").await.unwrap().holders.is_empty(), "it was given back before");
    // Who resigns in the middle of the work is stopped there.
    let first = std::cell::Cell::new(None);
    let election = client.election("x");
    let leads = election.lead(async |term| {
        if let Some(first) = first.get() {
            return ControlFlow::Break((first, term.token()));
        }
        first.set(Some(term.token()));
        term.resign().await.unwrap();
        std::future::pending().await
    });
    let (first, second) = leads.await.unwrap();
    assert!(first < second);
}

#[tokio::test]
async fn whoever_resigns_goes_to_the_end_of_the_line() {
    let store = Arc::new(MemoryStore::new());
    let (one, two) = (Leasehold::builder().store(store.clone()), Leasehold::builder().store(store));
    let (first, second) = (one.election("x"), two.election("x"));
    let term = first.campaign().await.unwrap();
    let campaigns = tokio::spawn(async move { second.campaign().await });
    until("it stands in line", async || one.inspect("x").await.unwrap().waiters.len() == 1).await;
    term.resign().await.unwrap();
    let again = tokio::spawn(async move { first.campaign().await });
    let term = campaigns.await.unwrap().unwrap();
    assert!(!again.is_finished());
    drop(term);
    drop(again.await.unwrap().unwrap());
}

#[tokio::test]
async fn a_broken_lease_ends_the_work_and_a_store_that_fails_is_asked_again() {
    let store = Arc::new(Moody::new());
    let client = Leasehold::builder().timeout(TTL / 3).store(store.clone());
    store.be(Op::Claim, Mood::Refuse, 8);
    let terms = Arc::new(AtomicU32::new(0));
    let leads = tokio::spawn({
        let (election, terms) = (client.election("x").ttl(TTL), terms.clone());
        async move {
            election
                .lead(async |_| {
                    terms.fetch_add(1, Ordering::SeqCst);
                    std::future::pending::<()>().await;
                })
                .await
        }
    });
    for wanted in 1..=2 {
        until("it leads", async || terms.load(Ordering::SeqCst) == wanted).await;
        store.be(Op::Claim, Mood::Fine, 0);
        let token = client.inspect("x").await.unwrap().holders[0].token.unwrap();
        client.break_lease("x", token).await.unwrap();
    }
    until("it leads again", async || terms.load(Ordering::SeqCst) == 3).await;
    leads.abort();
    assert!(leads.await.unwrap_err().is_cancelled());
    deserted(&client, "x").await;
    // What will never go well is no reason to try for ever.
    let never = client.election("").lead(async |_| ()).await;
    assert!(matches!(never, Err(Error::Name(_))));
}

#[tokio::test]
async fn a_dropped_future_leaves_nothing_behind_however_often_it_was_polled() {
    let store = Arc::new(MemoryStore::new());
    let (client, other) = (Leasehold::builder().store(store.clone()), Leasehold::builder().store(store));
    for polls in 0..8 {
        for held in [false, true] {
            let name = format!("x:{polls}:{held}");
            let blocker = if held { Some(other.lock(&name).acquire().await.unwrap()) } else { None };
            let election = client.election(&name);
            polled(polls, election.campaign()).await;
            polled(polls, election.lead(async |_| std::future::pending::<()>().await)).await;
            polled(polls, election.lead(async |_| ())).await;
            if let Some(blocker) = blocker {
                blocker.release().await.unwrap();
            }
            deserted(&other, &name).await;
        }
    }
}

#[tokio::test]
async fn followers_hear_of_each_change_within_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    let memory = Arc::new(MemoryStore::new());
    let pairs = [
        (Leasehold::builder().store(memory.clone()), Leasehold::builder().store(memory)),
        (Leasehold::connect(&url).await.unwrap(), Leasehold::connect(&url).await.unwrap()),
    ];
    for (leads, follows) in pairs {
        let election = leads.election("x").note("here");
        let mut followers: Vec<_> = (0..10).map(|_| follows.election("x").watch()).collect();
        for follower in &mut followers {
            assert!(follower.changed().await.unwrap().is_none(), "nobody leads yet");
        }
        for _ in 0..3 {
            let term = election.campaign().await.unwrap();
            for follower in &mut followers {
                let seen = tokio::time::timeout(ms(1500), follower.changed()).await.expect("in time");
                let holder = seen.unwrap().expect("somebody leads");
                assert_eq!((holder.token, holder.note.text()), (term.token(), Some("here")));
                assert_eq!(follower.latest().map(|holder| holder.token), Some(term.token()));
            }
            term.resign().await.unwrap();
            for follower in &mut followers {
                let seen = tokio::time::timeout(ms(1500), follower.changed()).await.expect("in time");
                assert!(seen.unwrap().is_none(), "nobody leads any more");
            }
        }
    }
}

#[tokio::test]
async fn a_follower_looks_once_for_a_change_and_never_when_nothing_changes() {
    let shared = MemoryStore::new();
    let store = Arc::new(Moody::over(shared.clone()));
    let (leads, follows) =
        (Leasehold::builder().store(Arc::new(shared)), Leasehold::builder().store(store.clone()));
    let mut leader = follows.election("x").watch();
    assert!(leader.changed().await.unwrap().is_none());
    let before = store.asked(Op::Inspect);
    let term = leads.election("x").ttl(TTL).campaign().await.unwrap();
    leader.changed().await.unwrap().expect("somebody leads");
    // Renewals are no change.
    tokio::time::sleep(TTL * 3).await;
    assert!(term.check().is_ok());
    let looks = store.asked(Op::Inspect) - before;
    assert!(looks <= 2, "{looks} looks for one change");
    drop(leader);
    term.resign().await.unwrap();
    until("the look under way has ended", async || leads.inspect("x").await.unwrap().holders.is_empty())
        .await;
    let after = store.asked(Op::Inspect);
    let _term = leads.election("x").campaign().await.unwrap();
    tokio::time::sleep(TTL).await;
    assert!(store.asked(Op::Inspect) <= after + 1, "who has gone is no longer looked for");
}

#[tokio::test]
async fn a_follower_hears_that_it_is_not_known_who_leads_and_then_that_it_is() {
    let store = Arc::new(Moody::new());
    let client = Leasehold::builder().timeout(TTL / 2).store(store.clone());
    let term = client.election("x").campaign().await.unwrap();
    let mut leader = client.election("x").watch();
    leader.changed().await.unwrap().expect("somebody leads");
    store.be(Op::Inspect, Mood::Refuse, ALWAYS);
    store.be(Op::Wait, Mood::Refuse, ALWAYS);
    // Who waits in the store now hears the end of the term, and then nothing.
    term.resign().await.unwrap();
    let unknown = tokio::time::timeout(TTL * 20, leader.changed()).await.expect("it is told");
    assert!(matches!(unknown, Err(Error::Store(_))), "{unknown:?}");
    store.be(Op::Inspect, Mood::Fine, 0);
    let known = tokio::time::timeout(TTL * 20, leader.changed()).await.expect("it is told");
    assert!(known.unwrap().is_none());
    assert!(matches!(client.election("").watch().changed().await, Err(Error::Name(_))));
    client.clone().close().await.unwrap();
    assert!(leader.changed().await.is_err());
}

#[test]
fn futures_and_handles_may_cross_threads() {
    fn check<T: Send + Sync>(_: &T) {}
    fn send<T: Send>(_: &T) {}
    let client = Leasehold::memory();
    let election = client.election("x");
    check(&election);
    check(&election.watch());
    send(&election.watch().changed());
    send(&election.campaign());
    send(&election.lead(async |term| {
        let cancelled = term.cancelled();
        cancelled.cancelled().await;
    }));
    smol::block_on(async {
        let term = election.campaign().await.unwrap();
        check(&term);
        send(&term.ends());
        send(&term.resign());
    });
}
