//! What goes wrong beside the contract: nodes that are deleted by hand, answers that are lost, sessions that run out behind a
//! cut, servers that are cut off from the others.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::net::SocketAddr;
use std::time::Duration;

use leasehold_core::{
    Claim, ClaimId, Clock, Cursor, Doubt, Leave, LockName, Note, Owner, Release, Renew, Renewal, Share,
    State, Store, Tenure, Token, Turn,
};
use leasehold_harness::proxy::{Mode, Proxy};
use leasehold_harness::servers::zookeeper::{Ensemble, ZooKeeper, url};
use leasehold_harness::servers::{NoServer, Server};
use leasehold_zookeeper::ZooKeeperStore;
use rustix::process::Signal;
use zookeeper_client::Client;

/// What should happen has happened by then, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(20);

fn there<T>(started: Result<T, NoServer>) -> Option<T> {
    match started {
        Ok(server) => Some(server),
        Err(NoServer::Missing(tool)) => {
            eprintln!("skipped: there is no {tool} here");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn usual() -> ZooKeeper {
    ZooKeeper::default().line("maxSessionTimeout=60000")
}

fn open(url: &str) -> ZooKeeperStore {
    ZooKeeperStore::open(&url.parse().unwrap()).unwrap()
}

fn at(address: SocketAddr) -> String {
    format!("zookeeper://{address}")
}

fn claim(name: &str) -> Claim {
    Claim {
        name: LockName::parse(name).unwrap(),
        id: ClaimId::random().unwrap(),
        owner: Owner::default(),
        share: Share::EXCLUSIVE,
        reshape: 0,
        turn: Turn::Any,
        ttl: Duration::from_secs(30),
        note: Note::NONE,
        anchored: false,
        aftermath: leasehold_core::Aftermath::NONE,
        succeeds: None,
        tokens: 1,
        seen: None,
        proposed: None,
        not_after: None,
    }
}

async fn granted(store: &ZooKeeperStore, claim: &Claim) -> Token {
    match store.claim(claim).await.unwrap().state {
        State::Granted(grant) => grant.token,
        other => panic!("{other:?}"),
    }
}

async fn waits(store: &ZooKeeperStore, claim: &Claim) -> Cursor {
    let standing = store.claim(claim).await.unwrap();
    assert!(matches!(standing.state, State::Waiting { .. }), "{standing:?}");
    standing.cursor
}

async fn renewed(store: &ZooKeeperStore, claim: &Claim, token: Token) -> leasehold_core::Result<Renewal> {
    let tenure = Tenure { count: 1, token, note: Note::NONE };
    store.renew(&[Renew { claim: std::sync::Arc::new(claim.clone()), tenure }]).await.pop().unwrap()
}

async fn end(store: &ZooKeeperStore, claim: &Claim) -> Release {
    store.release(&claim.name, claim.id, Leave::Open).await.unwrap()
}

async fn soon<T>(what: &str, happens: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, happens).await.unwrap_or_else(|_| panic!("in vain: {what}"))
}

/// The nodes in a line, as another client sees them.
async fn nodes(client: &Client, name: &str) -> Vec<String> {
    client.list_children(&format!("/leasehold/{name}")).await.unwrap_or_default()
}

#[tokio::test]
async fn a_lease_whose_node_is_deleted_by_hand_is_lost() {
    let Some(server) = there(usual().start()) else { return };
    let store = open(&url(&server));
    let held = claim("job");
    let token = granted(&store, &held).await;
    let standing = store.claim(&held).await.unwrap();
    assert!(matches!(renewed(&store, &held, token).await.unwrap(), Renewal::Kept { .. }));
    let client = Client::connect(&server.address().to_string()).await.unwrap();
    let [node] = &nodes(&client, "job").await[..] else { panic!("one node") };
    client.delete(&format!("/leasehold/job/{node}"), None).await.unwrap();
    soon("the end is heard", store.changed(&held.name, &standing.cursor)).await.unwrap();
    assert!(matches!(renewed(&store, &held, token).await.unwrap(), Renewal::Lost));
    assert_eq!(store.claim(&held).await.unwrap().state, State::Spent);
    assert!(nodes(&client, "job").await.is_empty(), "a renewal creates nothing");
}

#[tokio::test]
async fn a_node_whose_answer_was_lost_is_found_and_is_the_only_one() {
    let Some(server) = there(usual().start()) else { return };
    let proxy = Proxy::start(server.address(), 1).unwrap();
    let store = open(&at(proxy.address()));
    // The session is there, and the directory.
    let first = claim("job");
    granted(&store, &first).await;
    end(&store, &first).await;
    let client = Client::connect(&server.address().to_string()).await.unwrap();
    let held = claim("job");
    proxy.eat_next_replies(1);
    let error = store.claim(&held).await.unwrap_err();
    assert!(error.outcome_unknown(), "{error}");
    let token = soon("it is granted", async {
        loop {
            match store.claim(&held).await {
                Ok(standing) => match standing.state {
                    State::Granted(grant) => break grant.token,
                    other => panic!("{other:?}"),
                },
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        }
    })
    .await;
    assert!(proxy.counts().eaten >= 1);
    assert_eq!(nodes(&client, "job").await.len(), 1);
    assert!(matches!(renewed(&store, &held, token).await.unwrap(), Renewal::Kept { .. }));
    assert_eq!(end(&store, &held).await, Release::Released);
    assert!(nodes(&client, "job").await.is_empty());
}

#[tokio::test]
async fn what_was_given_up_after_a_lost_answer_leaves_no_node() {
    let Some(server) = there(usual().start()) else { return };
    let proxy = Proxy::start(server.address(), 1).unwrap();
    let store = open(&at(proxy.address()));
    let first = claim("job");
    granted(&store, &first).await;
    end(&store, &first).await;
    let held = claim("job");
    proxy.eat_next_replies(1);
    store.claim(&held).await.unwrap_err();
    soon("it is given up", async {
        while let Err(error) = store.release(&held.name, held.id, Leave::Open).await {
            assert!(error.is_retryable(), "{error}");
        }
    })
    .await;
    let client = Client::connect(&server.address().to_string()).await.unwrap();
    assert!(nodes(&client, "job").await.is_empty());
    assert_eq!(store.claim(&held).await.unwrap().state, State::Spent);
}

#[tokio::test]
async fn a_place_that_another_session_left_is_never_taken_over() {
    let Some(server) = there(usual().start()) else { return };
    let (store, other) = (open(&url(&server)), open(&url(&server)));
    let held = claim("job");
    let token = granted(&store, &held).await;
    // Whoever knows the id sees that it holds, and may count on nothing.
    let State::Granted(grant) = other.claim(&held).await.unwrap().state else { panic!("it holds") };
    assert_eq!((grant.token, grant.ttl), (token, Duration::ZERO));
    assert!(matches!(renewed(&store, &held, token).await.unwrap(), Renewal::Kept { .. }));
}

#[tokio::test]
async fn who_renews_what_another_session_carries_takes_it_over_in_one_step() {
    let Some(server) = there(usual().start()) else { return };
    let (store, other) = (open(&url(&server)), open(&url(&server)));
    let (held, waiter) = (claim("job"), claim("job"));
    let token = granted(&store, &held).await;
    let cursor = waits(&store, &waiter).await;
    let client = Client::connect(&server.address().to_string()).await.unwrap();
    for renews in [&other, &store, &other, &other] {
        let Renewal::Kept { ttl, .. } = renewed(renews, &held, token).await.unwrap() else { panic!("kept") };
        assert!(!ttl.is_zero());
        // In the same place, under the same token, and once.
        assert_eq!(nodes(&client, "job").await.len(), 2);
        let seen = store.inspect(&held.name).await.unwrap();
        assert_eq!((seen.holders[0].id, seen.holders[0].token), (held.id, Some(token)));
        assert_eq!(seen.waiters[0].id, waiter.id);
    }
    // A token that it never had prolongs nothing, and takes nothing away.
    let higher = Token::new(token.get() + 1).unwrap();
    assert!(matches!(renewed(&store, &held, higher).await.unwrap(), Renewal::Lost));
    assert!(matches!(renewed(&other, &held, token).await.unwrap(), Renewal::Kept { .. }));
    assert_eq!(end(&other, &held).await, Release::Released);
    soon("its turn", store.changed(&waiter.name, &cursor)).await.unwrap();
    assert!(granted(&store, &waiter).await > token);
}

#[tokio::test]
async fn a_claim_that_comes_after_its_release_is_never_granted() {
    let Some(server) = there(usual().start()) else { return };
    let (store, other) = (open(&url(&server)), open(&url(&server)));
    let late = claim("job");
    assert_eq!(end(&other, &late).await, Release::NotHeld);
    assert_eq!(store.claim(&late).await.unwrap().state, State::Spent);
    granted(&store, &claim("job")).await;
}

#[tokio::test]
async fn a_session_that_runs_out_behind_a_cut_loses_all_its_leases_and_says_so_before() {
    let Some(server) = there(usual().start()) else { return };
    let proxy = Proxy::start(server.address(), 1).unwrap();
    let (store, other) = (open(&at(proxy.address())), open(&url(&server)));
    let clock = Clock::system();
    let held = ["a", "b"].map(|name| Claim { ttl: Duration::from_secs(2), ..claim(name) });
    let mut tokens = Vec::new();
    for claim in &held {
        tokens.push(granted(&store, claim).await);
    }
    let mut waiting = Vec::new();
    for claim in &held {
        let waiter = Claim { id: ClaimId::random().unwrap(), ..claim.clone() };
        waiting.push((waits(&other, &waiter).await, waiter));
    }
    let mut ends = Vec::new();
    for (claim, token) in held.iter().zip(&tokens) {
        let asked = clock.now();
        let Renewal::Kept { ttl, .. } = renewed(&store, claim, *token).await.unwrap() else { panic!("kept") };
        ends.push(asked.after(ttl));
    }
    proxy.set(Mode::Refuse);
    let cut = clock.now();
    let told = async {
        assert_eq!(soon("the cut is told", store.doubt()).await, Doubt::Replaced);
        println!("told after {:?}", clock.now().since(cut));
        assert!(ends.iter().all(|end| clock.now() < *end), "holders are warned in time");
    };
    let goes_on = ends.iter().zip(&waiting).map(async |(end, (cursor, waiter))| {
        soon("the others go on", other.changed(&waiter.name, cursor)).await.unwrap();
        assert!(clock.now() >= *end, "the holder knew before");
        granted(&other, waiter).await;
    });
    tokio::join!(told, futures_util::future::join_all(goes_on));
    proxy.set(Mode::Pass);
    for (claim, token) in held.iter().zip(tokens) {
        soon("it is lost", async {
            while !matches!(renewed(&store, claim, token).await, Ok(Renewal::Lost)) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        assert_eq!(store.claim(claim).await.unwrap().state, State::Spent);
    }
}

#[tokio::test]
async fn what_nobody_asks_for_any_more_ends_although_the_session_lives_on() {
    let Some(server) = there(usual().start()) else { return };
    let (store, other) = (open(&url(&server)), open(&url(&server)));
    let brief = || Claim { ttl: Duration::from_secs(2), ..claim("job") };
    let (held, left, kept) = (brief(), brief(), brief());
    granted(&store, &held).await;
    waits(&store, &left).await;
    let cursor = waits(&other, &kept).await;
    soon("the place lapses, and the lease", other.changed(&kept.name, &cursor)).await.unwrap();
    let token = granted(&other, &kept).await;
    assert!(matches!(renewed(&other, &kept, token).await.unwrap(), Renewal::Kept { .. }));
    assert_eq!(store.claim(&held).await.unwrap().state, State::Spent);
}

#[tokio::test]
async fn a_server_that_refuses_is_not_besieged() {
    let Some(server) = there(usual().start()) else { return };
    let proxy = Proxy::start(server.address(), 1).unwrap();
    let store = open(&at(proxy.address()));
    let held = Claim { ttl: Duration::from_secs(2), ..claim("job") };
    granted(&store, &held).await;
    // It closes each connection as soon as it is spoken to.
    proxy.set(Mode::EatRequests);
    let before = proxy.counts().connections;
    soon("the cut is told", store.doubt()).await;
    let until = Clock::system().now().after(Duration::from_secs(1));
    while Clock::system().now() < until {
        drop(store.claim(&claim("job")).await);
    }
    let tries = proxy.counts().connections - before;
    println!("{tries} connections");
    assert!(tries <= 200, "{tries} connections in a second");
}

/// A member that follows, and signals to all others.
struct Lonely {
    three: Ensemble,
    follower: usize,
}

impl Lonely {
    fn start() -> Option<Self> {
        let three = there(Ensemble::start(3, &usual()))?;
        three.settled().unwrap();
        let follower = three.followers().unwrap()[0];
        Some(Self { three, follower })
    }

    fn others(&self, signal: Signal) {
        for (member, server) in self.three.servers.iter().enumerate() {
            if member != self.follower {
                server.signal(signal).unwrap();
            }
        }
    }

    /// Stops the others, and returns once all their threads stand still: that is a moment after they were told to. The
    /// member that is left notices two seconds later, and hangs up; what it answers before then is what matters.
    fn cut_off(&self) {
        self.others(Signal::STOP);
        let until = Clock::system().now().after(PATIENCE);
        let stopped = |server: &Server| {
            let pid = server.pid().unwrap().as_raw_nonzero();
            let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
            let mut stats =
                threads.map(|one| std::fs::read_to_string(one.unwrap().path().join("stat")).unwrap());
            stats.all(|stat| stat.contains(") T "))
        };
        let mut others = self.three.servers.iter().enumerate().filter(|(member, _)| *member != self.follower);
        while !others.clone().all(|(_, server)| stopped(server)) {
            assert!(Clock::system().now() < until, "{:?} goes on", others.next());
        }
    }

    fn url(&self) -> String {
        at(self.three.servers[self.follower].address())
    }
}

#[tokio::test]
async fn a_member_that_is_cut_off_prolongs_nothing() {
    let Some(lonely) = Lonely::start() else { return };
    let store = open(&lonely.url());
    let held = claim("job");
    let token = granted(&store, &held).await;
    assert!(matches!(renewed(&store, &held, token).await.unwrap(), Renewal::Kept { .. }));
    // It still answers whoever only reads.
    lonely.cut_off();
    let error = renewed(&store, &held, token).await.unwrap_err();
    assert!(error.outcome_unknown(), "{error}");
    lonely.others(Signal::CONT);
}

#[tokio::test]
async fn a_member_that_is_cut_off_grants_nothing() {
    let Some(lonely) = Lonely::start() else { return };
    let leader = lonely.three.leader().unwrap();
    let (store, other) = (open(&lonely.url()), open(&at(lonely.three.servers[leader].address())));
    let (held, waiter) = (claim("job"), claim("job"));
    granted(&other, &held).await;
    let cursor = waits(&store, &waiter).await;
    assert_eq!(end(&other, &held).await, Release::Released);
    // It has heard of that.
    soon("its turn", store.changed(&waiter.name, &cursor)).await.unwrap();
    lonely.cut_off();
    let error = store.claim(&waiter).await.unwrap_err();
    assert!(error.outcome_unknown(), "{error}");
    lonely.others(Signal::CONT);
}
