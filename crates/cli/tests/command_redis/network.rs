//! Checks 11 to 13 where a server and a network lie between: the server dies, is started again, or nothing passes and
//! nothing is closed.

use std::time::Duration;

use leasehold_harness::proxy::{Mode, Proxy};
use leasehold_harness::servers::redis::Redis;
use rustix::process::Signal;

use crate::loss::{DEAF, right_after_a_renewal, was_dead_in_time};
use crate::stage::{Place, Running, code, is_renewed, stderr, timed, until};
use crate::store::Store;

/// A network to the store of a place.
fn network(place: &Place) -> (Proxy, String) {
    let proxy = Proxy::start(place.store.server().address(), 1).unwrap();
    let url = format!("redis://{}", proxy.address());
    (proxy, url)
}

/// It goes on until the file `done` is there, and ends with 8.
const UNTIL_DONE: &str = "until [ -e done ]; do sleep 0.02; done; exit 8";

#[test]
fn check_11_a_server_that_is_killed_is_a_store_that_is_gone() {
    let place = Place::new();
    let holder = place.start(&["--ttl", "3s"], DEAF);
    let kill = || place.store.server().signal(Signal::KILL).unwrap();
    let ((), expires) = right_after_a_renewal(&place, kill);
    was_dead_in_time(&place, &holder.output(), expires);
}

/// It answers all the time, but never yes.
#[test]
fn check_11_a_server_that_refuses_to_renew_is_a_store_that_is_gone() {
    for (words, why) in [
        (&["REPLICAOF", "127.0.0.1", "1"][..], "replica"),
        (&["ACL", "SETUSER", "default", "-eval", "-evalsha"], "the user may not do this"),
    ] {
        let place = Place::new();
        let holder = place.start(&["--ttl", "3s"], DEAF);
        let (answer, expires) = right_after_a_renewal(&place, || place.store.ask(words));
        assert_eq!(answer, "+OK\r\n", "{words:?}");
        let output = holder.output();
        was_dead_in_time(&place, &output, expires);
        assert!(stderr(&output).contains(why), "{output:?}");
    }
}

#[test]
fn what_an_administrator_may_do_at_any_time_changes_nothing() {
    let place = Place::new();
    let holder = place.start(&["--ttl", "3s"], UNTIL_DONE);
    let waiter = Running::of(place.leasehold(["run", "demo", "-w60s", "--", "true"]));
    let waits = || place.status("demo")["waiters"].as_array().unwrap().len() == 1;
    until("it stands in line", waits);
    for words in [
        &["SCRIPT", "FLUSH"][..],
        &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
        &["CLIENT", "KILL", "TYPE", "pubsub"],
    ] {
        place.store.ask(words);
        place.until_renewed("demo");
        assert!(waits(), "{words:?}");
    }
    place.write("done", "");
    let output = holder.output();
    assert_eq!(code(output.status), 8, "{output:?}");
    let output = waiter.output();
    assert_eq!(code(output.status), 0, "{output:?}");
}

#[test]
fn check_12_a_network_that_swallows_all_without_a_reset_is_as_a_store_that_is_gone() {
    let place = Place::new();
    let (network, url) = network(&place);
    let holder = place.start(&["-s", &url, "--ttl", "3s"], DEAF);
    let ((), expires) = right_after_a_renewal(&place, || network.set(Mode::Freeze));
    was_dead_in_time(&place, &holder.output(), expires);
    assert_eq!(place.ends("demo"), None, "nobody renews it any more");
}

/// What a firewall does that has forgotten its connections.
#[test]
fn check_12_a_connection_that_is_silent_for_good_is_replaced_in_time() {
    let place = Place::new();
    let (network, url) = network(&place);
    // The renewal after 2 s is not answered within the next, one soon after 3 s is, and SIGTERM would come after 3.8 s: there
    // is no time to wait for a second answer.
    let url = format!("{url}?timeout=1s");
    let flags = ["-s", &url, "--ttl", "6s", "--grace", "2s"];
    let holder = place.start(&flags, UNTIL_DONE);
    place.until_renewed("demo");
    network.set(Mode::FreezeOld);
    place.until_renewed("demo");
    place.until_renewed("demo");
    place.write("done", "");
    let output = holder.output();
    assert_eq!(code(output.status), 8, "{output:?}");
    assert!(place.is_free("demo"), "it was given back over the new connection");
}

