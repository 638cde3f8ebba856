//! What a user of a cluster needs, and what it is told that lacks some of it.

use leasehold_core::{Check, Health};

use crate::support::ways::{CLUSTER_RIGHTS, LEAST_RIGHTS};
use crate::*;

fn with(rights: &str) -> Shape {
    let mut shape = bare();
    shape.redis = shape.redis.line(format!("user {} {rights}", *LEAST_RIGHTS));
    shape
}

fn locks(cluster: &Cluster) -> RedisStore {
    let url = cluster.url("").replace("://", "://locks:password@");
    RedisStore::open(&url.parse().unwrap()).unwrap()
}

async fn check(store: &RedisStore, name: &str) -> Check {
    let checks = store.doctor().unwrap().checkup().await;
    checks.into_iter().find(|check| check.name == name).unwrap()
}

#[tokio::test]
async fn the_least_rights_of_a_cluster_suffice() {
    let cluster = cluster!(with(&CLUSTER_RIGHTS));
    let (one, two) = (locks(&cluster), locks(&cluster));
    let (holder, waiter) = (claim("least"), Claim { turn: Turn::Fifo, ..claim("least") });
    let token = granted(&one, &holder).await;
    let standing = two.claim(&waiter).await.unwrap();
    let (slot, from, to) = place(&cluster, "least");
    let under_way = cluster.begin(slot, to).unwrap();
    under_way.key("lock:least").unwrap();
    is_kept(&one, &holder, token).await;
    under_way.all().unwrap();
    under_way.finish().unwrap();
    tokio::time::timeout(Duration::from_secs(1), two.changed(&waiter.name, &standing.cursor))
        .await
        .unwrap()
        .unwrap();
    two.claim(&waiter).await.unwrap();
    end(&one, &holder).await;
    granted(&two, &waiter).await;
    assert_eq!(one.list("", None).await.unwrap().len(), 1);
    for node in [from, to] {
        assert_eq!(say(&cluster, node, &["ACL", "LOG"]).lines().next(), Some("*0"), "nothing was refused");
    }
    for name in ["rights", "slots"] {
        let check = check(&one, name).await;
        assert_eq!(check.health, Health::Ok, "{check:?}");
    }
    let greeting = one.doctor().unwrap().greet().await.unwrap();
    assert!(greeting.contains("a cluster of 3 masters"), "{greeting}");
}

#[tokio::test]
async fn rights_that_are_missing_are_told() {
    let cluster = cluster!(with("+cluster|slots"));
    let store = locks(&cluster);
    granted(&store, &claim("few")).await;
    let check = check(&store, "rights").await;
    assert_eq!(check.health, Health::Failed);
    for right in ["SPUBLISH", "SSUBSCRIBE", "ASKING"] {
        assert!(check.says.contains(right), "{check:?}");
    }
    let fix = check.fix.unwrap();
    assert!(fix.contains(&*CLUSTER_RIGHTS), "{fix}");
}

#[tokio::test]
async fn who_may_not_ask_where_slots_are_is_told_so() {
    let cluster = cluster!(with(""));
    let error = locks(&cluster).claim(&claim("none")).await.unwrap_err();
    assert!(!error.outcome_unknown() && !error.is_retryable(), "{error:?}");
    assert!(error.help().unwrap().contains("docs/design/redis.md"), "{error:?}");
}
