//! Replicas: of a master that wants some, and in its place.

use leasehold_core::{Code, Release, Store};
use rustix::process::Signal;

use crate::*;

#[tokio::test]
async fn a_replica_is_refused_with_its_own_words() {
    let server = server!();
    let store = store(&server, "?timeout=500ms");
    let claim = claim("replica");
    let token = granted(&store, &claim).await;
    // Demoted while we hold: nothing there can be trusted any more.
    let _: () = say(&server, &["REPLICAOF", "127.0.0.1", "1"]);
    for _ in 0..2 {
        let error = renew(&store, &claim, token).await.unwrap_err();
        assert!(error.to_string().contains("replica"), "{error}");
        assert!(error.help().unwrap().contains("sentinel"), "{error}");
    }
    let _: () = say(&server, &["REPLICAOF", "NO", "ONE"]);
    is_kept(&store, &claim, token).await;
}

#[tokio::test]
async fn too_few_replicas_are_no_grant() {
    let server = server!();
    let store = store(&server, "?min_replicas=1&timeout=400ms");
    let claim = attempt(claim("alone"));
    let error = store.claim(&claim).await.unwrap_err();
    assert!(error.to_string().contains("fewer than 1 replicas"), "{error}");
    assert_eq!(say::<i64>(&server, &["EXISTS", "lock:alone"]), 0, "it was given back");
}

/// Whether the replica has what is written now. `online` it is before that, and once it has answered for the copy that
/// it got first it may be silent for another second: so it is asked twice.
fn has_caught_up(master: &Server) -> bool {
    let mut connection = master.connect();
    let mut has = || {
        redis::cmd("SET").arg("now").arg("1").exec(&mut connection).unwrap();
        redis::cmd("WAIT").arg(1).arg(100).query::<i64>(&mut connection).unwrap() == 1
    };
    has() && has()
}

/// A master that listens at a port, and a replica of it that has all it has.
async fn with_replica() -> Option<(Server, Server)> {
    if let Some(why) = missing() {
        eprintln!("skipped: {why}");
        return None;
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let master = Server::start(&["--port", &port, "--repl-diskless-sync-delay", "0"]).unwrap();
    let replica = Server::start(&["--replicaof", "127.0.0.1", &port]).unwrap();
    until("the replica has caught up", || has_caught_up(&master)).await;
    Some((master, replica))
}

#[tokio::test]
async fn what_a_replica_must_have_counts_only_once_it_has_it() {
    let Some((master, replica)) = with_replica().await else { return };
    // So long that a replica which lives answers in half of it, whatever else the machine does.
    let store = store(&master, "?min_replicas=1&timeout=3s");
    let held = claim("held");
    let token = granted(&store, &held).await;
    is_kept(&store, &held, token).await;
    replica.signal(Signal::STOP);
    // What is renewed may be lost with the master: that is no renewal, and no loss.
    let error = renew(&store, &held, token).await.unwrap_err();
    assert!(error.to_string().contains("fewer than 1 replicas") && error.outcome_unknown(), "{error}");
    let error = store.claim(&attempt(claim("new"))).await.unwrap_err();
    assert!(error.to_string().contains("fewer than 1 replicas"), "{error}");
    assert!(error.help().unwrap().contains("INFO replication"), "{error}");
    assert_eq!(say::<i64>(&master, &["EXISTS", "lock:new"]), 0, "it was given back");
    replica.signal(Signal::CONT);
    until("the replica has caught up", || has_caught_up(&master)).await;
    is_kept(&store, &held, token).await;
    granted(&store, &attempt(claim("new"))).await;
    assert_eq!(end(&store, &held).await, Release::Released);
}

#[tokio::test]
async fn a_replica_in_good_health_is_refused_at_connect() {
    let Some((_master, replica)) = with_replica().await else { return };
    let error = store(&replica, "").claim(&claim("x")).await.unwrap_err();
    assert_eq!((error.code(), error.outcome_unknown()), (Code::UNREACHABLE, false), "{error}");
    assert!(error.to_string().contains("a replica of") && error.help().is_some(), "{error}");
}
