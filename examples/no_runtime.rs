//! A program without async work: it blocks its only thread, and keeps its lease all the same.

use std::time::Duration;

use leasehold::{Leasehold, Result};
use smol::block_on;

fn main() -> Result<()> {
    let client = Leasehold::memory();
    let lease = block_on(client.lock("x").ttl(Duration::from_secs(1)).acquire())?;
    std::thread::sleep(Duration::from_secs(2));
    println!("still held under token {} after twice its ttl", lease.check()?);
    block_on(lease.release())?;
    block_on(client.close())
}
