//! Two workers, one order: each does its work alone, and waits for the other at most five seconds.

use std::time::Duration;

use leasehold::{Leasehold, Result};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    // With `connect("sqlite:/var/lib/app/locks.db")` the two workers may be two processes.
    let client = Leasehold::memory();
    let work = async |worker: &str| {
        client
            .lock("order:10017")
            .ttl(Duration::from_secs(30))
            .run_within(Duration::from_secs(5), async |lease| {
                println!("{worker} ships under token {}", lease.token());
            })
            .await
    };
    let (one, two) = tokio::join!(work("one"), work("two"));
    one.and(two)?;
    client.close().await
}
