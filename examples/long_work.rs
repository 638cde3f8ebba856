//! Work in steps under a lease by hand: renewed in the background, checked before each step, stopped when lost.

use std::time::Duration;

use leasehold::{Leasehold, Result};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let client = Leasehold::memory();
    let lease = client.lock("reindex").ttl(Duration::from_secs(3)).note("nightly").acquire().await?;
    for chunk in 1..=3 {
        // At least a second must be left before the next step; no step takes longer.
        lease.ensure(Duration::from_secs(1)).await?;
        tokio::select! {
            () = index(chunk) => println!("chunk {chunk} under token {}", lease.check()?),
            lost = lease.lost() => return Err(lost.into()),
        }
    }
    lease.release().await?;
    client.close().await
}

async fn index(_chunk: u32) {
    tokio::time::sleep(Duration::from_millis(50)).await;
}
