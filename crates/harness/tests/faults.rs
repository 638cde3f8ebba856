//! A tenth of what `cargo xtask prove faults-redis` does: each fault of a real Redis server for three seconds.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::time::Duration;

use leasehold_harness::campaign::{FAULTS, Fault, SENTINEL, Unfought, campaign, quorum, sentinel};

const LASTING: Duration = Duration::from_secs(3);

fn befalls(name: &str) {
    let fault = Fault::named(name).unwrap();
    match campaign(fault, LASTING, 1) {
        Ok(fought) => println!("{fought}"),
        Err(Unfought::Missing(tool)) => eprintln!("skipped: there is no {tool} here"),
        Err(Unfought::Broken(failure)) => panic!("{failure}"),
    }
}

/// A test for each, so that several run at once and each failure has its name.
macro_rules! faults {
    ($($name:ident),+ $(,)?) => {
        $(#[test]
        fn $name() {
            befalls(stringify!($name));
        })+

        #[test]
        fn every_fault_of_the_table_has_its_test() {
            let here = [$(stringify!($name)),+];
            assert_eq!(FAULTS.iter().map(|fault| fault.name).collect::<Vec<_>>(), here);
        }
    };
}

faults!(
    stopped,
    restarted,
    forgotten,
    forgotten_delayed,
    flushed,
    scripts_flushed,
    clients_killed,
    replies_eaten,
    requests_eaten,
    frozen,
    frozen_for_good,
    delayed,
    cut,
    refused,
    trickled,
    duplicated,
    mishaps,
    denied,
    full,
    paused,
    busy,
    demoted,
    clock_forward,
    clock_back,
    clock_trembles,
);

/// A part of `cargo xtask prove quorum`.
#[test]
fn nodes_of_a_quorum() {
    match quorum(LASTING * 2, 1) {
        Ok(fought) => println!("{fought}"),
        Err(Unfought::Missing(tool)) => eprintln!("skipped: there is no {tool} here"),
        Err(Unfought::Broken(failure)) => panic!("{failure}"),
    }
}

/// A part of `cargo xtask prove sentinel`.
#[test]
fn servers_that_take_over_from_each_other() {
    for fault in SENTINEL {
        match sentinel(fault, LASTING * 3, 1) {
            Ok(fought) => println!("{fought}"),
            Err(Unfought::Missing(tool)) => return eprintln!("skipped: there is no {tool} here"),
            Err(Unfought::Broken(failure)) => panic!("{failure}"),
        }
    }
}
