//! The server's clock steps.

use std::time::Duration;

use crate::*;

/// Moves the server's clock, and waits until it has noticed: some look at their clock now and then only.
async fn step(server: &Server, seconds: i64) {
    let time = || say::<Vec<i64>>(server, &["TIME"])[0];
    let before = time();
    server.step(seconds);
    while (time() - before).abs() < 60 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_clock_that_steps_back_makes_no_lease_of_ours_longer_than_it_asked_for() {
    if let Some(why) = missing() {
        return eprintln!("skipped: {why}");
    }
    let server = match Server::with_clock(&[]) {
        Ok(server) => server,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let store = store(&server, "");
    let (plain, reader) = (claim("back"), shared("back:read"));
    let tokens = [granted(&store, &plain).await, granted(&store, &reader).await];
    let _: String = say(&server, &["SET", "lock:theirs", "x", "PX", "10000"]);
    step(&server, -3600).await;
    waits(&store, &attempt(claim("back"))).await;
    waits(&store, &attempt(claim("back:read"))).await;
    waits(&store, &claim("theirs")).await;
    // What nobody waits for is cut by whoever waits: the try took the short way, a waiter does not.
    waits(&store, &claim("back")).await;
    for key in ["lock:back", "lock:back:read"] {
        let left: i64 = say(&server, &["PTTL", key]);
        assert!((1..=30_000).contains(&left), "{key} stays for {left} ms");
    }
    let left: i64 = say(&server, &["PTTL", "lock:theirs"]);
    assert!(left > 3_000_000, "what is not ours is left alone: {left} ms");
    // Tokens rise all the same.
    end(&store, &plain).await;
    let waiter = claim("other");
    assert!(granted(&store, &waiter).await > tokens[1]);
    // Forwards: everything has run out, and the holder is told so.
    step(&server, 7200).await;
    is_lost(&store, &reader, tokens[1]).await;
}
