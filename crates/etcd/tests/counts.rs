//! How often somebody asks: twice for each tenure, however many wait.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_core::{
    Aftermath, Claim, ClaimId, Leave, LockName, Note, Owner, PLACE_LIFE, Share, State, Store, Turn,
};
use leasehold_etcd::EtcdStore;
use leasehold_harness::servers::NoServer;
use leasehold_harness::servers::etcd::{Etcd, url};

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

/// How often claims were stated, beside those that only refresh a place.
#[derive(Debug, Default)]
struct Asked(AtomicUsize);

async fn tenure(store: &EtcdStore, share: Share, asked: &Asked) {
    let claim = claim(share);
    let mut refreshes = false;
    loop {
        if !refreshes {
            asked.0.fetch_add(1, Ordering::Relaxed);
        }
        let standing = store.claim(&claim).await.unwrap();
        match standing.state {
            State::Granted(_) => break,
            State::Waiting { .. } => {
                let waits = store.changed(&claim.name, &standing.cursor);
                // As the engine does: on a busy machine the line is longer than the life of a place.
                let heard = tokio::time::timeout(PLACE_LIFE / 3, waits).await;
                refreshes = heard.map(Result::unwrap).is_err();
            }
            other => panic!("{other:?}"),
        }
    }
    store.release(&claim.name, claim.id, Leave::Open).await.unwrap();
}

async fn two_for_each(share: Share) {
    let server = match Etcd::default().start() {
        Ok(server) => server,
        Err(NoServer::Missing(tool)) => return eprintln!("skipped: there is no {tool} here"),
        Err(error) => panic!("{error}"),
    };
    let stores: Vec<_> = (0..2).map(|_| EtcdStore::open(&url(&server).parse().unwrap()).unwrap()).collect();
    let held = claim(Share::EXCLUSIVE);
    assert!(matches!(stores[0].claim(&held).await.unwrap().state, State::Granted(_)));
    let asked = Asked::default();
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
        stores[1].release(&held.name, held.id, Leave::Open).await.unwrap();
    };
    tokio::join!(futures_util::future::join_all(line), ends);
    let asked = asked.0.into_inner();
    println!("{asked} claims for {WAITERS} tenures of {share}");
    // Those whose place lapsed on a busy machine ask once more.
    assert!(asked <= 2 * WAITERS + WAITERS / 8, "{asked} claims for {WAITERS} tenures of {share}");
}

#[tokio::test]
async fn whoever_waits_for_a_mutex_asks_twice() {
    two_for_each(Share::EXCLUSIVE).await;
}

#[tokio::test]
async fn whoever_waits_for_a_permit_asks_twice() {
    two_for_each(Share::permits(1, 3).unwrap()).await;
}
