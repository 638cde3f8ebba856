//! The store, held to the contract and to the model: two clients of one server, which goes by the suite's clock.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::ExitCode;

use leasehold_conformance::{Check, Fixture};
use leasehold_core::Clock;

mod support;

use support::pool::{self, Borrowed};
use support::server::{Server, missing};
use support::synced::Synced;

fn main() -> ExitCode {
    if let Some(why) = missing() {
        eprintln!("skipped: {why}");
        return ExitCode::SUCCESS;
    }
    let ended = leasehold_conformance::main("redis", || async { fixture() });
    pool::end();
    ended
}

fn fixture() -> Check<Fixture> {
    let (borrowed, server) = Borrowed::or_start(|| Server::with_clock(&[]))?;
    let clock = Clock::frozen();
    server.set_time(clock.wall_micros());
    let (store, second) = (Synced::new(&server, &clock), Synced::new(&server, &clock));
    // The guard is dropped last, when nobody else has the server any more.
    Ok(Fixture::new(store).second(second).clock(clock).one_clock().guard(borrowed))
}
