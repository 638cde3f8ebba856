//! Two accounts at once, all or none: transfers in opposite directions never wait for each other.

use std::time::Duration;

use leasehold::{Leasehold, Result};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let client = Leasehold::memory();
    let transfer = async |from: &str, to: &str| {
        let both = client.lock_all([from, to]).ttl(Duration::from_secs(20));
        both.run_within(Duration::from_secs(3), async |held| {
            held.check()?;
            // Each account is protected by its own token.
            for (name, token) in held.tokens() {
                println!("{from} to {to}: {name} under token {token}");
            }
            Ok::<_, leasehold::Error>(())
        })
        .await?
    };
    tokio::try_join!(transfer("account:17", "account:42"), transfer("account:42", "account:17"))?;
    client.close().await
}
