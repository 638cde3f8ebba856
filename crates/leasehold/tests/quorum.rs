//! A quorum of stores: what holds when its nodes die, forget, or answer late.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::Duration;

use leasehold::sim::{Mishap, Wire};
use leasehold::{
    Clock, Code, Error, LeaseState, Leasehold, LockName, MemoryStore, Op, Owner, Quorum, Store, Token,
};
use leasehold_core::{Aftermath, Claim, ClaimId, Note, Share, State, Turn};

const TTL: Duration = Duration::from_secs(3);
const NODE_TIMEOUT: Duration = Duration::from_millis(300);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Five nodes, each behind a wire of its own for each client.
struct Nodes(Vec<MemoryStore>);

/// A client of the five, and its wires to them.
struct Host {
    client: Leasehold,
    quorum: Arc<Quorum>,
    wires: Vec<Arc<Wire>>,
}

impl Nodes {
    fn new() -> Self {
        Self((0..5).map(|_| MemoryStore::new()).collect())
    }

    fn host(&self) -> Host {
        let wires: Vec<_> =
            self.0.iter().map(|node| Arc::new(Wire::around(Arc::new(node.clone())))).collect();
        let nodes = wires.iter().map(|wire| wire.clone() as Arc<dyn Store>).collect();
        let quorum = Arc::new(Quorum::builder(nodes).node_timeout(NODE_TIMEOUT).build().unwrap());
        Host { client: Leasehold::builder().timeout(ms(2000)).store(quorum.clone()), quorum, wires }
    }

    /// How many nodes have something of a name.
    async fn having(&self, name: &str) -> usize {
        let name = leasehold::LockName::parse(name).unwrap();
        let mut having = 0;
        for node in &self.0 {
            having += usize::from(!node.inspect(&name).await.unwrap().holders.is_empty());
        }
        having
    }
}

impl Host {
    fn cut(&self, nodes: impl IntoIterator<Item = usize>) {
        nodes.into_iter().for_each(|node| self.wires[node].cut());
    }

    async fn token(&self, name: &str) -> Token {
        let lease = self.client.lock(name).ttl(TTL).acquire_within(TTL * 5).await.unwrap();
        let token = lease.token();
        lease.release().await.unwrap();
        token
    }
}

/// Returns once it holds.
async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let clock = Clock::system();
    let start = clock.now();
    while !holds().await {
        assert!(clock.now().since(start) < TTL * 5, "in vain: {what}");
        tokio::time::sleep(ms(5)).await;
    }
}

#[test]
fn two_or_four_nodes_make_no_quorum() {
    for count in [0, 1, 2, 4, 6] {
        let nodes = (0..count).map(|_| Arc::new(MemoryStore::new()) as Arc<dyn Store>).collect();
        let error = Quorum::new(nodes).unwrap_err();
        assert!(error.to_string().contains(&format!("{count} nodes")) && error.help().is_some(), "{error}");
    }
}

#[tokio::test]
async fn two_dead_nodes_of_five_are_no_loss() {
    let (nodes, first) = (Nodes::new(), Token::new(1).unwrap());
    let host = nodes.host();
    let mut last = first;
    for dead in [0..0, 0..1, 0..2] {
        host.cut(dead);
        let token = host.token("x").await;
        assert!(token > last, "{token:?} after {last:?}");
        last = token;
    }
}

#[tokio::test]
async fn three_dead_nodes_are_named_within_the_deadline() {
    let nodes = Nodes::new();
    let host = nodes.host();
    host.cut(0..3);
    let clock = Clock::system();
    let start = clock.now();
    let error = host.client.lock("x").ttl(TTL).acquire_within(TTL * 5).await.unwrap_err();
    assert!(clock.now().since(start) < TTL * 5, "within the deadline: {error}");
    assert_eq!(error.code(), Code::QUORUM, "{error}");
    assert!(error.to_string().contains("2 of 5 nodes answered, 3 are needed"), "{error}");
    // What the two had granted is given back.
    until("nothing is left", async || nodes.having("x").await == 0).await;
}

#[tokio::test]
async fn a_claim_that_is_not_won_is_given_back_by_the_quorum_itself() {
    let nodes = Nodes::new();
    let host = nodes.host();
    host.cut(0..3);
    let claim = Claim {
        name: leasehold::LockName::parse("x").unwrap(),
        id: ClaimId::random().unwrap(),
        owner: Owner::default(),
        share: Share::EXCLUSIVE,
        reshape: 0,
        turn: Turn::Now,
        // Longer than anybody waits below: it is not its end that clears the nodes.
        ttl: TTL * 20,
        note: Note::NONE,
        anchored: false,
        aftermath: Aftermath::NONE,
        succeeds: None,
        tokens: 1,
        seen: None,
        proposed: None,
        not_after: None,
    };
    assert!(host.quorum.claim(&claim).await.is_err());
    until("nothing is left", async || nodes.having("x").await == 0).await;
}

