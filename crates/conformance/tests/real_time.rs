//! The suite as it goes for a store that takes no clock: it has to wait for real time, and must still be right.

use std::process::ExitCode;

use leasehold_conformance::Fixture;
use leasehold_core::MemoryStore;

fn main() -> ExitCode {
    leasehold_conformance::main("memory in real time", || async { Ok(Fixture::new(MemoryStore::new())) })
}
