//! A tenth of what `cargo xtask prove cancelled-redis` does: 1,000 acquires that are dropped on a real Redis server.

use leasehold_harness::cancelled::cancelled;

#[test]
fn a_thousand_acquires_that_are_dropped_after_each_poll_leave_no_key_and_no_place() {
    match cancelled(1000, 1).unwrap() {
        None => eprintln!("skipped: there is no redis-server here"),
        Some(dropped) => {
            println!("{dropped:?}");
            // Both must have been put to the test.
            assert!(dropped.dropped > 300 && dropped.done > 100 && dropped.looks > 100, "{dropped:?}");
        }
    }
}