#[tokio::test]
async fn who_has_a_majority_keeps_all_others_out() {
    let nodes = Nodes::new();
    let (one, two) = (nodes.host(), nodes.host());
    let lease = one.client.lock("x").ttl(TTL).acquire().await.unwrap();
    let Err(Error::Busy(busy)) = two.client.lock("x").attempt().await else { panic!("it is held") };
    assert_eq!(busy.holder.unwrap().token, lease.token());
    // Also where the other one does not reach those that granted it.
    two.cut(0..2);
    assert!(two.client.lock("x").ttl(TTL).try_acquire().await.unwrap().is_none());
    let token = lease.token();
    lease.release().await.unwrap();
    let next = two.client.lock("x").ttl(TTL).acquire_within(TTL * 5).await.unwrap();
    assert!(next.token() > token);
}

#[tokio::test]
async fn a_lease_is_kept_while_a_majority_answers_and_lost_when_none_does() {
    let nodes = Nodes::new();
    let host = nodes.host();
    let lease = host.client.lock("x").ttl(TTL).acquire().await.unwrap();
    host.cut(0..2);
    tokio::time::sleep(TTL * 2).await;
    assert_eq!(lease.state(), LeaseState::Held, "three of five renew it");
    host.cut(2..3);
    let lost = tokio::time::timeout(TTL * 3, lease.lost()).await.expect("it is told");
    assert!(lease.check().is_err(), "{lost:?}");
}

#[tokio::test]
async fn lost_replies_of_a_majority_leave_nothing_behind() {
    let nodes = Nodes::new();
    let host = nodes.host();
    for wire in &host.wires[..3] {
        wire.next(Op::Claim, Mishap::ReplyLost, 1);
    }
    // Asked again, or under another id: it gets in, and nothing of the first is in its way.
    let token = host.token("x").await;
    assert!(host.token("x").await > token);
    until("nothing is left", async || nodes.having("x").await == 0).await;
}

#[tokio::test]
async fn a_node_that_forgot_is_mended_by_the_holder_so_that_two_restarts_far_apart_lose_nothing() {
    let nodes = Nodes::new();
    let (host, other) = (nodes.host(), nodes.host());
    let lease = host.client.lock("x").ttl(TTL).acquire().await.unwrap();
    until("all have it", async || nodes.having("x").await == 5).await;
    for forgets in 0..4 {
        nodes.0[forgets].forget(Duration::MAX);
        until("it has it again", async || nodes.having("x").await == 5).await;
        assert!(other.client.lock("x").ttl(TTL).try_acquire().await.unwrap().is_none());
    }
    assert_eq!(lease.state(), LeaseState::Held);
    let token = lease.token();
    lease.release().await.unwrap();
    assert!(other.token("x").await > token);
}