#[test]
fn a_network_that_comes_back_in_time_changes_nothing() {
    let place = Place::new();
    let (network, url) = network(&place);
    let holder = place.start(&["-s", &url, "--ttl", "6s", "--grace", "500ms"], UNTIL_DONE);
    let ((), expires) = right_after_a_renewal(&place, || network.set(Mode::Freeze));
    until("half of the lease is gone", || place.left("demo") < Duration::from_secs(3));
    network.set(Mode::Pass);
    until("it is renewed", || is_renewed(Some(expires), place.ends("demo")));
    // Cut, it connects again.
    network.cut();
    place.until_renewed("demo");
    place.write("done", "");
    let output = holder.output();
    assert_eq!(code(output.status), 8, "{output:?}");
}

#[test]
fn check_13_a_server_that_comes_back_without_its_data_has_no_lease_and_the_command_is_told_at_once() {
    let mut place = Place::new();
    let script = "trap 'echo term >> heard' TERM; while :; do sleep 0.02; done";
    let holder = place.start(&["--ttl", "6s"], script);
    let token = place.status("demo")["token"].as_u64().unwrap();
    place.until_renewed("demo");
    let ((), took) = timed(|| {
        place.store.restart();
        until("TERM arrives", || !place.read("heard").is_empty());
    });
    // A third of the ttl until the next renewal asks, and what a busy machine takes for its part.
    assert!(took < Duration::from_secs(4), "{took:?}");
    let output = holder.output();
    assert_eq!(code(output.status), 79, "{output:?}");
    assert!(stderr(&output).contains("error[LH0031]: lost demo (token "), "{output:?}");
    let output = place.leasehold(["run", "demo", "--", "sh", "-c", "echo $LEASE_TOKEN"]).output().unwrap();
    let next: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    assert!(next > token, "{next} after {token}: the server had forgotten its counter");
}

#[test]
fn a_server_that_comes_back_with_its_data_changes_nothing() {
    let mut place = Place::bare();
    place.store = Store::like(Redis::default().line("appendonly yes").line("appendfsync always"));
    let holder = place.start(&["--ttl", "6s"], UNTIL_DONE);
    let token = place.status("demo")["token"].clone();
    place.until_renewed("demo");
    place.store.restart();
    place.until_renewed("demo");
    assert_eq!(place.status("demo")["token"], token);
    place.write("done", "");
    let output = holder.output();
    assert_eq!(code(output.status), 8, "{output:?}");
}

#[test]
fn who_waits_in_line_sees_it_through() {
    let mut place = Place::bare();
    place.store = Store::like(Redis::default().line("appendonly yes").line("appendfsync always"));
    let (network, url) = network(&place);
    let holder = place.start(&["--ttl", "10s"], UNTIL_DONE);
    let waiter = Running::of(place.leasehold(["run", "demo", "-s", &url, "-w60s", "--", "true"]));
    let waits = || place.status("demo")["waiters"].as_array().unwrap().len() == 1;
    until("it stands in line", waits);
    network.cut();
    until("it stands in line again", waits);
    // Whatever was to be pushed to it is lost.
    network.set(Mode::FreezeOld);
    place.write("done", "");
    assert_eq!(code(holder.output().status), 8);
    let output = waiter.output();
    assert_eq!(code(output.status), 0, "{output:?}");
    assert!(place.is_free("demo"));
}

#[test]
fn check_06_what_cannot_be_given_back_does_not_keep_run_for_ever() {
    let place = Place::new();
    let holder = place.start(&["--ttl", "3s"], "trap 'exit 4' TERM; while :; do sleep 0.02; done");
    let _blocked = place.store.block();
    let (output, took) = timed(|| {
        holder.signal("TERM");
        holder.output()
    });
    assert_eq!(code(output.status), 4, "the command's own end: {output:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}
