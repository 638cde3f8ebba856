//! Networks that fall apart while somebody holds a lock, seen by commands that run under it and by programs that hold
//! it: what each store promises then, and what it does not.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod cluster;
mod command;
mod elected;
mod holder;
mod quorum;
mod sentinel;

use std::time::Duration;

use leasehold_core::Clock;
use leasehold_harness::servers::NoServer;

/// Whatever is to happen has happened by then.
const PATIENCE: Duration = Duration::from_secs(30);

/// What there is; `None` where it cannot be had, which is said.
fn had<T>(started: Result<T, NoServer>) -> Option<T> {
    match started {
        Ok(started) => Some(started),
        Err(NoServer::Missing(tool)) => {
            eprintln!("skipped: there is no {tool} here");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Returns once it holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let clock = Clock::system();
    let end = clock.now().after(PATIENCE);
    while !holds() {
        assert!(clock.now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
