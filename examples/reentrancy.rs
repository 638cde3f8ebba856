//! A function that takes a lock which its caller may hold already: the scope travels with the work.

use leasehold::{Leasehold, Result, Scope};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let client = Leasehold::memory();
    let me = client.scope("request-8c1f");
    let customer = me.lock("customer:7").acquire().await?;
    charge(&me).await?;
    println!("still held: {}", customer.check().is_ok());
    customer.release().await?;
    println!("free: {}", client.lock("customer:7").try_acquire().await?.is_some());
    client.close().await
}

/// Counted: the same lease, the same token, and no deadlock.
async fn charge(me: &Scope) -> Result<()> {
    let customer = me.lock("customer:7").acquire().await?;
    println!("charging under token {}", customer.token());
    customer.release().await
}