#[tokio::test]
async fn a_node_whose_clock_jumped_has_no_say() {
    let clocks: Vec<Clock> = (0..3).map(|_| Clock::system()).collect();
    let stores: Vec<_> = clocks.iter().map(|clock| MemoryStore::with_clock(clock.clone())).collect();
    let nodes = || stores.iter().map(|node| Arc::new(node.clone()) as Arc<dyn Store>).collect();
    let quorum = Quorum::builder(nodes()).longest_ttl(TTL).build().unwrap();
    let client = Leasehold::builder().timeout(ms(2000)).store(Arc::new(quorum));
    let lock = client.lock("x").ttl(TTL);
    lock.acquire().await.unwrap().release().await.unwrap();
    clocks[0].step_wall(90_000_000);
    // Two others are a majority.
    lock.acquire().await.unwrap().release().await.unwrap();
    clocks[1].step_wall(-90_000_000);
    let error = lock.attempt().await.unwrap_err();
    assert!(error.to_string().contains("its clock jumped"), "{error}");
    // For the longest ttl; after that all leases that it may have ended early are over.
    lock.acquire_within(TTL * 3).await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_hold_one_after_the_other_with_rising_tokens() {
    let nodes = Nodes::new();
    let held = Arc::new(std::sync::Mutex::new(None::<Token>));
    let mut tasks = Vec::new();
    for number in 0..8 {
        let (host, held) = (nodes.host(), held.clone());
        tasks.push(tokio::spawn(async move {
            // One of them reaches three nodes only.
            if number == 7 {
                host.cut(0..2);
            }
            for _ in 0..10 {
                let lease = host.client.lock("x").ttl(TTL).acquire_within(ms(30_000)).await.unwrap();
                {
                    let mut last = held.try_lock().expect("nobody else is inside");
                    assert!(
                        last.is_none_or(|last| lease.token() > last),
                        "{last:?}, then {:?}",
                        lease.token()
                    );
                    *last = Some(lease.token());
                    std::thread::sleep(ms(1));
                }
                lease.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    until("nothing is left", async || nodes.having("x").await == 0).await;
}

#[tokio::test]
async fn what_a_late_node_will_have_to_give_back_is_not_claimed_again() {
    let nodes = Nodes::new();
    let wires: Vec<_> = nodes.0.iter().map(|node| Arc::new(Wire::around(Arc::new(node.clone())))).collect();
    let stores = wires.iter().map(|wire| wire.clone() as Arc<dyn Store>).collect();
    let quorum = Quorum::builder(stores).node_timeout(TTL).build().unwrap();
    // Somebody has three nodes, and the two others say late that we may have them.
    let other = nodes.host();
    other.cut(3..5);
    let lease = other.client.lock("x").ttl(TTL * 10).acquire().await.unwrap();
    for wire in &wires[3..] {
        wire.next(Op::Claim, Mishap::Late(ms(60)), 1);
    }
    let claim = Claim {
        name: LockName::parse("x").unwrap(),
        id: ClaimId::random().unwrap(),
        owner: Owner::default(),
        share: leasehold::Share::EXCLUSIVE,
        reshape: 0,
        turn: Turn::Any,
        ttl: TTL * 10,
        note: leasehold::Note::default(),
        anchored: false,
        aftermath: Aftermath::default(),
        succeeds: None,
        tokens: 1,
        seen: None,
        proposed: None,
        not_after: None,
    };
    let first = quorum.claim(&claim).await.unwrap().state;
    assert!(matches!(first, State::Waiting { .. }), "{first:?}");
    lease.release().await.unwrap();
    // They are free now. What the two are told to give back must not be a part of it.
    let again = quorum.claim(&claim).await.unwrap().state;
    assert_eq!(again, State::Spent);
    until("nothing is left", async || nodes.having("x").await == 0).await;
    let anew = Claim { id: ClaimId::random().unwrap(), ..claim };
    let granted = quorum.claim(&anew).await.unwrap().state;
    assert!(matches!(granted, State::Granted(_)), "{granted:?}");
    tokio::time::sleep(ms(100)).await;
    assert_eq!(nodes.having("x").await, 5);
}

#[tokio::test]
async fn what_a_quorum_does_not_offer_is_refused_at_once_and_by_name() {
    let nodes = Nodes::new();
    let client = nodes.host().client;
    let mut said = Vec::new();
    let mut refused = |what: &'static str, error: Error| {
        assert!(matches!(error, Error::Unsupported(_)), "{what}: {error:?}");
        assert!(!error.outcome_unknown() && !error.is_retryable(), "{what}: {error}");
        assert!(error.help().is_some(), "{what} says what to do: {error}");
        said.push(error.to_string());
    };
    let (rwlock, permits) = (client.rwlock("x"), client.semaphore("x", 3).permits(1));
    refused("a reader", rwlock.read().acquire().await.unwrap_err());
    refused("a reader who tries", rwlock.read().try_acquire().await.unwrap_err());
    refused("an upgradeable reader", rwlock.upgradeable().acquire_within(TTL).await.unwrap_err());
    refused("a permit", permits.acquire().await.unwrap_err());
    refused("a permit that is tried", permits.attempt().await.unwrap_err());
    // Readers and writers stand in one line, in order.
    refused("a writer among readers", rwlock.write().acquire().await.unwrap_err());
    refused("strict order", client.lock("x").fair().acquire().await.unwrap_err());
    refused("once", client.once("x").run(async |_| Ok::<_, ()>(())).await.unwrap_err());
    refused("once a day", client.once_per("daily", "x").run(async |_| Ok::<_, ()>(())).await.unwrap_err());
    refused("once, to be forgotten", client.once("x").forget().await.unwrap_err());
    refused("too long a lease", client.lock("x").ttl(TTL * 10_000).acquire().await.unwrap_err());
    let lease = client.lock("x").ttl(TTL).acquire().await.unwrap();
    refused("a hand-over", lease.hand_over().await.unwrap_err());
    for (says, what) in
        said.iter().zip(["shared", "shared", "shared", "permits", "permits", "strict order", "strict order"])
    {
        assert!(says.contains(what), "{says}");
    }
    // A lease that could not be handed over is given back, and nothing else was taken.
    until("nothing is left", async || nodes.having("x").await == 0).await;
    // Several names are taken one by one.
    client.lock_all(["a", "b"]).ttl(TTL).acquire().await.unwrap().release().await.unwrap();
    until("nothing is left", async || nodes.having("a").await + nodes.having("b").await == 0).await;
}
