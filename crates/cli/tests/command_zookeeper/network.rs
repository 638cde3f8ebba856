//! Checks 11, 12 and 14 where a server and a network lie between: the server dies, or nothing passes and nothing is closed.

use std::time::Duration;

use leasehold_harness::proxy::{Mode, Proxy};
use rustix::process::Signal;

use crate::loss::{DEAF, right_after_a_renewal, was_dead_in_time};
use crate::stage::{Place, code, stderr, timed};

#[test]
fn check_11_a_server_that_is_killed_is_a_store_that_is_gone() {
    let place = Place::new();
    let holder = place.start(&["--ttl", "3s"], DEAF);
    let kill = || place.store.server().signal(Signal::KILL).unwrap();
    let ((), expires) = right_after_a_renewal(&place, kill);
    was_dead_in_time(&place, &holder.output(), expires);
}

#[test]
fn check_12_a_network_that_swallows_all_without_a_reset_is_as_a_store_that_is_gone() {
    let place = Place::new();
    let network = Proxy::start(place.store.server().address(), 1).unwrap();
    let url = format!("zookeeper://{}", network.address());
    let holder = place.start(&["-s", &url, "--ttl", "3s"], DEAF);
    let ((), expires) = right_after_a_renewal(&place, || network.set(Mode::Freeze));
    was_dead_in_time(&place, &holder.output(), expires);
}

#[test]
fn check_14_a_network_that_swallows_all_is_told_within_the_timeout() {
    let place = Place::new();
    let network = Proxy::start(place.store.server().address(), 1).unwrap();
    network.set(Mode::Freeze);
    let url = format!("zookeeper://{}", network.address());
    let words = ["-s", &url, "run", "demo", "--timeout", "1s", "--", "true"];
    let (output, took) = timed(|| place.leasehold(words).output().unwrap());
    assert_eq!(code(output.status), 69, "{output:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert!(stderr(&output).contains("zookeeper://"), "{output:?}");
}
