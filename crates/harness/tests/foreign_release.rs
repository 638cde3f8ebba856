//! How late it is noticed that a client of another kind has given back what we wait for.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::time::Duration;

use leasehold::{Clock, Leasehold};
use leasehold_harness::servers::redis::{Redis, ask, socket};
use leasehold_harness::servers::{NoServer, Server};

/// The promise for every server.
const LOOKED_FOR: Duration = Duration::from_secs(1);
/// Half of the time after which we look again anyway.
const HEARD: Duration = Duration::from_millis(330);
/// A machine that starves the observer makes things look late, but not so often in a row.
const TRIES: u32 = 5;

fn start(events: &str) -> Option<Server> {
    match Redis::default().line(format!("notify-keyspace-events \"{events}\"")).start() {
        Ok(server) => Some(server),
        Err(NoServer::Missing(tool)) => {
            eprintln!("skipped: there is no {tool} here");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// From the end of a foreign lock to the lease of who has waited for it: the best of some tries.
async fn best_of(server: &Server, enough: Duration) -> Duration {
    let clock = Clock::system();
    let client = Leasehold::connect(&format!("redis+unix://{}", socket(server).display())).await.unwrap();
    let mut best = Duration::MAX;
    for _ in 0..TRIES {
        ask(server, &["SET", "lock:job", "their-secret"]).unwrap();
        let lock = client.lock("job");
        let waiter = tokio::spawn(async move { lock.acquire_within(Duration::from_secs(60)).await });
        while client.inspect("job").await.unwrap().waiters.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Somewhere between two looks, and past the first.
        tokio::time::sleep(Duration::from_millis(700)).await;
        let ended = clock.now();
        ask(server, &["DEL", "lock:job"]).unwrap();
        let lease = waiter.await.unwrap().unwrap();
        best = best.min(clock.now().since(ended));
        lease.release().await.unwrap();
        if best < enough {
            break;
        }
    }
    client.close().await.unwrap();
    best
}

#[tokio::test]
async fn it_is_noticed_within_a_second_and_at_once_where_the_server_tells() {
    for (events, bound) in [("", LOOKED_FOR), ("Kgx", HEARD)] {
        let Some(server) = start(events) else { return };
        let took = best_of(&server, bound).await;
        assert!(took < bound, "events {events:?}: noticed after {took:?}");
        println!("events {events:?}: noticed after {took:?}");
    }
}
