//! A short task on five hosts whose clocks differ a little: it runs once, not five times one after the other.

use std::time::Duration;

use leasehold::{Leasehold, Outcome, Result};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let client = Leasehold::memory();
    let task = client
        .lock("cleanup")
        // A run that hangs is stopped after this long.
        .max_hold(Duration::from_secs(600))
        // A run that takes a second, or is killed, keeps others out for as long as clocks may differ.
        .at_least(Duration::from_secs(30));
    for host in 1..=5 {
        match task
            .try_run(async |lease| println!("host {host} cleans up under token {}", lease.token()))
            .await?
        {
            Outcome::Ran(()) => {}
            Outcome::Skipped(busy) => println!("host {host} has nothing to do: {busy}"),
        }
    }
    client.close().await
}
