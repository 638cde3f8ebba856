//! Random programs against every primitive, one line for each store: a part of what `cargo xtask prove primitives`
//! runs.

use leasehold_harness::primitives::{memory_with_faults, prove, sqlite};

#[test]
fn memory_with_faults_is_linearizable() {
    let traffic = prove(&memory_with_faults(), 1000).unwrap();
    println!("{traffic}");
    traffic.judge(true).unwrap();
}

#[test]
fn sqlite_is_linearizable() {
    let traffic = prove(&sqlite(), 10).unwrap();
    println!("{traffic}");
    traffic.judge(false).unwrap();
}
