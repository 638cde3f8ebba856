//! One leader of three: each works in its term, and the next one follows when it resigns.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Leasehold, MemoryStore, Result};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    // Clients of one store, as three processes would be.
    let store = Arc::new(MemoryStore::new());
    let campaign = async |who: &str| {
        let client = Leasehold::builder().store(store.clone());
        let election = client.election("indexer").ttl(Duration::from_secs(15)).note(who);
        let lead = election.lead(async |term| {
            println!("{who} leads under token {}", term.token()); // send it with every write
            tokio::select! {
                () = term.cancelled().cancelled_owned() => println!("{who} winds down"),
                () = tokio::time::sleep(Duration::from_millis(50)) => println!("{who} has led long enough"),
            }
            // `()` instead would campaign again, for ever.
            ControlFlow::Break(())
        });
        lead.await
    };
    let follow = async {
        let client = Leasehold::builder().store(store.clone());
        let mut leader = client.election("indexer").watch();
        let mut seen = 0;
        while seen < 3 {
            match leader.changed().await? {
                Some(holder) => {
                    seen += 1;
                    println!("leader: {}", holder.note.text().unwrap_or("?"));
                }
                None => println!("leader: nobody"),
            }
        }
        Ok(())
    };
    tokio::try_join!(campaign("one"), campaign("two"), campaign("three"), follow)?;
    Ok(())
}
