//! A quorum of stores in memory, held to the contract by the suite that every store must pass: two clients of the same
//! five nodes.

use std::process::ExitCode;
use std::sync::Arc;

use leasehold::{Clock, MemoryStore, Quorum, Store};
use leasehold_conformance::{Check, Fixture};

fn main() -> ExitCode {
    leasehold_conformance::main("quorum", || async { fixture() })
}

fn fixture() -> Check<Fixture> {
    let clock = Clock::frozen();
    let nodes: Vec<_> = (0..5).map(|_| MemoryStore::with_clock(clock.clone())).collect();
    let client = || {
        let nodes = nodes.iter().map(|node| Arc::new(node.clone()) as Arc<dyn Store>).collect();
        Quorum::builder(nodes).clock(clock.clone()).build()
    };
    // A node whose clock steps has no say for a while; the tests of the quorum itself show that.
    Ok(Fixture::new(client()?).second(client()?).clock(clock).one_clock().of_several())
}
