//! Processes that wait for one SQLite lock: who is served when, and what a dead or frozen one costs the others.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::time::Duration;

use leasehold_harness::puppet::Puppet;
use rustix::process::{Pid, Signal, kill_process};

/// Long enough that nobody is served by its end.
const LONG: &str = "60000";
/// What each dead or frozen waiter may cost the others, whatever the ttl.
const COST: Duration = Duration::from_secs(2);

struct Stage {
    folder: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.folder.path().join("locks.db").display())
    }

    async fn puppet(&self) -> Puppet {
        Puppet::start(env!("CARGO_BIN_EXE_puppet"), &self.url()).await.unwrap()
    }

    /// Waits until so many stand in the line.
    async fn in_line(&self, wanted: usize) {
        let client = leasehold::Leasehold::connect(&self.url()).await.unwrap();
        let deadline = client.clock().now().after(Duration::from_secs(30));
        while client.inspect("x").await.unwrap().waiters.len() != wanted {
            assert!(client.clock().now() < deadline, "{wanted} never stood in line");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        client.close().await.unwrap();
    }
}

fn acquire(extra: &str) -> String {
    format!("acquire x {LONG}{extra}")
}

#[tokio::test]
async fn a_release_wakes_the_next_process_and_its_token_is_higher() {
    let stage = Stage::new();
    let (mut one, mut two) = (stage.puppet().await, stage.puppet().await);
    let first = one.ask(&acquire(""), "granted").await.unwrap();
    two.tell(&acquire("")).await.unwrap();
    stage.in_line(1).await;
    let released = one.ask("release", "released").await.unwrap();
    let second = two.expect("granted").await.unwrap();
    assert!(second.token().unwrap() > first.token().unwrap());
    assert!(second.at > released.at);
}

#[tokio::test]
async fn a_killed_holder_frees_its_lock_at_once_whatever_its_ttl() {
    let stage = Stage::new();
    let (mut one, mut two) = (stage.puppet().await, stage.puppet().await);
    one.ask(&acquire(""), "granted").await.unwrap();
    two.tell(&acquire("")).await.unwrap();
    stage.in_line(1).await;
    let killed = one.kill().await.unwrap();
    let granted = two.expect("granted").await.unwrap();
    assert!(granted.at.since(killed) < COST, "{:?}", granted.at.since(killed));
}

#[tokio::test]
async fn a_killed_or_frozen_head_of_the_line_costs_those_behind_at_most_two_seconds() {
    for frozen in [false, true] {
        let stage = Stage::new();
        let (mut one, mut head, mut next) =
            (stage.puppet().await, stage.puppet().await, stage.puppet().await);
        one.ask(&acquire(""), "granted").await.unwrap();
        head.tell(&acquire(" fair")).await.unwrap();
        stage.in_line(1).await;
        next.tell(&acquire(" fair")).await.unwrap();
        stage.in_line(2).await;
        let head = if frozen {
            head.signal(Signal::STOP).unwrap();
            Some(head)
        } else {
            head.kill().await.unwrap();
            None
        };
        let released = one.ask("release", "released").await.unwrap();
        let granted = next.expect("granted").await.unwrap();
        let cost = granted.at.since(released.at);
        // The observer's own delay is the machine's, not the lock's.
        assert!(cost < COST + Duration::from_millis(500), "{cost:?} (frozen: {frozen})");
        if let Some(mut head) = head {
            // It wakes up, takes its place at the end, and is served in its turn.
            head.signal(Signal::CONT).unwrap();
            next.ask("release", "released").await.unwrap();
            head.expect("granted").await.unwrap();
        }
    }
}

#[tokio::test]
async fn twenty_waiters_are_served_in_the_order_in_which_they_came() {
    let stage = Stage::new();
    let mut holder = stage.puppet().await;
    holder.ask(&acquire(""), "granted").await.unwrap();
    let mut waiters = Vec::new();
    for place in 1..=20 {
        let mut waiter = stage.puppet().await;
        waiter.tell(&acquire(" fair")).await.unwrap();
        stage.in_line(place).await;
        waiters.push(waiter);
    }
    holder.ask("release", "released").await.unwrap();
    let mut last = 0;
    for mut waiter in waiters {
        let token = waiter.expect("granted").await.unwrap().token().unwrap();
        assert!(token > last, "served out of order");
        last = token;
        waiter.ask("release", "released").await.unwrap();
    }
}

