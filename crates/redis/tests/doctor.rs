//! What the store tells of itself: by whose clock, and without harm to others.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use leasehold_core::{Clock, Doctor, LockName};
use leasehold_redis::RedisStore;

mod support;

use support::server::{Server, missing};

fn store(server: &Server) -> RedisStore {
    RedisStore::open(&server.url().parse().unwrap()).unwrap()
}

#[tokio::test]
async fn the_bare_lock_leaves_alone_what_somebody_has_and_nothing_behind() {
    if let Some(why) = missing() {
        return eprintln!("skipped: {why}");
    }
    let server = Server::start(&[]).unwrap();
    let (store, name) = (store(&server), LockName::parse("job").unwrap());
    assert!(store.bare(&name).await.unwrap().is_some());
    let mut other = server.connect();
    let count: i64 = redis::cmd("DBSIZE").query(&mut other).unwrap();
    assert_eq!(count, 0);
    redis::cmd("SET").arg("lock:job").arg("theirs").exec(&mut other).unwrap();
    let error = store.bare(&name).await.unwrap_err();
    assert!(error.to_string().contains("in use") && error.help().is_some(), "{error}");
    let kept: String = redis::cmd("GET").arg("lock:job").query(&mut other).unwrap();
    assert_eq!(kept, "theirs");
}

#[tokio::test]
async fn the_time_that_it_tells_is_the_servers() {
    if let Some(why) = missing() {
        return eprintln!("skipped: {why}");
    }
    let server = match Server::with_clock(&[]) {
        Ok(server) => server,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let (store, clock) = (store(&server), Clock::system());
    let hour = 3600;
    server.step(hour);
    let ahead = async || {
        let time = store.ping().await.unwrap().unwrap().as_micros();
        time.saturating_sub(clock.wall_micros()) / 1_000_000
    };
    // Some look at their clock now and then only.
    let until = clock.now().after(std::time::Duration::from_secs(20));
    while ahead().await < 3500 {
        assert!(clock.now() < until, "it never noticed");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(ahead().await <= 3600);
}
