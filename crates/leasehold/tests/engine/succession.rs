//! Handing a live lease to another owner: between clients, and between processes.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::common::{Mood, Moody, TTL, ms, until};
use leasehold::{Error, LeaseTicket, Leasehold, LostReason, MemoryStore, Op};

fn two() -> (Arc<Moody>, Leasehold, Leasehold) {
    let store = Arc::new(Moody::new());
    let client = || Leasehold::builder().timeout(TTL).store(store.clone());
    (store.clone(), client(), client())
}

#[tokio::test]
async fn a_lease_goes_to_another_owner_with_a_higher_token_and_is_never_free() {
    let (_, giver, taker) = two();
    let lease = giver.lock("x").ttl(TTL).note("moving").acquire().await.unwrap();
    let cancelled = lease.cancelled();
    let old = lease.token();
    let given = lease.hand_over().await.unwrap();
    assert!(cancelled.is_cancelled(), "the giver's work hears of it");
    // Nobody gets in while it waits to be taken, however long.
    tokio::time::sleep(TTL * 3).await;
    assert!(taker.lock("x").try_acquire().await.unwrap().is_none());
    let ticket = LeaseTicket::from_bytes(&given.ticket().to_bytes()).unwrap();
    let lease = taker.take_over(ticket.clone()).await.unwrap();
    assert!(lease.check().unwrap() > old);
    assert_eq!((lease.owner_id(), lease.ttl()), (taker.owner().id().as_str(), TTL));
    let holders = taker.inspect("x").await.unwrap().holders;
    assert_eq!((holders.len(), holders[0].note.text()), (1, Some("moving")));
    given.taken().await.unwrap();
    tokio::time::sleep(TTL * 2).await;
    lease.check().expect("it is renewed here");
    assert!(matches!(giver.take_over(ticket).await, Err(Error::Lost(_))), "a ticket is good for once");
    lease.check().unwrap();
    lease.release().await.unwrap();
    giver.lock("x").try_acquire().await.unwrap().expect("it is free").release().await.unwrap();
}

#[tokio::test]
async fn whoever_hands_over_believes_in_it_no_longer_nor_does_his_scope() {
    let (_, giver, taker) = two();
    let me = giver.scope("me");
    let (lease, again) = (me.lock("x").acquire().await.unwrap(), me.lock("x").acquire().await.unwrap());
    let given = lease.hand_over().await.unwrap();
    // Before anybody has taken it, and so before anybody else can believe that it is his.
    assert_eq!(again.check().unwrap_err().reason, LostReason::Superseded);
    assert!(matches!(me.lock("x").attempt().await, Err(Error::Busy(_))), "it is not entered again");
    let taken = taker.take_over(given.ticket().clone()).await.unwrap();
    drop(again);
    given.taken().await.unwrap();
    taken.check().unwrap();
    taken.release().await.unwrap();
}

#[tokio::test]
async fn no_task_of_the_giver_is_handed_what_somebody_else_may_have_taken() {
    let (_, giver, taker) = two();
    // Several wait when the claim is stated, so that it has tokens for all of them.
    let blocker = taker.lock("x").acquire().await.unwrap();
    let mut waits = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let lock = giver.lock("x");
        waits.spawn(async move { lock.acquire().await.unwrap() });
    }
    until("they wait", async || !taker.inspect("x").await.unwrap().waiters.is_empty()).await;
    tokio::time::sleep(ms(50)).await;
    blocker.release().await.unwrap();
    let lease = waits.join_next().await.unwrap().unwrap();
    lease.ensure(lease.ttl() / 2).await.unwrap();
    let given = lease.hand_over().await.unwrap();
    let taken = taker.take_over(given.ticket().clone()).await.unwrap();
    // The giver does not know yet, and lets go.
    drop(given);
    tokio::time::sleep(ms(100)).await;
    assert!(waits.try_join_next().is_none(), "a task was given what another owner has");
    taken.check().unwrap();
    taken.release().await.unwrap();
    while let Some(lease) = waits.join_next().await {
        drop(lease.unwrap());
    }
}

#[tokio::test]
async fn a_lease_that_nobody_takes_is_given_back_with_its_hand_over() {
    let (_, giver, taker) = two();
    let given = giver.lock("x").acquire().await.unwrap().hand_over().await.unwrap();
    let ticket = given.ticket().clone();
    drop(given);
    until("it is free", async || taker.inspect("x").await.unwrap().holders.is_empty()).await;
    assert!(matches!(taker.take_over(ticket).await, Err(Error::Lost(_))));
    assert!(taker.inspect("x").await.unwrap().holders.is_empty(), "nothing was made of nothing");
}

#[tokio::test]
async fn a_hand_over_that_runs_out_says_so() {
    let (store, giver, _) = two();
    let given = giver.lock("x").ttl(TTL).acquire().await.unwrap().hand_over().await.unwrap();
    store.be(Op::Renew, Mood::Refuse, u32::MAX);
    assert!(matches!(given.taken().await, Err(Error::Lost(lost)) if lost.reason == LostReason::Expired));
}

#[tokio::test]
async fn only_what_was_handed_over_is_taken_over_and_it_is_not_resumed() {
    let (_, giver, taker) = two();
    let lease = giver.lock("x").acquire().await.unwrap();
    let error = taker.take_over(lease.ticket().await.unwrap()).await.unwrap_err();
    assert!(matches!(error, Error::Config(_)) && error.help().unwrap().contains("hand_over"), "{error}");
    let found = taker.find("x", lease.token()).await.unwrap().unwrap();
    assert!(matches!(taker.take_over(found).await, Err(Error::Config(_))), "nor what was only found");
    lease.check().expect("nothing was done");
    let given = lease.hand_over().await.unwrap();
    assert!(matches!(taker.resume(given.ticket().clone()).await, Err(Error::Config(_))));
}

