//! Three sentinels over a master and its replicas, all real: what becomes of leases when another server takes over.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{Clock, Event, LeaseState, Leasehold, Observer, Token};
use leasehold_harness::servers::NoServer;
use leasehold_harness::servers::sentinel::{Shape, Watched};
use rustix::process::Signal;

/// Longer than any failover here takes.
const TTL: Duration = Duration::from_secs(20);
/// Whatever is to happen has happened by then.
const PATIENCE: Duration = Duration::from_secs(30);

/// `None` where there is no server, which is said.
fn watched() -> Option<Watched> {
    match Watched::start(&Shape::default()) {
        Ok(watched) => Some(watched),
        Err(NoServer::Missing(tool)) => {
            eprintln!("skipped: there is no {tool} here");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

async fn connect(watched: &Watched, more: &str) -> Leasehold {
    Leasehold::builder().timeout(Duration::from_secs(1)).connect(&watched.url(more)).await.unwrap()
}

/// What became of the leases of one client.
#[derive(Debug, Default)]
struct Seen(Mutex<Vec<&'static str>>);

impl Observer for Seen {
    fn on(&self, event: &Event) {
        let what = match event {
            Event::Endangered { .. } => "endangered",
            Event::Renewed { .. } => "renewed",
            Event::Lost { .. } => "lost",
            _ => return,
        };
        self.0.lock().unwrap().push(what);
    }
}

impl Seen {
    async fn client(watched: &Watched, more: &str) -> (Leasehold, Arc<Self>) {
        let seen = Arc::new(Self::default());
        let builder = Leasehold::builder().timeout(Duration::from_secs(1)).observer(seen.clone());
        (builder.connect(&watched.url(more)).await.unwrap(), seen)
    }

    /// Returns once the holders were warned, and what followed is this.
    async fn ends_with(&self, last: &str) {
        until("endangered, and then it is known", || {
            let seen = self.0.lock().unwrap();
            seen.contains(&"endangered") && seen.last() == Some(&last)
        })
        .await;
    }
}

/// Returns once it holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let clock = Clock::system();
    let end = clock.now().after(PATIENCE);
    while !holds() {
        assert!(clock.now() < end, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn token(client: &Leasehold, name: &str) -> Token {
    let lease = client.lock(name).ttl(TTL).acquire_within(PATIENCE).await.unwrap();
    let token = lease.token();
    lease.release().await.unwrap();
    token
}

#[tokio::test]
async fn a_lease_that_the_new_master_has_is_kept_and_excludes_others_there() {
    let Some(watched) = watched() else { return };
    let (other, (holder, seen)) = (connect(&watched, "").await, Seen::client(&watched, "").await);
    let lease = holder.lock("x").ttl(TTL).acquire_within(PATIENCE).await.unwrap();
    until("both replicas have it", || watched.has(1, "lock:x") && watched.has(2, "lock:x")).await;
    watched.servers[0].signal(Signal::STOP).unwrap();
    let new = watched.master_after(0).unwrap();
    // It is asked for there at once.
    seen.ends_with("renewed").await;
    assert_eq!(lease.state(), LeaseState::Held);
    assert!(other.lock("x").ttl(TTL).try_acquire().await.unwrap().is_none());
    watched.servers[0].signal(Signal::CONT).unwrap();
    let held = lease.token();
    lease.release().await.unwrap();
    assert!(!watched.has(new, "lock:x"), "it is given back where it is");
    assert!(token(&other, "x").await > held);
}
