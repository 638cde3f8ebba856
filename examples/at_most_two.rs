//! At most two mails are sent at once, by however many workers; permits of a dead worker come back after the ttl.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::{Leasehold, Result};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let client = Leasehold::memory();
    let (now, most) = (AtomicU32::new(0), AtomicU32::new(0));
    let send = async |mail: u32| {
        let slot = client.semaphore("smtp", 2).acquire_within(Duration::from_secs(60)).await?;
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(20)).await;
        now.fetch_sub(1, Ordering::SeqCst);
        println!("mail {mail} was sent");
        slot.release().await
    };
    tokio::try_join!(send(1), send(2), send(3), send(4), send(5))?;
    println!("at most {} at once", most.load(Ordering::SeqCst));
    client.close().await
}
