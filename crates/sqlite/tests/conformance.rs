//! The store, held to the contract: two clients on one file, as two processes would be.

use std::process::ExitCode;

use leasehold_conformance::{Check, Fixture};
use leasehold_core::{Clock, StoreUrl};
use leasehold_sqlite::SqliteStore;

fn main() -> ExitCode {
    leasehold_conformance::main("sqlite", || async { fixture() })
}

fn fixture() -> Check<Fixture> {
    let home = tempfile::tempdir()?;
    let url: StoreUrl = format!("sqlite:{}", home.path().join("locks.db").display()).parse()?;
    let clock = Clock::frozen();
    let store = SqliteStore::open_with(&url, clock.clone())?;
    let second = SqliteStore::open_with(&url, clock.clone())?;
    Ok(Fixture::new(store).second(second).clock(clock).guard(home))
}
