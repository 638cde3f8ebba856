//! Many read, one writes; and a reader that finds something to change becomes the writer without anybody in between.

use std::time::Duration;

use leasehold::{Leasehold, Result};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let client = Leasehold::memory();
    let config = client.rwlock("config");
    let (one, two) = (config.read().acquire().await?, config.read().acquire().await?);
    println!("two read under {} and {}", one.token(), two.token());
    one.release().await?;
    two.release().await?;

    // Of those that may come to write only one reads at a time, beside any number of plain readers.
    let mut lease = config.upgradeable().acquire().await?;
    println!("reading under {}", lease.token());
    let token = lease.upgrade_within(Duration::from_secs(30)).await?;
    println!("writing under {token}, higher than before");
    lease.downgrade().await?;
    println!("others may read: {}", config.read().try_acquire().await?.is_some());
    lease.release().await?;
    client.close().await
}
