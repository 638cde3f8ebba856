//! How many commands a lock costs the server, by the server's own count: the promise behind every figure of speed.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_core::{Claim, Leave, Note, Release, Renew, State, Store, Tenure, Turn};
use leasehold_redis::RedisStore;

mod support;

use support::claims::claim;
use support::server::{Server, missing};

/// How often each command was executed since the last call: what clients sent, and what scripts did.
struct Counts {
    connection: redis::Connection,
    before: BTreeMap<String, u64>,
}

impl Counts {
    fn new(server: &Server) -> Self {
        let mut counts = Self { connection: server.connect(), before: BTreeMap::new() };
        counts.since();
        counts
    }

    fn since(&mut self) -> BTreeMap<String, u64> {
        let told: String = redis::cmd("INFO").arg("commandstats").query(&mut self.connection).unwrap();
        let counts = told.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split_once(',')?.0.parse::<u64>().ok()?))
        });
        let now: BTreeMap<String, u64> = counts.collect();
        let since =
            now.iter().map(|(name, calls)| (name.clone(), calls - self.before.get(name).unwrap_or(&0)));
        let since = since.filter(|(name, calls)| *calls > 0 && name != "info" && name != "ping").collect();
        self.before = now;
        since
    }
}

/// What clients sent: the rest is done inside of it.
fn scripts(counts: &BTreeMap<String, u64>) -> u64 {
    ["eval", "evalsha"].iter().filter_map(|name| counts.get(*name)).sum()
}

fn all(counts: &BTreeMap<String, u64>) -> u64 {
    counts.values().sum()
}

/// Starts a server and a client that has said everything once, so that only what is done each time is counted.
async fn warm(clients: usize) -> Option<(Server, Vec<Arc<RedisStore>>)> {
    if let Some(why) = missing() {
        eprintln!("skipped: {why}");
        return None;
    }
    let server = Server::start(&[]).unwrap();
    let open = || Arc::new(RedisStore::open(&server.url().parse().unwrap()).unwrap());
    let stores: Vec<_> = (0..clients).map(|_| open()).collect();
    for store in &stores {
        let (holder, waiter) = (claim("warm", Turn::Any), claim("warm", Turn::Fifo));
        store.claim(&holder).await.unwrap();
        store.claim(&waiter).await.unwrap();
        store.renew(&[renewal(&holder)]).await.pop().unwrap().unwrap();
        for claim in [&waiter, &holder] {
            store.release(&claim.name, claim.id, Leave::Open).await.unwrap();
        }
    }
    Some((server, stores))
}

fn renewal(claim: &Claim) -> Renew {
    let token = leasehold_core::Token::new(1).unwrap();
    Renew { claim: Arc::new(claim.clone()), tenure: Tenure { count: 1, token, note: Note::NONE } }
}

#[tokio::test]
async fn a_lock_that_nobody_wants_costs_two_scripts_of_few_commands() {
    let Some((server, stores)) = warm(1).await else { return };
    let mut counts = Counts::new(&server);
    for at in 0..100 {
        let claim = claim(&format!("free:{at}"), Turn::Any);
        let state = stores[0].claim(&claim).await.unwrap().state;
        assert!(matches!(state, State::Granted(_)));
    }
    let acquired = counts.since();
    assert_eq!((scripts(&acquired), all(&acquired)), (100, 700), "{acquired:?}");
    assert_eq!(acquired.get("publish"), None);

    let held = claim("held", Turn::Any);
    stores[0].claim(&held).await.unwrap();
    counts.since();
    stores[0].claim(&claim("held", Turn::Now)).await.unwrap();
    let tried = counts.since();
    assert_eq!((scripts(&tried), all(&tried)), (1, 5), "{tried:?}");
    assert_eq!(stores[0].release(&held.name, held.id, Leave::Open).await.unwrap(), Release::Released);
    let released = counts.since();
    assert_eq!((scripts(&released), all(&released)), (1, 5), "{released:?}");
    assert_eq!(released.get("publish"), None, "nobody waits, so nobody is told");
    println!("acquire {acquired:?} for 100, try {tried:?}, release {released:?}");
}

#[tokio::test]
async fn a_hundred_renewals_are_one_script_of_three_commands_each() {
    let Some((server, stores)) = warm(1).await else { return };
    let claims: Vec<Claim> = (0..250).map(|at| claim(&format!("renewed:{at}"), Turn::Any)).collect();
    for claim in &claims {
        stores[0].claim(claim).await.unwrap();
    }
    let mut counts = Counts::new(&server);
    let batch: Vec<Renew> = claims.iter().map(renewal).collect();
    // The first writes the tenure that it was not granted with.
    stores[0].renew(&batch).await;
    counts.since();
    stores[0].renew(&batch).await;
    let renewed = counts.since();
    assert_eq!(scripts(&renewed), 3, "{renewed:?}");
    assert_eq!(all(&renewed), 3 + 3 + 3 * 250, "{renewed:?}");
    println!("250 renewals: {renewed:?}");
}

/// So many processes wait for one name, and pass it on.
async fn hand_offs(waiters: usize) {
    let Some((server, stores)) = warm(waiters).await else { return };
    let claims: Vec<Claim> = (0..waiters).map(|_| claim("contended", Turn::Fifo)).collect();
    for (store, claim) in stores.iter().zip(&claims) {
        store.claim(claim).await.unwrap();
    }
    let mut counts = Counts::new(&server);
    for at in 0..waiters - 1 {
        let claim = &claims[at];
        assert_eq!(stores[at].release(&claim.name, claim.id, Leave::Open).await.unwrap(), Release::Released);
        let state = stores[at + 1].claim(&claims[at + 1]).await.unwrap().state;
        assert!(matches!(state, State::Granted(_)), "{state:?}");
    }
    let counted = counts.since();
    let handed = u64::try_from(waiters - 1).unwrap();
    assert_eq!(scripts(&counted), 2 * handed, "{counted:?}");
    assert_eq!(counted.get("publish"), Some(&handed), "one push to the next in line, whoever else waits");
    println!("{handed} hand-offs with {waiters} in line: {counted:?}, {} each", all(&counted) / handed);
}

#[tokio::test]
async fn a_hand_off_is_two_scripts_and_one_push_with_one_waiter() {
    hand_offs(2).await;
}

#[tokio::test]
async fn a_hand_off_is_two_scripts_and_one_push_with_16_in_line() {
    hand_offs(16).await;
}

#[tokio::test]
async fn a_hand_off_is_two_scripts_and_one_push_with_128_in_line() {
    hand_offs(128).await;
}
