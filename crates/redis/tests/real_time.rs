//! The store held to the contract in real time, by servers with a clock of their own; so also those whose clock no
//! test can set.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::ExitCode;

use leasehold_conformance::{Check, Fixture};
use leasehold_redis::RedisStore;

mod support;

use support::host::Host;
use support::pool::{self, Borrowed};
use support::server::{Server, missing};
use support::ways::Way;

fn main() -> ExitCode {
    if let Some(why) = missing() {
        eprintln!("skipped: {why}");
        return ExitCode::SUCCESS;
    }
    let ended = leasehold_conformance::main("redis in real time", || async { fixture() });
    pool::end();
    ended
}

fn fixture() -> Check<Fixture> {
    let (borrowed, server) = Borrowed::or_start(Way::Socket, || Server::start(&[]).map(Host::Server))?;
    let url = server.url(Way::Socket).parse()?;
    Ok(Fixture::new(RedisStore::open(&url)?).second(RedisStore::open(&url)?).guard(borrowed))
}
