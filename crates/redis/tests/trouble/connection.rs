//! Connections that are killed, and servers that are silent, gone, or forgot their scripts.

use std::time::Duration;

use leasehold_core::{Code, Release, State, Store};
use leasehold_redis::RedisStore;
use rustix::process::Signal;

use crate::*;

#[tokio::test]
async fn a_server_that_forgot_its_scripts_is_told_them_again() {
    let server = server!();
    let store = store(&server, "");
    for _ in 0..2 {
        let claim = claim("scripts");
        let token = granted(&store, &claim).await;
        let _: () = say(&server, &["SCRIPT", "FLUSH"]);
        is_kept(&store, &claim, token).await;
        let _: () = say(&server, &["SCRIPT", "FLUSH"]);
        assert_eq!(end(&store, &claim).await, Release::Released);
    }
}

#[tokio::test]
async fn a_killed_connection_loses_no_lease() {
    let server = server!();
    let store = store(&server, "");
    let claim = claim("killed");
    let token = granted(&store, &claim).await;
    let _: i64 = say(&server, &["CLIENT", "KILL", "TYPE", "normal"]);
    // Whether the first request after it was executed is not known; the next one is answered.
    if let Err(error) = renew(&store, &claim, token).await {
        assert!(error.is_retryable(), "{error}");
    }
    is_kept(&store, &claim, token).await;
    assert_eq!(end(&store, &claim).await, Release::Released);
}

#[tokio::test]
async fn a_killed_subscription_ends_the_waits_and_is_made_anew() {
    let server = server!();
    let (one, two) = (store(&server, ""), store(&server, ""));
    let (holder, waiter) = (claim("pushed"), claim("pushed"));
    granted(&one, &holder).await;
    let standing = two.claim(&waiter).await.unwrap();
    let _: i64 = say(&server, &["CLIENT", "KILL", "TYPE", "pubsub"]);
    let ended = two.changed(&waiter.name, &standing.cursor);
    tokio::time::timeout(Duration::from_secs(5), ended).await.unwrap().unwrap();
    let standing = two.claim(&waiter).await.unwrap();
    assert!(matches!(standing.state, State::Waiting { .. }));
    let woken = two.changed(&waiter.name, &standing.cursor);
    let release = async { assert_eq!(end(&one, &holder).await, Release::Released) };
    let (woken, ()) =
        tokio::time::timeout(Duration::from_secs(5), async { tokio::join!(woken, release) }).await.unwrap();
    woken.unwrap();
    granted(&two, &waiter).await;
}

#[tokio::test]
async fn a_silent_server_is_an_error_within_the_deadline_and_answers_again_after_it() {
    let server = server!();
    let store = store(&server, "?timeout=200ms");
    let claim = claim("frozen");
    let token = granted(&store, &claim).await;
    server.signal(Signal::STOP);
    for _ in 0..3 {
        let error = renew(&store, &claim, token).await.unwrap_err();
        assert_eq!(error.code(), Code::UNREACHABLE, "{error}");
        assert!(error.is_retryable() && error.help().is_some() || error.outcome_unknown(), "{error}");
    }
    server.signal(Signal::CONT);
    is_kept(&store, &claim, token).await;
}

#[tokio::test]
async fn nobody_there_is_an_error_without_effect() {
    let server = server!();
    let url = server.url();
    drop(server);
    let store = RedisStore::open(&url.parse().unwrap()).unwrap();
    let error = store.claim(&claim("nobody")).await.unwrap_err();
    assert_eq!((error.code(), error.outcome_unknown()), (Code::UNREACHABLE, false), "{error}");
    assert!(error.to_string().contains("redis+unix:") && error.help().is_some(), "{error}");
}
