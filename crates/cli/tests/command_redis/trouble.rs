//! Check 14 on servers: what refuses, is silent, or is no Redis is told in time, with its own code, and nothing runs.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Output;
use std::time::Duration;

use leasehold_harness::proxy::{Mode, Proxy};
use leasehold_harness::servers::redis::Redis;

use crate::stage::{Place, code, stderr, timed};
use crate::store::Store;
use crate::store_trouble::run;

fn place_like(redis: Redis) -> Place {
    let mut place = Place::bare();
    place.store = Store::like(redis);
    place
}

/// What must be seen where the command was not run.
fn was_refused(place: &Place, output: &Output, exit: i32, parts: &[&str]) {
    let text = stderr(output);
    assert_eq!(code(output.status), exit, "{text}");
    assert!(text.starts_with("error[LH"), "{text}");
    for part in ["effect   the command was not run"].iter().chain(parts) {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
    assert!(!text.contains("hunter"), "{text}");
    assert!(!place.path("ran").exists(), "it was run: {text}");
}

#[test]
fn check_14_a_server_that_refuses_is_told_of_by_its_own_words_within_the_timeout() {
    let place = Place::bare();
    let (output, took) = timed(|| run(&place, &place.store.absent_url(), &["--timeout", "1s"]));
    was_refused(&place, &output, 69, &["Connection refused", "--store-down skip|run"]);
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn check_14_a_network_that_swallows_all_is_told_within_the_timeout_and_asked_otherwise_goes_on() {
    let place = Place::new();
    let network = Proxy::start(place.store.server().address(), 1).unwrap();
    let url = format!("redis://{}", network.address());
    for mode in [Mode::Freeze, Mode::Refuse, Mode::EatReplies] {
        network.set(mode);
        let (output, took) = timed(|| run(&place, &url, &["--timeout", "1s"]));
        was_refused(&place, &output, 69, &["error[LH0101]: "]);
        assert!(took < Duration::from_secs(3), "{mode:?}: {took:?}");
    }
    network.set(Mode::Freeze);
    let output = run(&place, &url, &["--timeout", "1s", "--store-down", "skip"]);
    assert_eq!((code(output.status), output.stderr.len()), (0, 0), "{output:?}");
    assert!(!place.path("ran").exists());
    let output = run(&place, &url, &["--timeout", "1s", "--store-down", "run"]);
    assert_eq!(code(output.status), 0, "{output:?}");
    assert!(stderr(&output).contains("WITHOUT A LOCK"), "{output:?}");
    assert!(place.path("ran").exists());
    // Nothing of all that stands in line or holds, now that it would arrive.
    network.set(Mode::Pass);
    assert!(place.is_free("demo"));
}

/// Whoever may not speak to the store must not go on as if there were none.
const OTHERWISE: [&[&str]; 3] = [&[], &["--store-down", "run"], &["--store-down", "skip"]];

#[test]
fn check_14_a_login_that_is_refused_is_not_a_store_that_is_down() {
    let place = place_like(Redis::default().line("requirepass hunter2"));
    let address = place.store.server().address();
    for flags in OTHERWISE {
        let output = run(&place, &place.url(), flags);
        was_refused(&place, &output, 77, &["error[LH0103]: ", "wants a password", "password_file="]);
        for login in [":hunter3", "me:hunter2"] {
            let output = run(&place, &format!("redis://{login}@{address}"), flags);
            was_refused(&place, &output, 77, &["error[LH0103]: ", "password"]);
        }
    }
    let output = run(&place, &format!("redis://:hunter2@{address}"), &[]);
    assert_eq!((code(output.status), output.stderr.len()), (0, 0), "{output:?}");
    assert!(place.path("ran").exists());
}

#[test]
fn check_14_rights_that_are_missing_are_told() {
    let place = place_like(Redis::default().line("user poor on >hunter2 ~lock:* +@all -evalsha -eval"));
    let url = format!("redis://poor:hunter2@{}", place.store.server().address());
    for flags in OTHERWISE {
        was_refused(&place, &run(&place, &url, flags), 77, &["may not do this", "least rights"]);
    }
}

#[test]
fn check_14_a_replica_is_told_from_its_master() {
    let master = Place::new();
    let port = master.store.server().address().port();
    let place = place_like(Redis::default().line(format!("replicaof 127.0.0.1 {port}")));
    let output = run(&place, &place.url(), &["--timeout", "1s"]);
    was_refused(
        &place,
        &output,
        69,
        &[&format!("a replica of 127.0.0.1:{port}"), "name the master in the URL"],
    );
}

#[test]
fn check_14_a_name_that_is_something_else_is_left_alone() {
    let place = Place::new();
    for (kind, words) in
        [("a hash", &["HSET", "lock:demo", "a", "b"][..]), ("a list", &["RPUSH", "lock:demo", "a"])]
    {
        place.store.ask(&["DEL", "lock:demo"]);
        place.store.ask(words);
        for flags in OTHERWISE {
            was_refused(&place, &run(&place, &place.url(), flags), 76, &["the key lock:demo is ", kind]);
        }
        assert_eq!(place.store.ask(&["EXISTS", "lock:demo"]), ":1\r\n");
    }
    // A lock of another program is a lock.
    place.store.ask(&["DEL", "lock:demo"]);
    place.store.ask(&["SET", "lock:demo", "somebody", "PX", "60000"]);
    let output = run(&place, &place.url(), &["--busy", "fail"]);
    assert_eq!(code(output.status), 75, "{output:?}");
    assert!(place.store.ask(&["GET", "lock:demo"]).contains("somebody"));
    assert!(!place.path("ran").exists());
}

#[test]
fn check_14_a_server_that_is_full_takes_no_new_lease_and_keeps_those_that_are_held() {
    let place = Place::new();
    let holder = place.start(&["--ttl", "3s"], "until [ -e done ]; do sleep 0.02; done; exit 8");
    place.store.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let words = ["run", "other", "--", "touch", "ran"];
    was_refused(&place, &place.leasehold(words).output().unwrap(), 69, &["maxmemory"]);
    // Longer than its ttl.
    (0..4).for_each(|_| place.until_renewed("demo"));
    place.write("done", "");
    let output = holder.output();
    assert_eq!(code(output.status), 8, "{output:?}");
    assert!(place.is_free("demo"));
}

#[test]
fn check_14_what_is_no_redis_is_told_within_the_timeout() {
    let place = Place::bare();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    // It is not waited for: it ends with the test.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let (output, took) = timed(|| run(&place, &url, &["--timeout", "1s"]));
    was_refused(&place, &output, 76, &["does not speak as a Redis does", "rediss://"]);
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn check_14_a_server_without_tls_is_told_to_who_wants_it() {
    let place = Place::new();
    let url = format!("rediss://{}", place.store.server().address());
    let (output, took) = timed(|| run(&place, &url, &["--timeout", "1s"]));
    was_refused(&place, &output, 69, &[]);
    assert!(took < Duration::from_secs(3), "{took:?}");
}
