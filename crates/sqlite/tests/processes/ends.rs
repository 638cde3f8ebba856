//! Unclean ends: what a killed process, a reboot, a copied file or an anchor that lets go leave behind.

use std::path::Path;
use std::time::Duration;

use leasehold_core::{Aftermath, Claim, Clock, Leave, Release, Share, State, Store, Turn};
use leasehold_sqlite::SqliteStore;

use crate::stage::{LONG, Player, acquire, claim, granted, name, open, sql, url};
use crate::trouble::{REBOOT, copy};

fn delayed(delay: Duration) -> Aftermath {
    Aftermath { delay, at_least: Duration::ZERO }
}

async fn left(store: &SqliteStore, text: &str) -> Option<Duration> {
    store.inspect(&name(text)).await.unwrap().closed.map(|closed| closed.left)
}

#[tokio::test]
async fn a_killed_holder_leaves_its_name_shut_at_once_and_for_its_time() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let (store, delay) = (open(&path), Duration::from_millis(800));
    let mut holder = Player::start("leaves", &[path.to_str().unwrap(), "800", "0"]);
    holder.hear();
    let mine = claim("a", Turn::Fifo);
    let standing = store.claim(&mine).await.unwrap();
    let clock = Clock::system();
    let (killed, wait) = (clock.now(), store.changed(&mine.name, &standing.cursor));
    holder.kill();
    // The waiter hears of the death, and it is he who writes down that the name is shut.
    tokio::time::timeout(Duration::from_secs(2), wait).await.expect("a death is heard of").unwrap();
    let state = store.claim(&mine).await.unwrap().state;
    assert!(matches!(state, State::Closed(_)), "{state:?}");
    assert_eq!(store.list("", None).await.unwrap(), std::slice::from_ref(&mine.name));
    acquire(&store, &mine).await;
    let after = clock.now().since(killed);
    assert!(after >= delay, "it opened after {after:?}");
    assert!(after < delay + Duration::from_secs(5), "it began anew with each look: {after:?}");
}

#[tokio::test]
async fn a_name_that_a_dead_holder_leaves_shut_is_shown_so_to_who_only_looks() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let store = open(&path);
    let mut holder = Player::start("leaves", &[path.to_str().unwrap(), "3600000", "0"]);
    holder.hear();
    assert_eq!(left(&store, "a").await, None);
    holder.kill();
    assert!(left(&store, "a").await.is_some_and(|left| left > Duration::from_secs(3500)));
    assert!(store.inspect(&name("a")).await.unwrap().holders.is_empty());
    assert_eq!(store.list("", None).await.unwrap(), [name("a")]);
}

#[tokio::test]
async fn an_anchored_lease_leaves_its_name_shut_from_when_the_anchor_lets_go() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let clock = Clock::frozen();
    let store = SqliteStore::open_with(&url(&path), clock.clone()).unwrap();
    let holder = SqliteStore::open_with(&url(&path), clock.clone()).unwrap();
    let anchored =
        Claim { anchored: true, aftermath: delayed(Duration::from_secs(60)), ..claim("a", Turn::Now) };
    granted(&holder.claim(&anchored).await.unwrap());
    let anchor = holder.anchor().await.unwrap();
    // Long after its ttl, at which nobody looked.
    clock.advance(Duration::from_secs(3600));
    drop((anchor, holder));
    let mut seen = None;
    let until = Clock::system().now().after(LONG);
    while seen.is_none() && Clock::system().now() < until {
        seen = left(&store, "a").await;
        tokio::task::yield_now().await;
    }
    let shut = seen.expect("it is shut once its anchor has let go");
    assert_eq!(shut, Duration::from_secs(60), "from now, not from the end of its ttl");
    let state = store.claim(&claim("a", Turn::Now)).await.unwrap().state;
    assert!(matches!(state, State::Closed(_)), "{state:?}");
    clock.advance(Duration::from_secs(61));
    granted(&store.claim(&claim("a", Turn::Now)).await.unwrap());
}

/// Takes leases at a moment, lets the machine go on for `up`, restarts it, and opens the file `off` later.
async fn over_a_reboot(path: &Path, claims: &[Claim], up: Duration, off: i64) -> SqliteStore {
    let clock = Clock::frozen();
    let store = SqliteStore::open_with(&url(path), clock.clone()).unwrap();
    for claim in claims {
        granted(&store.claim(claim).await.unwrap());
    }
    clock.advance(up);
    store.close().await.unwrap();
    sql(path, REBOOT);
    let clock = Clock::frozen();
    clock.step_wall(i64::try_from(up.as_micros()).unwrap() + off * 1_000_000);
    SqliteStore::open_with(&url(path), clock).unwrap()
}

