//! What a server refuses, and why: each refusal has its own words, harms nothing, and is over when its reason is.

use leasehold_core::{Code, Error, Store};

use crate::*;

/// It was not done, it may be tried again, and these words say why and what to do.
fn says(error: &Error, why: &str, help: &str) {
    assert_eq!((error.code(), error.outcome_unknown()), (Code::UNREACHABLE, false), "{error}");
    assert!(error.is_retryable(), "{error}");
    assert!(error.to_string().contains(why), "{error}");
    assert!(error.help().unwrap().contains(help), "{error}: {:?}", error.help());
}

/// A renewal and a new claim are refused with these words, over a connection that is there and over a new one.
async fn all_refuse(server: &Server, held: (&RedisStore, &Claim, Token), why: &str, help: &str) {
    let (store, claim, token) = held;
    says(&renew(store, claim, token).await.unwrap_err(), why, help);
    says(&store.claim(&attempt(crate::claim("new"))).await.unwrap_err(), why, help);
    let fresh = crate::store(server, "");
    says(&fresh.claim(&attempt(crate::claim("new"))).await.unwrap_err(), why, help);
}

#[tokio::test]
async fn a_server_that_is_loading_is_waited_for() {
    // Each key takes a while, and requests are looked at after each.
    let server = server!("--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024");
    let mut server = server;
    let store = store(&server, "");
    let claim = claim("loading");
    let token = granted(&store, &claim).await;
    let ballast = "x".repeat(2000);
    for number in 0..100 {
        let _: () = say(&server, &["SET", &format!("ballast{number}"), &ballast]);
    }
    let _: () = say(&server, &["SAVE"]);
    server.restart();
    // The old connection ends with the old server.
    drop(store.inspect(&claim.name).await);
    says(&renew(&store, &claim, token).await.unwrap_err(), "still loading its data", "once that is done");
    until("it has loaded its data", || info(&server, "persistence").contains("\nloading:0")).await;
    is_kept(&store, &claim, token).await;
}

#[tokio::test]
async fn a_server_that_is_busy_with_a_script_says_what_ends_it() {
    let server = server!("--lua-time-limit", "20");
    let store = store(&server, "");
    let claim = claim("busy");
    let token = granted(&store, &claim).await;
    let mut other = server.connect();
    let script =
        std::thread::spawn(move || redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut other));
    let busy = || redis::cmd("PING").exec(&mut server.connect()).is_err();
    until("it says that it is busy", busy).await;
    all_refuse(&server, (&store, &claim, token), "a script of somebody", "SCRIPT KILL").await;
    let _: () = say(&server, &["SCRIPT", "KILL"]);
    assert!(script.join().unwrap().is_err());
    is_kept(&store, &claim, token).await;
}

#[tokio::test]
async fn a_server_that_cannot_save_renews_nothing_until_it_can() {
    let server = server!("--save", "3600 1");
    let store = store(&server, "");
    let claim = claim("unsaved");
    let token = granted(&store, &claim).await;
    // Where its file belongs there is a directory.
    let obstacle = server.home().join("dump.rdb");
    std::fs::create_dir(&obstacle).unwrap();
    let saved =
        |status: &str| info(&server, "persistence").contains(&format!("rdb_last_bgsave_status:{status}"));
    let _: String = say(&server, &["BGSAVE"]);
    until("it could not be saved", || saved("err")).await;
    says(&renew(&store, &claim, token).await.unwrap_err(), "cannot save its data", "BGSAVE");
    let error = store.claim(&attempt(crate::claim("new"))).await.unwrap_err();
    says(&error, "cannot save its data", "BGSAVE");
    // Looking is no writing.
    assert_eq!(store.inspect(&claim.name).await.unwrap().holders.len(), 1);
    std::fs::remove_dir(&obstacle).unwrap();
    let _: String = say(&server, &["BGSAVE"]);
    until("it could be saved", || saved("ok")).await;
    is_kept(&store, &claim, token).await;
}

#[tokio::test]
async fn a_replica_that_lost_its_master_says_so() {
    let server = server!("--replica-serve-stale-data", "no");
    let store = store(&server, "?timeout=500ms");
    let claim = claim("orphan");
    let token = granted(&store, &claim).await;
    let _: () = say(&server, &["REPLICAOF", "127.0.0.1", "1"]);
    says(&renew(&store, &claim, token).await.unwrap_err(), "a replica that has lost its master", "sentinel");
    says(&renew(&store, &claim, token).await.unwrap_err(), "a replica of", "sentinel");
    let _: () = say(&server, &["REPLICAOF", "NO", "ONE"]);
    is_kept(&store, &claim, token).await;
}

#[tokio::test]
async fn a_master_without_the_replicas_that_it_wants_says_so() {
    let server = server!();
    let store = store(&server, "");
    let claim = claim("alone");
    let token = granted(&store, &claim).await;
    let _: () = say(&server, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
    says(&renew(&store, &claim, token).await.unwrap_err(), "too few replicas", "INFO replication");
    let _: () = say(&server, &["CONFIG", "SET", "min-replicas-to-write", "0"]);
    is_kept(&store, &claim, token).await;
}
