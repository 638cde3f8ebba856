//! What an administrator or a restart takes away is lost, and what a dropped future leaves is not left.

use std::time::Duration;

use leasehold_core::{Leave, Release, Store};

use crate::*;

#[tokio::test]
async fn a_lease_that_is_gone_is_lost_at_the_next_renewal_and_tokens_rise() {
    let mut server = server!();
    let store = store(&server, "?timeout=300ms");
    let mut last = None;
    for trouble in ["FLUSHALL", "DEL", "restart", "SWAPDB"] {
        let (plain, reader) = (claim("plain"), shared("reader"));
        let tokens = [granted(&store, &plain).await, granted(&store, &reader).await];
        assert!(Some(tokens[0]) > last && tokens[1] > tokens[0], "{trouble}: {tokens:?} after {last:?}");
        last = Some(tokens[1]);
        match trouble {
            "DEL" => assert_eq!(say::<i64>(&server, &["DEL", "lock:plain", "lock:reader"]), 2),
            "restart" => server.restart(),
            "SWAPDB" => say(&server, &["SWAPDB", "0", "1"]),
            _ => say(&server, &[trouble]),
        }
        if trouble == "restart" {
            // The old connection is told that it is dead by the first who uses it.
            drop(store.inspect(&plain.name).await);
        }
        is_lost(&store, &plain, tokens[0]).await;
        is_lost(&store, &reader, tokens[1]).await;
        assert_eq!(end(&store, &plain).await, Release::NotHeld);
        end(&store, &reader).await;
        if trouble == "SWAPDB" {
            let _: () = say(&server, &["FLUSHALL"]);
        }
    }
}

#[tokio::test]
async fn a_reader_whose_mark_was_taken_has_lost_though_others_read_on() {
    let server = server!();
    let store = store(&server, "");
    let (first, second) = (shared("marked"), shared("marked"));
    let tokens = [granted(&store, &first).await, granted(&store, &second).await];
    assert_eq!(say::<i64>(&server, &["DEL", "lock:marked"]), 1);
    assert_eq!(say::<String>(&server, &["SET", "lock:marked", "theirs", "NX"]), "OK");
    // What was lost is never put back, and holds nobody up for longer than it would have.
    waits(&store, &attempt(shared("marked"))).await;
    is_lost(&store, &first, tokens[0]).await;
    assert_eq!(say::<i64>(&server, &["DEL", "lock:marked"]), 1);
    waits(&store, &attempt(shared("marked"))).await;
    is_lost(&store, &second, tokens[1]).await;
    granted(&store, &attempt(claim("marked"))).await;
}

#[tokio::test]
async fn ten_thousand_acquires_that_were_dropped_leave_nothing() {
    let server = server!();
    let store = store(&server, "");
    let mut dice = fastrand::Rng::with_seed(1);
    let holder = claim("dropped");
    granted(&store, &holder).await;
    let mut ids = Vec::new();
    for at in 0..10_000 {
        let name = ["dropped", "free"][at % 2];
        let claim = if dice.bool() { claim(name) } else { shared(name) };
        let dropped = tokio::time::timeout(Duration::from_micros(dice.u64(..300)), store.claim(&claim)).await;
        drop(dropped);
        ids.push(claim);
        // As the janitor of the engine does it.
        if ids.len() == 50 {
            for claim in ids.drain(..) {
                store.release(&claim.name, claim.id, Leave::Open).await.unwrap();
            }
        }
    }
    assert_eq!(end(&store, &holder).await, Release::Released);
    for text in ["dropped", "free"] {
        let snapshot = store.inspect(&name(text)).await.unwrap();
        assert!(snapshot.holders.is_empty() && snapshot.waiters.is_empty(), "{snapshot:?}");
        granted(&store, &attempt(claim(text))).await;
    }
    let keys: Vec<String> = say(&server, &["KEYS", "*"]);
    let left: Vec<_> = keys.iter().filter(|key| !key.contains(":x:") && !key.contains("tokens")).collect();
    assert_eq!(left.len(), 2, "only the last two leases are left: {left:?}");
}
