//! The same futures on another executor: the client keeps its timers and I/O on a thread of its own.

use std::time::Duration;

use leasehold::{Leasehold, Result};

fn main() -> Result<()> {
    smol::block_on(async {
        let client = Leasehold::memory();
        let lease = client.lock("x").ttl(Duration::from_secs(1)).acquire().await?;
        smol::Timer::after(Duration::from_secs(2)).await;
        println!("still held under token {} after twice its ttl", lease.check()?);
        lease.release().await?;
        client.close().await
    })
}
