//! Pay once, whatever happens: the token is checked and the payment is written in one transaction.

use std::error::Error;
use std::time::Duration;

use leasehold::{Lease, Leasehold};
use rusqlite::{Connection, params};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut db = Connection::open_in_memory()?;
    db.execute_batch(
        "CREATE TABLE fence (resource TEXT PRIMARY KEY, token INTEGER NOT NULL);
         CREATE TABLE payment (id INTEGER PRIMARY KEY, state TEXT NOT NULL);
         INSERT INTO payment VALUES (1, 'pending');",
    )?;
    let client = Leasehold::memory();
    let payment = client.lock("payment:1").ttl(Duration::from_secs(30));

    let lease = payment.acquire_within(Duration::from_secs(5)).await?;
    println!("paid: {}", pay(&mut db, &lease)?);
    lease.release().await?;

    // A second one finds nothing to pay; and one that was frozen, with an older token, would be refused.
    let lease = payment.acquire_within(Duration::from_secs(5)).await?;
    println!("paid again: {}", pay(&mut db, &lease)?);
    lease.release().await?;
    client.close().await?;
    Ok(())
}

/// Says whether it was this call that paid. Whoever takes the card gets the business id as its key, `payment:1`, so
/// that a retry is the same payment.
fn pay(db: &mut Connection, lease: &Lease) -> Result<bool, Box<dyn Error>> {
    let token = lease.check()?;
    let transaction = db.transaction()?;
    let fresh = transaction.execute(
        "INSERT INTO fence (resource, token) VALUES (?, ?)
         ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE fence.token <= excluded.token",
        params![lease.name().as_str(), token.as_i64()],
    )?;
    if fresh != 1 {
        return Err("a newer holder has been here already".into());
    }
    let paid =
        transaction.execute("UPDATE payment SET state = 'paid' WHERE id = 1 AND state = 'pending'", [])?;
    transaction.commit()?;
    Ok(paid == 1)
}
