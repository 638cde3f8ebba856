//! The memory store, held to the contract by the suite that every store must pass.

use std::process::ExitCode;

use leasehold_conformance::Fixture;
use leasehold_core::{Clock, MemoryStore};

fn main() -> ExitCode {
    leasehold_conformance::main("memory", || async {
        let clock = Clock::frozen();
        let store = MemoryStore::with_clock(clock.clone());
        Ok(Fixture::new(store.clone()).second(store).clock(clock))
    })
}
