//! What the random programs do not call, on each store, between two clients: several names, elections, hand-overs,
//! names that stay shut, and two stores at once. The engine's own tests go into all of it on the store in memory.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::any::Any;
use std::time::Duration;

use leasehold::{Clock, Error, LeaseTicket, Leasehold, OnceOutcome, Queueing};
use leasehold_harness::servers::NoServer;
use leasehold_harness::servers::cluster::{Cluster, Shape};
use leasehold_harness::servers::etcd::{Etcd, url as etcd_url};
use leasehold_harness::servers::nodes::Nodes;
use leasehold_harness::servers::redis::{Redis, socket_url};

const TTL: Duration = Duration::from_secs(1);

/// A store, by its URL; it ends when this is dropped.
struct Place {
    url: String,
    _kept: Box<dyn Any>,
}

impl Place {
    async fn client(&self) -> Leasehold {
        Leasehold::connect(&self.url).await.unwrap()
    }

    async fn two(&self) -> (Leasehold, Leasehold) {
        (self.client().await, self.client().await)
    }
}

fn sqlite() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    Place { url, _kept: Box::new(folder) }
}

fn redis() -> Option<Place> {
    match Redis::default().start() {
        Ok(server) => Some(Place { url: socket_url(&server), _kept: Box::new(server) }),
        Err(NoServer::Missing(tool)) => {
            eprintln!("skipped: there is no {tool} here");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn etcd() -> Option<Place> {
    match Etcd::default().start() {
        Ok(server) => Some(Place { url: etcd_url(&server), _kept: Box::new(server) }),
        Err(NoServer::Missing(tool)) => {
            eprintln!("skipped: there is no {tool} here");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Names as these tests choose them are in several slots.
fn cluster() -> Option<Place> {
    match Cluster::start(&Shape { replicas: 0, ..Shape::default() }) {
        Ok(cluster) => Some(Place { url: cluster.url(""), _kept: Box::new(cluster) }),
        Err(NoServer::Missing(tool)) => {
            eprintln!("skipped: there is no {tool} here");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn quorum() -> Option<Place> {
    match Nodes::start(5, &Redis::default()) {
        Ok(nodes) => Some(Place { url: nodes.url("?restart_delay=0s"), _kept: Box::new(nodes) }),
        Err(NoServer::Missing(tool)) => {
            eprintln!("skipped: there is no {tool} here");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The stores that there are: a store joins by one line.
fn every_store() -> impl Iterator<Item = Place> {
    every_single_store().chain(quorum())
}

/// Those that keep a line, shares and marks: a quorum says that it does not.
fn every_single_store() -> impl Iterator<Item = Place> {
    [Some(sqlite()), redis(), cluster(), etcd()].into_iter().flatten()
}

/// Waits until it is so, for at most 20 ttl.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let clock = Clock::system();
    let deadline = clock.now().after(TTL * 20);
    while !is_so().await {
        assert!(clock.now() < deadline, "not within 20 ttl: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn waits(client: &Leasehold, name: &str) {
    until("it stands in line", async || client.inspect(name).await.unwrap().waiters.len() == 1).await;
}

#[tokio::test]
async fn several_names_are_taken_all_or_none() {
    for place in every_store() {
        let (one, two) = place.two().await;
        let set = one.lock_all(["a", "b", "c"]).ttl(TTL).acquire().await.unwrap();
        assert_eq!(set.tokens().count(), 3);
        assert!(two.lock_all(["b", "d"]).try_acquire().await.unwrap().is_none(), "{}", place.url);
        let free = two.lock("d").try_acquire().await.unwrap().expect("none of them was taken");
        free.release().await.unwrap();
        let other = two.clone();
        let other = tokio::spawn(async move { other.lock_all(["c", "d"]).acquire().await });
        tokio::time::sleep(TTL * 2).await;
        set.check().expect("all are renewed");
        assert!(!other.is_finished());
        set.release().await.unwrap();
        other.await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn one_leads_after_the_other_and_whoever_watches_knows() {
    for place in every_store() {
        let (one, two) = place.two().await;
        let term = one.election("leader").ttl(TTL).campaign().await.unwrap();
        let mut watch = place.client().await.election("leader").watch();
        until("it is seen to lead", async || {
            watch.latest().is_some_and(|leader| leader.token == term.token())
        })
        .await;
        let second = two.election("leader").ttl(TTL);
        let campaign = tokio::spawn(async move { second.campaign().await });
        if one.capabilities().queueing != Queueing::Never {
            waits(&one, "leader").await;
        }
        let first = term.token();
        term.resign().await.unwrap();
        let term = campaign.await.unwrap().unwrap();
        assert!(term.token() > first, "{}", place.url);
        while watch.latest().map(|leader| leader.token) != Some(term.token()) {
            watch.changed().await.unwrap();
        }
        term.resign().await.unwrap();
    }
}

#[tokio::test]
async fn a_lease_goes_to_another_owner_and_is_never_free() {
    for place in every_single_store() {
        let (giver, taker) = place.two().await;
        if !giver.capabilities().succession {
            continue;
        }
        let lease = giver.lock("moving").ttl(TTL).note("to the other").acquire().await.unwrap();
        let old = lease.token();
        let given = lease.hand_over().await.unwrap();
        // It waits to be taken for longer than it lives, and nobody gets in.
        tokio::time::sleep(TTL * 2).await;
        assert!(taker.lock("moving").try_acquire().await.unwrap().is_none(), "{}", place.url);
        let ticket = LeaseTicket::from_bytes(&given.ticket().to_bytes()).unwrap();
        let lease = taker.take_over(ticket.clone()).await.unwrap();
        assert!(lease.check().unwrap() > old);
        given.taken().await.unwrap();
        assert!(matches!(giver.take_over(ticket).await, Err(Error::Lost(_))), "a ticket is good for once");
        lease.release().await.unwrap();
        giver.lock("moving").try_acquire().await.unwrap().expect("it is free").release().await.unwrap();
    }
}

#[tokio::test]
async fn a_reader_becomes_the_writer_when_the_others_are_gone() {
    for place in every_single_store() {
        let (one, two) = place.two().await;
        if !one.capabilities().reshaping {
            // It says so before anything is changed.
            let mut writer = one.rwlock("book").write().ttl(TTL).acquire().await.unwrap();
            assert!(matches!(writer.downgrade().await, Err(Error::Unsupported(_))), "{}", place.url);
            assert!(
                two.rwlock("book").read().try_acquire().await.unwrap().is_none(),
                "it is the writer still"
            );
            writer.release().await.unwrap();
            continue;
        }
        let reader = two.rwlock("book").read().ttl(TTL).acquire().await.unwrap();
        let mut writer = one.rwlock("book").upgradeable().ttl(TTL).acquire().await.unwrap();
        assert!(writer.try_upgrade().await.unwrap().is_none(), "somebody reads: {}", place.url);
        let old = writer.token();
        let upgrade = tokio::spawn(async move { (writer.upgrade().await, writer) });
        until("no more readers are let in", async || {
            match two.rwlock("book").read().try_acquire().await.unwrap() {
                Some(reader) => {
                    reader.release().await.unwrap();
                    false
                }
                None => true,
            }
        })
        .await;
        reader.release().await.unwrap();
        let (upgraded, mut writer) = upgrade.await.unwrap();
        assert!(upgraded.unwrap() > old);
        assert!(two.rwlock("book").read().try_acquire().await.unwrap().is_none());
        writer.downgrade().await.unwrap();
        two.rwlock("book")
            .read()
            .try_acquire()
            .await
            .unwrap()
            .expect("a reader again")
            .release()
            .await
            .unwrap();
        writer.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_name_stays_shut_for_at_least_as_long_as_it_was_to() {
    for place in every_store() {
        let (one, two) = place.two().await;
        if !one.capabilities().aftermath {
            continue;
        }
        let least = TTL * 2;
        let start = one.clock().now();
        one.lock("task").ttl(TTL).at_least(least).acquire().await.unwrap().release().await.unwrap();
        assert!(two.lock("task").try_acquire().await.unwrap().is_none());
        assert!(two.inspect("task").await.unwrap().closed.is_some(), "{}", place.url);
        two.lock("task").acquire_within(TTL * 20).await.unwrap().release().await.unwrap();
        assert!(one.clock().now().since(start) >= least, "not before its time: {}", place.url);
    }
}

#[tokio::test]
async fn what_is_done_once_is_told_to_whoever_comes_later() {
    for place in every_single_store() {
        let (one, two) = place.two().await;
        let ran = one.once("report").run(async |_| Ok::<_, ()>(17)).await.unwrap();
        assert!(matches!(ran, OnceOutcome::Ran(Ok(17))));
        let again =
            two.once("report").run(async |_| -> Result<(), ()> { panic!("it is done") }).await.unwrap();
        let OnceOutcome::AlreadyDone { by, .. } = again else { panic!("it is done: {}", place.url) };
        assert_eq!(by, one.owner().id());
    }
}

#[tokio::test]
async fn a_lock_of_two_stores_excludes_those_who_know_one_of_them() {
    let (old, Some(new)) = (sqlite(), redis()) else { return };
    let ((old_one, old_two), (new_one, new_two)) = (old.two().await, new.two().await);
    let both = old_one.lock("x").ttl(TTL).and(new_one.lock("x").ttl(TTL));
    let pair = both.acquire().await.unwrap();
    assert!(old_two.lock("x").try_acquire().await.unwrap().is_none());
    assert!(new_two.lock("x").try_acquire().await.unwrap().is_none());
    tokio::time::sleep(TTL * 2).await;
    pair.check().expect("both are renewed");
    pair.release().await.unwrap();
    let lease = new_two.lock("x").try_acquire().await.unwrap().expect("it is free");
    assert!(both.try_acquire().await.unwrap().is_none());
    old_two.lock("x").try_acquire().await.unwrap().expect("none was taken").release().await.unwrap();
    lease.release().await.unwrap();
}
