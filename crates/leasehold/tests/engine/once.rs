//! What is done once: by whoever comes first, and by somebody else if that one did not get to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::common::{Mood, Moody, TTL, deserted, ms, polled, until};
use leasehold::config::OnceAfter;
use leasehold::{
    Clock, Code, Error, Leasehold, Ledger as _, LockName, MarkKind, MemoryStore, OnceOutcome, OnceRun, Op,
};

/// More often than any test asks.
const ALWAYS: u32 = u32::MAX;

/// What was done, in the words of a test.
type Done = Result<u32, String>;

/// How it ended, in one word.
fn word<T, E>(outcome: &OnceOutcome<T, E>) -> &'static str {
    match outcome {
        OnceOutcome::Ran(Ok(_)) => "ran",
        OnceOutcome::Ran(Err(_)) => "failed",
        OnceOutcome::AlreadyDone { .. } => "done",
        OnceOutcome::InProgress(_) => "busy",
    }
}

async fn marks(store: &MemoryStore, name: &str) -> usize {
    store.marks(MarkKind::Once, &LockName::parse(name).unwrap()).await.unwrap().len()
}

#[tokio::test]
async fn it_is_done_once_and_what_was_remembered_is_told() {
    let client = Leasehold::memory();
    let once = client.once("report:2025-06-03").note("building");
    // An error leaves no mark.
    let failed = once.run(async |_| Done::Err("no paper".to_owned())).await.unwrap();
    assert!(matches!(failed, OnceOutcome::Ran(Err(error)) if error == "no paper"));
    let ran = once
        .run(async |run: &OnceRun| {
            assert_eq!(run.check().unwrap(), run.token());
            // Whoever comes now hears who is at it.
            let OnceOutcome::InProgress(busy) = once.run(async |_| Done::Ok(0)).await.unwrap() else {
                panic!("it runs");
            };
            assert_eq!(busy.holder.unwrap().note.text(), Some("building"));
            run.remember_value(&("seventeen", 17)).unwrap();
            Done::Ok(17)
        })
        .await
        .unwrap();
    assert!(matches!(ran, OnceOutcome::Ran(Ok(17))));
    let again = once.run(async |_| -> Done { panic!("it is done") }).await.unwrap();
    let OnceOutcome::AlreadyDone { by, age, remembered, .. } = again else { panic!("it is done") };
    assert_eq!(by, client.owner().id());
    assert!(age < TTL * 10);
    let remembered = remembered.unwrap();
    assert_eq!(remembered.text(), r#"["seventeen",17]"#);
    assert_eq!(remembered.value::<(String, u32)>().unwrap(), ("seventeen".to_owned(), 17));
    assert!(remembered.value::<u32>().is_err());
    assert!(once.forget().await.unwrap() && !once.forget().await.unwrap());
    assert_eq!(word(&once.run(async |_| Done::Ok(1)).await.unwrap()), "ran");
    assert!(client.inspect("report:2025-06-03").await.unwrap().holders.is_empty(), "it was given back");
}

#[tokio::test]
async fn of_many_who_wait_one_does_it_and_the_others_hear_of_it() {
    let (store, ran) = (Arc::new(MemoryStore::new()), Arc::new(AtomicU32::new(0)));
    let all: Vec<_> = (0..20)
        .map(|_| {
            let (client, ran) = (Leasehold::builder().store(store.clone()), ran.clone());
            tokio::spawn(async move {
                let done = async |run: &OnceRun| {
                    tokio::time::sleep(ms(20)).await;
                    run.remember_text("receipt").unwrap();
                    // Those who are second to try succeed.
                    if ran.fetch_add(1, Ordering::SeqCst) == 0 {
                        Done::Err("first".into())
                    } else {
                        Done::Ok(2)
                    }
                };
                client.once("x").run_within(TTL * 20, done).await.unwrap()
            })
        })
        .collect();
    let mut words = Vec::new();
    for one in all {
        let outcome = one.await.unwrap();
        if let OnceOutcome::AlreadyDone { remembered, .. } = &outcome {
            assert_eq!(remembered.as_ref().map(|text| text.text()), Some("receipt"));
        }
        words.push(word(&outcome));
    }
    words.sort_unstable();
    assert_eq!((words[0], words[17], words[18], words[19]), ("done", "done", "failed", "ran"));
    assert_eq!(ran.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_wait_that_ends_before_the_run_does_says_who_is_at_it() {
    let client = Leasehold::memory();
    let _busy = client.lock("x").acquire().await.unwrap();
    let outcome = client.once("x").run_within(ms(20), async |_| Done::Ok(0)).await.unwrap();
    assert!(matches!(outcome, OnceOutcome::InProgress(busy) if busy.holder.is_some()));
}

#[tokio::test]
async fn a_mark_whose_answer_was_lost_is_made_again_until_it_is_acknowledged() {
    let inner = MemoryStore::new();
    let store = Arc::new(Moody::over(inner.clone()));
    let client = Leasehold::builder().timeout(TTL / 4).store(store.clone());
    for (name, mood) in [("lost", Mood::Lose), ("refused", Mood::Refuse), ("silent", Mood::Hang)] {
        let outcome = client
            .once(name)
            .run(async |_| {
                store.be(Op::Ledger, mood, 3);
                Done::Ok(1)
            })
            .await;
        assert_eq!(word(&outcome.unwrap()), "ran", "{mood:?}");
        assert_eq!(marks(&inner, name).await, 1, "{mood:?}");
        assert_eq!(word(&client.once(name).run(async |_| Done::Ok(1)).await.unwrap()), "done");
    }
}

#[tokio::test]
async fn work_whose_lease_ends_before_it_is_marked_says_so_and_may_be_done_again() {
    let store = Arc::new(Moody::new());
    let client = Leasehold::builder().timeout(TTL).store(store.clone());
    let once = client.once("x").ttl(TTL);
    let unmarked = once
        .run(async |_| {
            store.be(Op::Ledger, Mood::Refuse, ALWAYS);
            store.be(Op::Renew, Mood::Refuse, ALWAYS);
            Done::Ok(1)
        })
        .await
        .unwrap_err();
    assert_eq!(unmarked.code(), Code::LOST);
    assert!(unmarked.to_string().contains("the work is done, but could not be marked as done"), "{unmarked}");
    assert!(unmarked.help().is_some());
    store.be(Op::Ledger, Mood::Fine, 0);
    store.be(Op::Renew, Mood::Fine, 0);
    let again = once.run_within(TTL * 10, async |_| Done::Ok(2)).await.unwrap();
    assert_eq!(word(&again), "ran");
}

#[tokio::test]
async fn work_that_somebody_else_has_marked_as_done_meanwhile_does_not_count_as_done_here() {
    let store = Arc::new(MemoryStore::new());
    let once = Leasehold::builder().store(store.clone()).once("x");
    let theirs = leasehold::Mark {
        kind: MarkKind::Once,
        name: LockName::parse("x").unwrap(),
        key: "done".to_owned(),
        by: "other/1/one".to_owned(),
        text: "{}".to_owned(),
        lasting: TTL * 100,
        age: Duration::ZERO,
    };
    let both = once
        .run(async |_| {
            // As if the lease had ended while the mark was under way, and another had come in.
            store.mark(&theirs).await.unwrap();
            Done::Ok(1)
        })
        .await
        .unwrap_err();
    assert_eq!(both.code(), Code::LOST);
    assert!(both.to_string().contains("other/1/one had marked it as done before"), "{both}");
    let later = once.run(async |_| Done::Ok(2)).await.unwrap();
    assert_eq!(word(&later), "done");
}

#[tokio::test]
async fn work_whose_lease_is_lost_is_stopped_and_leaves_no_mark() {
    let (clock, store) = (Clock::system(), MemoryStore::new());
    let client = Leasehold::builder().clock(clock.clone()).store(Arc::new(store.clone()));
    let stopped = client
        .once("x")
        .run(async |_| {
            clock.advance(Duration::from_secs(3600));
            std::future::pending::<Done>().await
        })
        .await;
    assert!(matches!(stopped, Err(Error::Lost(_))), "{stopped:?}");
    assert_eq!(marks(&store, "x").await, 0);
}

#[tokio::test]
async fn what_counts_from_its_start_is_never_started_twice() {
    let store = MemoryStore::new();
    let client = Leasehold::builder().store(Arc::new(store.clone()));
    let once = client.once("x").after(OnceAfter::Start);
    let failed = once
        .run(async |_| {
            assert_eq!(marks(&store, "x").await, 1, "before it starts");
            Done::Err("cut short".into())
        })
        .await;
    assert_eq!(word(&failed.unwrap()), "failed");
    assert_eq!(word(&once.run(async |_| Done::Ok(1)).await.unwrap()), "done");
}

#[tokio::test]
async fn a_period_is_told_by_the_wall_clock_in_its_zone() {
    let (store, clock) = (MemoryStore::new(), Clock::frozen());
    let client = Leasehold::builder().clock(clock.clone()).store(Arc::new(store));
    // The frozen clock starts at midnight, UTC, on 2026-01-01.
    let (utc, berlin) = (client.once_per("daily", "x"), client.once_per("daily", "x").tz("Europe/Berlin"));
    let all = async |expected: [&str; 2]| {
        for (once, expected) in [&utc, &berlin].into_iter().zip(expected) {
            assert_eq!(word(&once.run(async |_| Done::Ok(1)).await.unwrap()), expected);
        }
    };
    all(["ran", "done"]).await;
    clock.step_wall(22 * 3_600_000_000);
    all(["done", "done"]).await;
    clock.step_wall(3_600_000_000);
    // In Berlin it is the second of January.
    assert_eq!(word(&berlin.run(async |_| Done::Ok(1)).await.unwrap()), "ran");
    clock.step_wall(3_600_000_000);
    assert!(utc.forget().await.unwrap(), "the same slot, two hours later: forgotten");
    all(["ran", "done"]).await;
    // A mark is remembered for two periods, by the store's clock, unless told otherwise.
    let short = client.once_per("daily", "short").remember(ms(50));
    assert_eq!(word(&short.run(async |_| Done::Ok(1)).await.unwrap()), "ran");
    until("it is forgotten", async || word(&short.run(async |_| Done::Ok(1)).await.unwrap()) == "ran").await;
}

#[tokio::test]
async fn what_cannot_be_asked_is_told_before_anything_is_done() {
    let client = Leasehold::memory();
    let never = async |_: &OnceRun| -> Done { panic!("it must not run") };
    for wrong in [
        client.once_per("dayly", "x"),
        client.once_per("daily", "x").tz("Mars/Olympus"),
        client.once("x").remember(Duration::ZERO),
        client.once("x").note("\n"),
        client.once(""),
    ] {
        assert!(wrong.run(never).await.is_err(), "{wrong:?}");
    }
    let long =
        client.once("y").run(async |run: &OnceRun| run.remember_text("x".repeat(70_000))).await.unwrap();
    assert!(matches!(long, OnceOutcome::Ran(Err(Error::Config(_)))));
}

#[tokio::test]
async fn a_dropped_future_leaves_nothing_behind_however_often_it_was_polled() {
    let store = MemoryStore::new();
    let (client, other) = (
        Leasehold::builder().store(Arc::new(store.clone())),
        Leasehold::builder().store(Arc::new(store.clone())),
    );
    for polls in 0..12 {
        for held in [false, true] {
            let name = format!("x:{polls}:{held}");
            let blocker = if held { Some(other.lock(&name).acquire().await.unwrap()) } else { None };
            let once = client.once(&name);
            polled(polls, once.run_within(TTL, async |_| std::future::pending::<Done>().await)).await;
            polled(polls, once.run(async |_| std::future::pending::<Done>().await)).await;
            if let Some(blocker) = blocker {
                blocker.release().await.unwrap();
            }
            deserted(&other, &name).await;
            assert_eq!(marks(&store, &name).await, 0);
            // And where it gets to its end, either it is marked or it will be done again.
            polled(polls, once.run(async |_| Done::Ok(1))).await;
            deserted(&other, &name).await;
            let again = other.once(&name).run(async |_| Done::Ok(1)).await.unwrap();
            assert!(matches!(word(&again), "ran" | "done"));
            assert_eq!(marks(&store, &name).await, 1);
        }
    }
}

#[test]
fn futures_may_cross_threads() {
    fn send<T: Send>(_: &T) {}
    let client = Leasehold::memory();
    let once = client.once("x");
    send(&once.run(async |run: &OnceRun| run.check()));
    send(&once.run_within(TTL, async |run: &OnceRun| run.check()));
    send(&once.forget());
}
