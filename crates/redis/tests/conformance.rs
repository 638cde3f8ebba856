//! The store, held to the contract and to the model: two clients of one server, which goes by the suite's clock.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_conformance::{Check, Fixture};
use leasehold_core::Clock;

mod support;

use support::server::{Server, missing};
use support::synced::Synced;

/// Servers that no case uses now.
static IDLE: Mutex<Vec<Server>> = Mutex::new(Vec::new());

fn main() -> ExitCode {
    if let Some(why) = missing() {
        eprintln!("skipped: {why}");
        return ExitCode::SUCCESS;
    }
    let ended = leasehold_conformance::main("redis", || async { fixture() });
    // What is static is never dropped.
    IDLE.lock().unwrap_or_else(PoisonError::into_inner).clear();
    ended
}

/// Gives a server back once nobody uses it any more.
struct Borrowed(Option<Arc<Server>>);

impl Drop for Borrowed {
    fn drop(&mut self) {
        // A case that hung still has it, and may go on to use it.
        if let Some(server) = self.0.take().and_then(|server| Arc::try_unwrap(server).ok()) {
            IDLE.lock().unwrap_or_else(PoisonError::into_inner).push(server);
        }
    }
}

fn fixture() -> Check<Fixture> {
    let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let server = match idle {
        Some(server) => server,
        None => Server::with_clock(&["--notify-keyspace-events", ""])?,
    };
    redis::cmd("FLUSHALL").exec(&mut server.connect()).unwrap();
    let (server, clock) = (Arc::new(server), Clock::frozen());
    server.set_time(clock.wall_micros());
    let (store, second) = (Synced::new(&server, &clock), Synced::new(&server, &clock));
    Ok(Fixture::new(store).second(second).clock(clock).one_clock().guard(Borrowed(Some(server))))
}
