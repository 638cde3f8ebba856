//! What a server, an administrator or another program may do to locks, and what must come of it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use leasehold_core::{
    Claim, Leave, LockName, Note, Owner, Release, Renew, Renewal, Share, State, Store, Tenure, Token, Turn,
};
use leasehold_redis::RedisStore;

/// Starts a server, or says why the test is skipped.
macro_rules! server {
    ($($option:literal),*) => {
        match missing() {
            None => Server::start(&[$($option),*]).unwrap(),
            Some(why) => return eprintln!("skipped: {why}"),
        }
    };
}

mod clock;
mod connection;
mod foreign;
mod full;
mod gone;
mod refusals;
mod replaced;
mod replicas;
mod rights;
#[path = "../support/mod.rs"]
mod support;

use support::server::{Server, missing};

/// The ttl of leases that no test outlives.
const LONG: Duration = Duration::from_secs(30);

fn store(server: &Server, options: &str) -> RedisStore {
    RedisStore::open(&format!("{}{options}", server.url()).parse().unwrap()).unwrap()
}

fn name(text: &str) -> LockName {
    LockName::parse(text).unwrap()
}

fn claim(text: &str) -> Claim {
    let owner = Owner { host: "web-1".to_owned(), program: "report.sh".to_owned(), ..Owner::default() };
    Claim { owner, ttl: LONG, ..support::claims::claim(text, Turn::Any) }
}

fn shared(text: &str) -> Claim {
    Claim { share: Share::SHARED, ..claim(text) }
}

fn attempt(claim: Claim) -> Claim {
    Claim { turn: Turn::Now, ..claim }
}

async fn granted(store: &RedisStore, claim: &Claim) -> Token {
    match store.claim(claim).await.unwrap().state {
        State::Granted(grant) => grant.token,
        other => panic!("{} should be granted: {other:?}", claim.name),
    }
}

async fn waits(store: &RedisStore, claim: &Claim) {
    let state = store.claim(claim).await.unwrap().state;
    assert!(matches!(state, State::Waiting { .. }), "{}: {state:?}", claim.name);
}

fn renewal(claim: &Claim, token: Token) -> Renew {
    Renew { claim: std::sync::Arc::new(claim.clone()), tenure: Tenure { count: 1, token, note: Note::NONE } }
}

async fn renew(store: &RedisStore, claim: &Claim, token: Token) -> leasehold_core::Result<Renewal> {
    store.renew(&[renewal(claim, token)]).await.pop().unwrap()
}

async fn is_kept(store: &RedisStore, claim: &Claim, token: Token) {
    let kept = renew(store, claim, token).await.unwrap();
    assert!(matches!(kept, Renewal::Kept { .. }), "{}: {kept:?}", claim.name);
}

async fn is_lost(store: &RedisStore, claim: &Claim, token: Token) {
    assert_eq!(renew(store, claim, token).await.unwrap(), Renewal::Lost, "{}", claim.name);
}

async fn end(store: &RedisStore, claim: &Claim) -> Release {
    store.release(&claim.name, claim.id, Leave::Open).await.unwrap()
}

fn say<T: redis::FromRedisValue>(server: &Server, words: &[&str]) -> T {
    let (verb, rest) = words.split_first().unwrap();
    redis::cmd(verb).arg(rest).query(&mut server.connect()).unwrap()
}

fn info(server: &Server, section: &str) -> String {
    say(server, &["INFO", section])
}

/// Waits until it is so.
async fn until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not within ten seconds: {what}");
}
