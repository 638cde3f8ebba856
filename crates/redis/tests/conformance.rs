//! The store, held to the contract and to the model over each way to a server: two clients of one server, or
//! of one cluster, which goes by the suite's clock.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::ExitCode;

use leasehold_conformance::{Check, Fixture, Suite};
use leasehold_core::Clock;

mod support;

use support::pool::{self, Borrowed};
use support::synced::synced;
use support::ways::Way;

fn main() -> ExitCode {
    let more = |name, prefix, way| suite(name, way).called(prefix).a_tenth();
    let ended = Suite::all([
        suite("redis", Way::Plain),
        more("redis at a socket", "socket", Way::Socket),
        more("redis over TLS", "tls", Way::Tls),
        more("redis with the least rights", "least_rights", Way::LeastRights),
        more("valkey", "valkey", Way::Valkey),
        more("a redis cluster", "cluster", Way::Cluster).as_one(),
        more("a redis cluster, in one slot", "one_slot", Way::OneSlot).as_one(),
        more("redis found by sentinels", "sentinel", Way::Sentinel).as_one(),
    ]);
    pool::end();
    ended
}

fn suite(name: &str, way: Way) -> Suite {
    Suite::new(name, move || async move { fixture(way) }).unless(way.missing())
}

fn fixture(way: Way) -> Check<Fixture> {
    let (borrowed, server) = Borrowed::or_start(way, || way.start())?;
    let clock = Clock::frozen();
    server.set_time(clock.wall_micros());
    let (store, second) = (synced(&server, way, &clock), synced(&server, way, &clock));
    // The guard is dropped last, when nobody else has the server any more.
    Ok(Fixture::new(store).second(second).clock(clock).one_clock().guard(borrowed))
}