#[tokio::test]
async fn a_lost_lease_cannot_be_handed_over() {
    let (_, giver, _) = two();
    let lease = giver.lock("x").acquire().await.unwrap();
    giver.break_lease("x", lease.token()).await.unwrap();
    assert!(lease.ensure(lease.ttl()).await.is_err());
    assert!(matches!(lease.hand_over().await, Err(Error::Lost(_))));
}

#[tokio::test]
async fn lost_answers_of_a_take_over_are_cured_by_asking_again_with_the_same_id() {
    let (store, giver, taker) = two();
    let given = giver.lock("x").acquire().await.unwrap().hand_over().await.unwrap();
    store.be(Op::Claim, Mood::Lose, 3);
    let lease = taker.take_over(given.ticket().clone()).await.unwrap();
    lease.check().unwrap();
    assert_eq!(taker.inspect("x").await.unwrap().holders.len(), 1);
    given.taken().await.unwrap();
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_take_over_that_fails_leaves_nothing_behind() {
    let (store, giver, taker) = two();
    for mood in [Mood::Refuse, Mood::Lose, Mood::Hang] {
        let given = giver.lock("x").acquire_within(TTL * 10).await.unwrap().hand_over().await.unwrap();
        store.be(Op::Claim, mood, u32::MAX);
        let error = taker.take_over(given.ticket().clone()).await.unwrap_err();
        assert!(matches!(error, Error::Store(_)), "{mood:?}: {error}");
        store.be(Op::Claim, Mood::Fine, 0);
        drop(given);
        until("it is free", async || taker.inspect("x").await.unwrap().holders.is_empty()).await;
    }
}

#[tokio::test]
async fn dropped_at_any_poll_neither_side_leaves_a_lease_behind() {
    let store = Arc::new(MemoryStore::new());
    let giver = Leasehold::builder().store(store.clone());
    let taker = Leasehold::builder().store(store);
    for polls in 0..5 {
        let name = format!("x:{polls}");
        // The giver's future.
        let lease = giver.lock(&name).acquire().await.unwrap();
        poll(polls, lease.hand_over()).await;
        until("it is free", async || taker.inspect(&name).await.unwrap().holders.is_empty()).await;
        // The taker's, and then the wait of the giver.
        let given = giver.lock(&name).acquire().await.unwrap().hand_over().await.unwrap();
        poll(polls, taker.take_over(given.ticket().clone())).await;
        poll(polls, given.taken()).await;
        until("it is free", async || taker.inspect(&name).await.unwrap().holders.is_empty()).await;
    }
}

/// Polls so often, with time in between, and drops whatever it is.
async fn poll<T>(polls: usize, future: impl Future<Output = T>) {
    let mut future = std::pin::pin!(future);
    for _ in 0..polls {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            drop(value);
            return;
        }
        tokio::time::sleep(ms(1)).await;
    }
}

#[cfg(feature = "sqlite")]
mod processes {
    //! The giver is this process, the taker another one: this very test program, started again.

    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    use super::*;
    use leasehold::Token;

    const URL: &str = "LEASEHOLD_TEST_TAKER";

    #[test]
    fn a_lease_goes_to_another_process() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/locks.db", folder.path().display());
        let test = "succession::processes::the_other_process";
        let mut taker = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--include-ignored"])
            .env(URL, &url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut heard = BufReader::new(taker.stdout.take().unwrap()).lines();
        let mut tell = taker.stdin.take().unwrap();
        let mut hear = |word: &str| {
            let lines = heard.by_ref().map(Result::unwrap);
            lines.filter_map(|line| line.split_once(word).map(|(_, rest)| rest.to_owned())).next().unwrap()
        };
        smol::block_on(async {
            let client = Leasehold::connect(&url).await.unwrap();
            let lease = client.lock("x").acquire().await.unwrap();
            let old = lease.token();
            let given = lease.hand_over().await.unwrap();
            tell.write_all(&given.ticket().to_bytes()).unwrap();
            tell.write_all(b"\n").unwrap();
            let token: Token = Token::new(hear("taken ").parse().unwrap()).unwrap();
            assert!(token > old, "{token} after {old}");
            given.taken().await.unwrap();
            let holder = client.inspect("x").await.unwrap().holders.remove(0);
            assert_eq!((holder.owner.pid, holder.token), (taker.id(), Some(token)));
            // The giver's client may end: the lease is the taker's.
            client.close().await.unwrap();
            let client = Leasehold::connect(&url).await.unwrap();
            assert!(client.lock("x").try_acquire().await.unwrap().is_none());
            tell.write_all(b"end\n").unwrap();
            hear("released");
            assert!(taker.wait().unwrap().success());
            client.lock("x").try_acquire().await.unwrap().expect("it is free").release().await.unwrap();
        });
    }

    #[test]
    #[ignore = "the test above runs it, as a process of its own with --include-ignored"]
    fn the_other_process() {
        let Ok(url) = std::env::var(URL) else { return };
        let mut lines = std::io::stdin().lines().map(Result::unwrap);
        smol::block_on(async {
            let client = Leasehold::connect(&url).await.unwrap();
            let ticket = LeaseTicket::from_bytes(lines.next().unwrap().as_bytes()).unwrap();
            let lease = client.take_over(ticket).await.unwrap();
            println!("taken {}", lease.check().unwrap());
            assert_eq!(lines.next().as_deref(), Some("end"));
            lease.release().await.unwrap();
            println!("released");
        });
    }
}
