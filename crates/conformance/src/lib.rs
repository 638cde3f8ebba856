//! The one suite that every store must pass, and the checker of histories.
//!
//! A store joins with a test target that has `harness = false`:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use leasehold_conformance::Fixture;
//! use leasehold_core::{Clock, MemoryStore};
//!
//! fn main() -> ExitCode {
//!     leasehold_conformance::main("memory", || async {
//!         let clock = Clock::frozen();
//!         let store = MemoryStore::with_clock(clock.clone());
//!         Ok(Fixture::new(store.clone()).second(store).clock(clock))
//!     })
//! }
//! ```
//!
//! Each case carries the number of the line of the contract ([`Store`](leasehold_core::Store)) that it holds the
//! store to. What the store says it can do chooses the cases; what is skipped is printed with the reason, and
//! `--skipped` prints nothing else.
//!
//! # What this crate does not do
//!
//! It starts no servers and breaks no networks, and it measures nothing: no case asserts a speed.
#![forbid(unsafe_code)]

mod agree;
mod asking;
mod bench;
mod cases;
mod chaos;
mod client;
mod failure;
pub mod faults;
mod history;
mod need;
mod polls;
mod random;
mod recorder;
mod runner;
mod seed;
mod steps;
mod subject;
mod watched;
mod workload;

use std::process::ExitCode;

pub use chaos::{Chaos, Mishap, Odds};
pub use failure::{Check, Failure};
pub use history::{
    ClaimKey, FaultKind, FileError, Happened, HistoryWriter, Least, Record, RecordError, Report, Violation,
    check_history, read_history,
};
pub use polls::drop_after;
pub use runner::Suite;
pub use subject::{Fixture, Subject};

/// How many lines the contract has.
pub const LINES: u8 = 19;

/// Runs the suite for a store as the arguments of the program ask for.
#[must_use]
pub fn main(name: &str, subject: impl Subject) -> ExitCode {
    Suite::new(name, subject).main()
}
