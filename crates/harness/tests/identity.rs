//! A Redis server that is started again, or becomes a replica, under leases whose renewal is not due for long.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{Event, Lease, LeaseState, Leasehold, LostReason, Observer};
use leasehold_core::Clock;
use leasehold_harness::servers::redis::{Redis, ask};
use leasehold_harness::servers::{NoServer, Server};

/// A third of this is longer than these tests take.
const TTL: Duration = Duration::from_secs(600);
/// What comes without a renewal that is due has come by then.
const SOON: Duration = Duration::from_secs(20);

#[derive(Debug, Default)]
struct Log(Mutex<Vec<&'static str>>);

impl Observer for Log {
    fn on(&self, event: &Event) {
        let word = match event {
            Event::Endangered { .. } => "endangered",
            Event::Renewed { .. } => "renewed",
            Event::Lost { .. } => "lost",
            _ => return,
        };
        self.0.lock().unwrap().push(word);
    }
}

impl Log {
    async fn until(&self, word: &str) -> Vec<&'static str> {
        let clock = Clock::system();
        let end = clock.now().after(SOON);
        loop {
            let mut said = self.0.lock().unwrap().clone();
            // A doubt that comes up while it is being asked has it asked once more.
            said.dedup();
            if said.contains(&word) {
                return said;
            }
            assert!(clock.now() < end, "{word} is not among {said:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn held(redis: Redis) -> Option<(Server, Arc<Log>, Lease)> {
    let server = match redis.start() {
        Ok(server) => server,
        Err(NoServer::Missing(tool)) => {
            eprintln!("skipped: there is no {tool} here");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let log = Arc::new(Log::default());
    let url = format!("redis://{}", server.address());
    let client = Leasehold::builder().observer(log.clone()).connect(&url).await.unwrap();
    let lease = client.lock("x").ttl(TTL).acquire().await.unwrap();
    Some((server, log, lease))
}

#[tokio::test]
async fn a_server_that_comes_back_without_data_is_a_loss_that_is_told_at_once() {
    let Some((mut server, log, lease)) = held(Redis::default()).await else { return };
    server.kill();
    server.go_on().unwrap();
    let lost = tokio::time::timeout(SOON, lease.lost()).await.unwrap();
    assert_eq!(lost.reason, LostReason::StoreForgot);
    assert_eq!(log.until("lost").await, ["endangered", "lost"]);
}

#[tokio::test]
async fn a_server_that_comes_back_with_its_data_endangers_what_is_held_until_it_has_said_so() {
    let durable = Redis::default().line("appendonly yes").line("appendfsync always");
    let Some((mut server, log, lease)) = held(durable).await else { return };
    server.kill();
    server.go_on().unwrap();
    assert_eq!(log.until("renewed").await, ["endangered", "renewed"]);
    assert_eq!(lease.state(), LeaseState::Held);
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_broken_connection_to_the_same_server_is_renewed_over_a_new_one_and_endangers_nothing() {
    let Some((server, log, lease)) = held(Redis::default()).await else { return };
    ask(&server, &["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    assert_eq!(log.until("renewed").await, ["renewed"]);
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_master_that_is_demoted_endangers_what_is_held_until_it_is_one_again() {
    let Some((server, log, lease)) = held(Redis::default()).await else { return };
    // As Sentinel does it.
    assert_eq!(ask(&server, &["REPLICAOF", "127.0.0.1", "1"]).unwrap(), "+OK\r\n");
    ask(&server, &["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    assert_eq!(log.until("endangered").await, ["endangered"]);
    lease.check().unwrap();
    assert_eq!(ask(&server, &["REPLICAOF", "NO", "ONE"]).unwrap(), "+OK\r\n");
    assert_eq!(log.until("renewed").await, ["endangered", "renewed"]);
    assert_eq!(lease.state(), LeaseState::Held);
    lease.release().await.unwrap();
}
