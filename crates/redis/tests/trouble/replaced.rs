//! Another process in the server's place, or the same one as a replica: it is noticed, and told as a doubt.

use std::time::Duration;

use leasehold_core::{Doubt, Store};

use crate::*;

/// Longer than anything here takes: what comes without a request comes at once.
const SOON: Duration = Duration::from_secs(10);

async fn doubt(store: &RedisStore) -> Doubt {
    tokio::time::timeout(SOON, store.doubt()).await.unwrap()
}

/// Nothing more is doubted, also when there was time to.
async fn is_sure(store: &RedisStore) {
    store.inspect(&name("sure")).await.unwrap();
    let doubt = tokio::time::timeout(Duration::from_millis(50), store.doubt()).await;
    assert!(doubt.is_err(), "{doubt:?}");
}

#[tokio::test]
async fn a_server_that_was_started_again_is_noticed_without_a_request_and_known_by_the_next() {
    let mut server = server!();
    let store = store(&server, "");
    granted(&store, &claim("x")).await;
    is_sure(&store).await;
    server.restart();
    assert_eq!(doubt(&store).await, Doubt::Cut);
    granted(&store, &claim("y")).await;
    assert_eq!(doubt(&store).await, Doubt::Replaced);
    is_sure(&store).await;
}

#[tokio::test]
async fn a_killed_connection_to_the_same_server_is_a_cut_and_no_more() {
    let server = server!();
    let store = store(&server, "");
    granted(&store, &claim("x")).await;
    let _: i64 = say(&server, &["CLIENT", "KILL", "TYPE", "normal"]);
    assert_eq!(doubt(&store).await, Doubt::Cut);
    is_sure(&store).await;
}

#[tokio::test]
async fn a_connection_that_we_gave_up_ourselves_is_no_news() {
    let server = server!();
    let store = store(&server, "");
    granted(&store, &claim("x")).await;
    store.close().await.unwrap();
    is_sure(&store).await;
}

#[tokio::test]
async fn a_master_that_became_a_replica_is_noticed_by_what_it_refuses() {
    let server = server!();
    let store = store(&server, "?timeout=500ms");
    let claim = claim("x");
    let token = granted(&store, &claim).await;
    let _: () = say(&server, &["REPLICAOF", "127.0.0.1", "1"]);
    renew(&store, &claim, token).await.unwrap_err();
    assert_eq!(doubt(&store).await, Doubt::Replaced);
    // Also where its connections were cut, as Sentinel does it.
    renew(&store, &claim, token).await.unwrap_err();
    assert_eq!(doubt(&store).await, Doubt::Replaced);
    let _: () = say(&server, &["REPLICAOF", "NO", "ONE"]);
    is_kept(&store, &claim, token).await;
    is_sure(&store).await;
}

#[tokio::test]
async fn a_server_that_was_just_started_grants_nothing_until_what_it_forgot_has_run_out() {
    let mut server = server!();
    let delayed = store(&server, "?restart_delay=1s");
    let (first, second) = (claim("x"), claim("x"));
    // Also for whoever did not see it start.
    let waits = async |claim: &Claim| {
        let clock = leasehold_core::Clock::system();
        let started = clock.now();
        loop {
            match delayed.claim(claim).await {
                Ok(_) => return clock.now().since(started),
                Err(error) => {
                    assert!(error.is_retryable() && !error.outcome_unknown(), "{error}");
                    assert!(
                        error.to_string().contains("restart_delay=1s") && error.help().is_some(),
                        "{error}"
                    );
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    waits(&first).await;
    let token = granted(&delayed, &first).await;
    server.restart();
    // The old connection ends with the old server.
    drop(delayed.inspect(&first.name).await);
    // What is held is asked for and given back all the same.
    is_lost(&delayed, &first, token).await;
    assert_eq!(end(&delayed, &first).await, Release::NotHeld);
    assert!(delayed.claim_all(&[claim("y"), claim("z")]).await.is_err());
    let waited = waits(&second).await;
    assert!(waited > Duration::from_millis(900), "granted after {waited:?}");
    // Who does not ask for it does not wait.
    server.restart();
    granted(&store(&server, ""), &claim("z")).await;
}
