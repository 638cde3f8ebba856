//! Who waits for a lock of a cluster is told where its slot is, also while that changes.

use crate::*;

/// Longer than anything here takes, and longer than a place lives without being refreshed: what is told comes at once.
const SOON: Duration = Duration::from_secs(10);
/// Sooner than anybody looks who is not told.
const AT_ONCE: Duration = Duration::from_millis(700);

/// How often clients of this server called these commands, in scripts too.
fn counts(cluster: &Cluster, node: usize, commands: &[&str]) -> Vec<u64> {
    let told = say(cluster, node, &["INFO", "commandstats"]);
    let calls = |command: &&str| {
        let line = told.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
    };
    commands.iter().map(calls).collect()
}

async fn waiting(store: &RedisStore, claim: &Claim) -> Cursor {
    let standing = store.claim(claim).await.unwrap();
    assert!(matches!(standing.state, State::Waiting { .. }), "{}: {:?}", claim.name, standing.state);
    standing.cursor
}

async fn changed(store: &RedisStore, claim: &Claim, cursor: &Cursor, within: Duration) {
    tokio::time::timeout(within, store.changed(&claim.name, cursor)).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_lock_costs_two_scripts_and_a_hand_over_one_push_more() {
    let cluster = cluster!(bare());
    let (one, two) = (store(&cluster, ""), store(&cluster, ""));
    let (_, node, _) = place(&cluster, "counted");
    // What is done once: scripts are told, channels are subscribed to.
    let (first, second) = (claim("counted"), claim("counted"));
    granted(&one, &first).await;
    waiting(&two, &second).await;
    end(&two, &second).await;
    end(&one, &first).await;
    let commands = ["eval", "evalsha", "ssubscribe", "spublish", "publish", "cluster|slots"];
    let mut before = counts(&cluster, node, &commands);
    let mut since = || {
        let now = counts(&cluster, node, &commands);
        let since: Vec<u64> = now.iter().zip(&before).map(|(now, before)| now - before).collect();
        before = now;
        since
    };
    let first = claim("counted");
    granted(&one, &first).await;
    end(&one, &first).await;
    assert_eq!(since(), [0, 2, 0, 0, 0, 0]);
    let (first, second) = (claim("counted"), claim("counted"));
    granted(&one, &first).await;
    let cursor = waiting(&two, &second).await;
    since();
    end(&one, &first).await;
    changed(&two, &second, &cursor, SOON).await;
    granted(&two, &second).await;
    assert_eq!(since(), [0, 2, 0, 1, 0, 0]);
}

#[tokio::test]
async fn who_waits_is_told_at_once_also_after_the_slot_went_elsewhere() {
    let cluster = cluster!(bare());
    let (one, two) = (store(&cluster, ""), store(&cluster, ""));
    let (holder, waiter) = (claim("told"), Claim { turn: Turn::Fifo, ..claim("told") });
    let token = granted(&one, &holder).await;
    let cursor = waiting(&two, &waiter).await;
    let (slot, _, to) = place(&cluster, "told");
    cluster.move_slot(slot, to).unwrap();
    // What it listened to is gone with the slot, so the wait ends, and it stands where it stood.
    changed(&two, &waiter, &cursor, AT_ONCE).await;
    let cursor = waiting(&two, &waiter).await;
    assert_eq!(two.inspect(&waiter.name).await.unwrap().waiters.len(), 1);
    is_kept(&one, &holder, token).await;
    end(&one, &holder).await;
    changed(&two, &waiter, &cursor, AT_ONCE).await;
    assert!(granted(&two, &waiter).await > token);
    assert_eq!(counts(&cluster, to, &["spublish"]), [1]);
}

#[tokio::test]
async fn nobody_is_passed_because_the_slot_went_elsewhere() {
    let cluster = cluster!(bare());
    let stores = [store(&cluster, ""), store(&cluster, ""), store(&cluster, "")];
    let claims = [(); 3].map(|()| Claim { turn: Turn::Fifo, ..claim("order") });
    granted(&stores[0], &claims[0]).await;
    for at in [1, 2] {
        waiting(&stores[at], &claims[at]).await;
    }
    let (slot, _, to) = place(&cluster, "order");
    cluster.move_slot(slot, to).unwrap();
    // In the other order, as it may happen.
    for at in [2, 1] {
        waiting(&stores[at], &claims[at]).await;
    }
    end(&stores[0], &claims[0]).await;
    waiting(&stores[2], &claims[2]).await;
    granted(&stores[1], &claims[1]).await;
}

#[tokio::test]
async fn without_channels_of_slots_everybody_is_told_and_no_place_is_skipped() {
    let mut shape = bare();
    shape.redis = shape.redis.line("user default on nopass ~* &* +@all -ssubscribe");
    let cluster = cluster!(shape);
    let (one, two) = (store(&cluster, ""), store(&cluster, ""));
    let (holder, waiter) = (claim("all"), Claim { turn: Turn::Fifo, ..claim("all") });
    granted(&one, &holder).await;
    let cursor = waiting(&two, &waiter).await;
    end(&one, &holder).await;
    changed(&two, &waiter, &cursor, AT_ONCE).await;
    granted(&two, &waiter).await;
    let (slot, from, to) = place(&cluster, "all");
    assert_eq!(counts(&cluster, from, &["publish", "spublish"]), [1, 0]);
    // Where the slot is now nobody listens; the push is heard all the same, and the place is kept.
    let next = Claim { turn: Turn::Fifo, ..claim("all") };
    let cursor = waiting(&one, &next).await;
    cluster.move_slot(slot, to).unwrap();
    end(&two, &waiter).await;
    assert_eq!(counts(&cluster, to, &["publish"]), [1]);
    assert_eq!(one.inspect(&next.name).await.unwrap().waiters.len(), 1);
    changed(&one, &next, &cursor, AT_ONCE).await;
    granted(&one, &next).await;
}

#[tokio::test]
async fn the_end_of_a_foreign_lock_is_heard_where_its_slot_is() {
    let mut shape = bare();
    shape.redis = shape.redis.line("notify-keyspace-events Kgx");
    let cluster = cluster!(shape);
    let store = store(&cluster, "");
    let (_, node, _) = place(&cluster, "foreign");
    assert!(say(&cluster, node, &["SET", "lock:foreign", "theirs", "PX", "60000"]).starts_with("+OK"));
    let waiter = claim("foreign");
    let mut cursor = waiting(&store, &waiter).await;
    // Once it listens it looks again, since the end may have come before.
    changed(&store, &waiter, &cursor, AT_ONCE).await;
    cursor = waiting(&store, &waiter).await;
    say(&cluster, node, &["DEL", "lock:foreign"]);
    changed(&store, &waiter, &cursor, AT_ONCE / 2).await;
    granted(&store, &waiter).await;
}