fn about(left: Option<Duration>, seconds: u64) -> bool {
    left.is_some_and(|left| left.abs_diff(Duration::from_secs(seconds)) < Duration::from_secs(2))
}

#[tokio::test]
async fn a_lease_that_a_reboot_ended_leaves_its_name_shut_by_the_wall_clock() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let lease = |text, delay, at_least| {
        let [delay, at_least] = [delay, at_least].map(Duration::from_secs);
        Claim { aftermath: Aftermath { delay, at_least }, ..claim(text, Turn::Now) }
    };
    let claims = [lease("delay", 600, 0), lease("least", 0, 600), lease("none", 0, 0), lease("over", 20, 90)];
    // Ten seconds of its thirty had passed; the machine was off for a hundred.
    let store = over_a_reboot(&path, &claims, Duration::from_secs(10), 100).await;
    // It ended twenty seconds after the machine did at the latest.
    assert!(about(left(&store, "delay").await, 600 - 80), "{:?}", left(&store, "delay").await);
    assert!(about(left(&store, "least").await, 600 - 110), "{:?}", left(&store, "least").await);
    assert_eq!((left(&store, "none").await, left(&store, "over").await), (None, None));
    let names = [name("delay"), name("least")];
    assert_eq!(store.list("", None).await.unwrap(), names);
    let closed = store.inspect(&names[0]).await.unwrap().closed.unwrap();
    assert_eq!(closed.by, claims[0].owner);
    granted(&store.claim(&claim("none", Turn::Now)).await.unwrap());
}

#[tokio::test]
async fn a_reboot_into_1970_shuts_no_name_for_longer_than_was_asked_for() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let aftermath = Aftermath { delay: Duration::from_secs(60), at_least: Duration::from_secs(600) };
    let lease = Claim { aftermath, ..claim("a", Turn::Now) };
    let store = over_a_reboot(&path, &[lease], Duration::from_secs(10), -1_700_000_000).await;
    assert_eq!(left(&store, "a").await, Some(Duration::from_secs(600)));
}

#[tokio::test]
async fn a_longer_closure_stands_over_a_reboot() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let share = Share::SHARED;
    let shut = Claim { share, ..claim("a", Turn::Now) };
    let dies = Claim { share, aftermath: delayed(Duration::from_secs(60)), ..claim("a", Turn::Now) };
    let store = open(&path);
    granted(&store.claim(&shut).await.unwrap());
    granted(&store.claim(&dies).await.unwrap());
    let leave = Leave::Closed { lasting: Duration::from_secs(3600), note: leasehold_core::Note::NONE };
    store.release(&shut.name, shut.id, leave).await.unwrap();
    store.close().await.unwrap();
    sql(&path, REBOOT);
    assert!(about(left(&open(&path), "a").await, 3600));
}

#[tokio::test]
async fn a_restored_copy_leaves_the_names_of_the_dead_shut_and_those_of_the_living_held() {
    let home = tempfile::tempdir().unwrap();
    let (path, backup) = (home.path().join("locks.db"), home.path().join("backup.db"));
    let mut dead = Player::start("leaves", &[path.to_str().unwrap(), "3600000", "0"]);
    dead.hear();
    let alive = open(&path);
    let mine = Claim { aftermath: delayed(Duration::from_secs(60)), ..claim("mine", Turn::Now) };
    granted(&alive.claim(&mine).await.unwrap());
    copy(&path, &backup);
    dead.kill();
    std::fs::remove_file(&path).unwrap();
    let _ = std::fs::remove_file(home.path().join("locks.db-wal"));
    let _ = std::fs::remove_file(home.path().join("locks.db-shm"));
    copy(&backup, &path);
    let store = open(&path);
    assert!(about(left(&store, "a").await, 3600), "{:?}", left(&store, "a").await);
    assert_eq!(left(&store, "mine").await, None);
    assert_eq!(store.inspect(&mine.name).await.unwrap().holders.len(), 1);
    assert_eq!(alive.release(&mine.name, mine.id, Leave::Open).await.unwrap(), Release::Released);
}
