//! How often somebody asks: twice for each tenure, however many wait; and nobody is woken before its turn.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_core::{Aftermath, Claim, ClaimId, Leave, LockName, Note, Owner, Share, State, Store, Turn};
use leasehold_harness::servers::zookeeper::{ZooKeeper, ask, url};
use leasehold_harness::servers::{NoServer, Server};
use leasehold_zookeeper::ZooKeeperStore;

const WAITERS: usize = 32;

fn claim(share: Share) -> Claim {
    Claim {
        name: LockName::parse("counted").unwrap(),
        id: ClaimId::random().unwrap(),
        owner: Owner::default(),
        share,
        reshape: 0,
        turn: Turn::Any,
        ttl: Duration::from_secs(30),
        note: Note::NONE,
        anchored: false,
        aftermath: Aftermath::NONE,
        succeeds: None,
        tokens: 1,
        seen: None,
        proposed: None,
        not_after: None,
    }
}

async fn tenure(store: &ZooKeeperStore, share: Share, asked: &AtomicUsize) {
    let claim = claim(share);
    loop {
        asked.fetch_add(1, Ordering::Relaxed);
        let standing = store.claim(&claim).await.unwrap();
        match standing.state {
            State::Granted(_) => break,
            State::Waiting { .. } => store.changed(&claim.name, &standing.cursor).await.unwrap(),
            other => panic!("{other:?}"),
        }
    }
    store.release(&claim.name, claim.id, Leave::Open).await.unwrap();
}

/// How many requests the server has had.
fn received(server: &Server) -> usize {
    let told = ask(server, "srvr").unwrap();
    told.lines().find_map(|line| line.strip_prefix("Received: ")).unwrap().parse().unwrap()
}

/// So many requests may come with a tenure: with a herd there are fifty.
const REQUESTS: usize = 20;

async fn two_for_each(share: Share, no_herd: bool) {
    let server = match ZooKeeper::default().line("maxSessionTimeout=60000").start() {
        Ok(server) => server,
        Err(NoServer::Missing(tool)) => return eprintln!("skipped: there is no {tool} here"),
        Err(error) => panic!("{error}"),
    };
    let stores: Vec<_> =
        (0..2).map(|_| ZooKeeperStore::open(&url(&server).parse().unwrap()).unwrap()).collect();
    let held = claim(Share::EXCLUSIVE);
    assert!(matches!(stores[0].claim(&held).await.unwrap().state, State::Granted(_)));
    let asked = AtomicUsize::default();
    let line = (0..WAITERS).map(|number| tenure(&stores[number % 2], share, &asked));
    let ends = async {
        // All of them stand in line.
        loop {
            let waiters = stores[0].inspect(&held.name).await.unwrap().waiters.len();
            if waiters == WAITERS {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let before = received(&server);
        stores[1].release(&held.name, held.id, Leave::Open).await.unwrap();
        before
    };
    let (_, before) = tokio::join!(futures_util::future::join_all(line), ends);
    let asked = asked.into_inner();
    println!("{asked} claims for {WAITERS} tenures of {share}");
    assert!(asked <= 2 * WAITERS, "{asked} claims for {WAITERS} tenures of {share}");
    let requests = received(&server) - before;
    println!("{requests} requests");
    assert!(
        !no_herd || requests <= REQUESTS * WAITERS,
        "{requests} requests for {WAITERS} tenures of {share}"
    );
}

#[tokio::test]
async fn whoever_waits_for_a_mutex_asks_twice() {
    two_for_each(Share::EXCLUSIVE, true).await;
}

#[tokio::test]
async fn whoever_waits_for_a_permit_asks_twice() {
    two_for_each(Share::permits(1, 3).unwrap(), false).await;
}
