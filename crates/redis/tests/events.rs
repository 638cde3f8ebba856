//! The end of a key that another client holds: heard of at once where the server tells of it, looked for elsewhere.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use leasehold_core::{Claim, Clock, Cursor, Leave, PLACE_LIFE, State, Store, Turn};
use leasehold_redis::RedisStore;

mod support;

use support::server::{Server, missing};

/// A store by itself looks again when a place would lapse; whoever is told is told long before that.
const HEARD: Duration = PLACE_LIFE.checked_div(2).unwrap();
/// A machine that starves the observer may make anything look late; not so often in a row.
const TRIES: u32 = 4;

fn start(options: &[&str]) -> Option<Server> {
    if let Some(why) = missing() {
        eprintln!("skipped: {why}");
        return None;
    }
    Some(Server::start(options).unwrap())
}

fn store(server: &Server) -> RedisStore {
    RedisStore::open(&server.url().parse().unwrap()).unwrap()
}

fn claim(text: &str) -> Claim {
    support::claims::claim(text, Turn::Fifo)
}

fn say<T: redis::FromRedisValue>(connection: &mut redis::Connection, words: &[&str]) -> T {
    let (verb, rest) = words.split_first().unwrap();
    redis::cmd(verb).arg(rest).query(connection).unwrap()
}

async fn waiting(store: &RedisStore, claim: &Claim) -> Cursor {
    let standing = store.claim(claim).await.unwrap();
    assert!(matches!(standing.state, State::Waiting { .. }), "{standing:?}");
    standing.cursor
}

/// A place in line whose wait has begun to listen, if it can: that is told once, and the claim stated again.
async fn listening(store: &RedisStore, claim: &Claim) -> Cursor {
    let first = waiting(store, claim).await;
    let told = tokio::time::timeout(PLACE_LIFE * 4, store.changed(&claim.name, &first)).await;
    assert!(matches!(told, Ok(Ok(()))), "it never began to listen: {told:?}");
    waiting(store, claim).await
}

/// How long it takes from the end of a foreign key until a waiter is told, at best.
async fn told_after(server: &Server, ending: &[&str]) -> Duration {
    let mut other = server.connect();
    let (store, clock) = (store(server), Clock::system());
    let mut best = Duration::MAX;
    for _ in 0..TRIES {
        let claim = claim("job");
        let _: String = say(&mut other, &["SET", "lock:job", "their-secret"]);
        let cursor = listening(&store, &claim).await;
        let _: redis::Value = say(&mut other, ending);
        let ended = clock.now();
        store.changed(&claim.name, &cursor).await.unwrap();
        best = best.min(clock.now().since(ended));
        let state = store.claim(&claim).await.unwrap().state;
        assert!(matches!(state, State::Granted(_)), "{state:?}");
        store.release(&claim.name, claim.id, Leave::Open).await.unwrap();
        if best < HEARD {
            break;
        }
    }
    best
}

#[tokio::test]
async fn the_end_of_a_foreign_key_is_heard_where_the_server_tells_of_it() {
    let Some(server) = start(&["--notify-keyspace-events", "Kgx"]) else { return };
    for ending in [&["DEL", "lock:job"][..], &["PEXPIRE", "lock:job", "1"], &["RENAME", "lock:job", "gone"]] {
        let took = told_after(&server, ending).await;
        assert!(took < HEARD, "{ending:?} was noticed by looking again only, after {took:?}");
        println!("{ending:?} was heard of after {took:?}");
    }
}

#[tokio::test]
async fn without_events_or_the_right_to_hear_them_it_is_looked_for() {
    let Some(server) = start(&[]) else { return };
    let mut other = server.connect();
    for events in ["", "Kgx"] {
        let _: () = say(&mut other, &["CONFIG", "SET", "notify-keyspace-events", events]);
        // In the second round the server would tell, and we may not listen.
        let _: () = say(&mut other, &["ACL", "SETUSER", "default", "resetchannels", "&lh:wake:*"]);
        let store = store(&server);
        let claim = claim("job");
        let _: String = say(&mut other, &["SET", "lock:job", "their-secret"]);
        let mut cursor = waiting(&store, &claim).await;
        let _: i64 = say(&mut other, &["DEL", "lock:job"]);
        let clock = Clock::system();
        let ended = clock.now();
        loop {
            store.changed(&claim.name, &cursor).await.unwrap();
            let standing = store.claim(&claim).await.unwrap();
            if matches!(standing.state, State::Granted(_)) {
                break;
            }
            cursor = standing.cursor;
            assert!(clock.now().since(ended) < PLACE_LIFE * 4, "{events:?}: never noticed");
        }
        store.release(&claim.name, claim.id, Leave::Open).await.unwrap();
    }
}

#[tokio::test]
async fn a_renewal_by_a_foreign_holder_wakes_nobody() {
    let Some(server) = start(&["--notify-keyspace-events", "KA"]) else { return };
    let mut other = server.connect();
    let store = store(&server);
    let claim = claim("job");
    let _: String = say(&mut other, &["SET", "lock:job", "their-secret"]);
    let cursor = listening(&store, &claim).await;
    let changed = store.changed(&claim.name, &cursor);
    tokio::pin!(changed);
    for _ in 0..20 {
        let _: i64 = say(&mut other, &["PEXPIRE", "lock:job", "60000"]);
        let _: String = say(&mut other, &["SET", "lock:job", "their-secret", "XX"]);
        // Long enough for each to arrive; far from the end of the place.
        let woken = tokio::time::timeout(Duration::from_millis(10), &mut changed).await;
        assert!(woken.is_err(), "woken by a renewal");
    }
    let _: i64 = say(&mut other, &["DEL", "lock:job"]);
    changed.await.unwrap();
}

#[tokio::test]
async fn only_the_first_in_line_listens_and_only_while_it_waits() {
    let Some(server) = start(&["--notify-keyspace-events", "Kgx"]) else { return };
    let mut other = server.connect();
    let _: String = say(&mut other, &["SET", "lock:job", "their-secret"]);
    let stores = [store(&server), store(&server), store(&server)];
    let claims = [claim("job"), claim("job"), claim("job")];
    let mut cursors = vec![listening(&stores[0], &claims[0]).await];
    for (store, claim) in stores.iter().zip(&claims).skip(1) {
        cursors.push(waiting(store, claim).await);
    }
    let channel = "__keyspace@0__:lock:job";
    let listeners = |other: &mut redis::Connection| -> i64 {
        say::<(String, i64)>(other, &["PUBSUB", "NUMSUB", channel]).1
    };
    assert_eq!(listeners(&mut other), 1);
    // Nobody listens for a holder of ours, who tells whose turn has come.
    let _: i64 = say(&mut other, &["DEL", "lock:job"]);
    stores[0].changed(&claims[0].name, &cursors[0]).await.unwrap();
    assert!(matches!(stores[0].claim(&claims[0]).await.unwrap().state, State::Granted(_)));
    let clock = Clock::system();
    let until = clock.now().after(Duration::from_secs(20));
    while listeners(&mut other) != 0 {
        assert!(clock.now() < until, "still listening");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
