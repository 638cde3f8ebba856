//! A tenth of what `cargo xtask prove faults-redis` does: each fault of a real Redis server for three seconds.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::time::Duration;

use leasehold_harness::campaign::{FAULTS, Fault, Fought, Unfought, campaign, quorum, split};

const LASTING: Duration = Duration::from_secs(3);

fn befalls(name: &str) {
    let fault = Fault::named(name).unwrap();
    judged(campaign(fault, LASTING, 1));
}

fn judged(fought: Result<Fought, Unfought>) {
    match fought {
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
    judged(quorum(LASTING * 2, 1));
}

/// A part of `cargo xtask prove split`.
#[test]
fn a_network_that_falls_apart() {
    judged(split(LASTING * 2, 1));
}
