//! Waiting, but not for ever: whoever gives up is told who has the lock.

use std::time::Duration;

use leasehold::{Error, Leasehold, Result};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let client = Leasehold::memory();
    let nightly = client.lock("import").note("nightly import").acquire().await?;
    match client.lock("import").acquire_within(Duration::from_millis(100)).await {
        Ok(lease) => lease.release().await?,
        Err(Error::TimedOut { waited, busy }) => println!("busy for {waited:.1?}: {busy}"),
        Err(error) => return Err(error),
    }
    // Without waiting, and without an error.
    if client.lock("import").try_acquire().await?.is_none() {
        println!("not now");
    }
    nightly.release().await?;
    client.close().await
}