#[tokio::test]
async fn a_program_that_blocks_its_only_thread_for_five_ttl_keeps_its_lease() {
    let stage = Stage::new();
    let (mut one, mut two) = (stage.puppet().await, stage.puppet().await);
    let granted = one.ask("acquire x 1000", "granted").await.unwrap();
    one.tell("block 5000").await.unwrap();
    let clock = leasehold::Clock::system();
    let end = clock.now().after(Duration::from_millis(4500));
    while clock.now() < end {
        two.ask("try x 1000", "busy").await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let held = one.expect("held").await.unwrap();
    assert_eq!(held.token().unwrap(), granted.token().unwrap());
}

#[tokio::test]
async fn a_frozen_holder_is_lost_when_it_wakes_and_its_token_is_the_lower_one() {
    let stage = Stage::new();
    let (mut one, mut two) = (stage.puppet().await, stage.puppet().await);
    let first = one.ask("acquire x 1000", "granted").await.unwrap();
    one.signal(Signal::STOP).unwrap();
    let second = two.ask("acquire x 1000", "granted").await.unwrap();
    assert!(second.at.since(first.at) >= Duration::from_millis(900), "not before its time");
    one.signal(Signal::CONT).unwrap();
    let lost = one.ask("check", "lost").await.unwrap();
    assert_eq!(lost.facts["reason"], "Expired");
    assert!(second.token().unwrap() > first.token().unwrap());
    // What the old one does now does not touch the new one.
    one.ask("release", "failed").await.unwrap();
    two.ask("check", "held").await.unwrap();
}

#[tokio::test]
async fn a_fork_does_not_inherit_the_lease() {
    let stage = Stage::new();
    let (mut one, mut two) = (stage.puppet().await, stage.puppet().await);
    one.ask(&acquire(""), "granted").await.unwrap();
    one.tell("fork-check").await.unwrap();
    let child = one.expect("lost").await.unwrap();
    assert_eq!(child.facts["reason"], "Forked");
    let refused = one.expect("client").await.unwrap();
    assert_eq!(refused.facts["code"], "LH0140");
    one.expect("held").await.unwrap();
    two.ask("try x 1000", "busy").await.unwrap();
    one.ask("release", "released").await.unwrap();
    two.ask("try x 1000", "granted").await.unwrap();
}

#[tokio::test]
async fn an_anchored_lease_outlasts_its_ttl_as_long_as_a_child_of_its_killed_holder_lives() {
    let stage = Stage::new();
    let (mut one, mut two) = (stage.puppet().await, stage.puppet().await);
    one.ask("anchor x 1000", "granted").await.unwrap();
    let child = one.ask("leave-child 60", "started").await.unwrap();
    let child = Pid::from_raw(child.facts["pid"].parse().unwrap()).unwrap();
    let killed = one.kill().await.unwrap();
    let clock = leasehold::Clock::system();
    while clock.now().since(killed) < Duration::from_secs(3) {
        two.ask("try x 1000", "busy").await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    two.tell("acquire x 1000").await.unwrap();
    stage.in_line(1).await;
    let ended = clock.now();
    kill_process(child, Signal::KILL).unwrap();
    let granted = two.expect("granted").await.unwrap();
    assert!(granted.at > ended, "freed under a living child");
    assert!(granted.at.since(ended) < COST, "{:?}", granted.at.since(ended));
}

#[tokio::test]
async fn a_killed_holder_leaves_a_name_shut_that_was_to_be_held_at_least_so_long() {
    let stage = Stage::new();
    let (mut one, mut two) = (stage.puppet().await, stage.puppet().await);
    let granted = one.ask("acquire x 60000 at-least=3000", "granted").await.unwrap();
    one.kill().await.unwrap();
    let client = leasehold::Leasehold::connect(&stage.url()).await.unwrap();
    while !client.inspect("x").await.unwrap().holders.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    two.ask("try x 1000", "busy").await.unwrap();
    assert!(client.inspect("x").await.unwrap().closed.is_some());
    let next = two.ask("acquire x 1000", "granted").await.unwrap();
    let after = next.at.since(granted.at);
    assert!(after >= Duration::from_millis(2900), "{after:?}");
    assert!(next.token().unwrap() > granted.token().unwrap());
    client.close().await.unwrap();
}
