//! How many uncontended claims and releases a second one process does: `pairs [FILE [SECONDS]]`.

use std::time::Duration;

use leasehold_core::{Claim, ClaimId, Clock, Leave, LockName, Note, Owner, Share, State, Store, Turn};
use leasehold_sqlite::SqliteStore;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = tempfile::tempdir()?;
    let file = arguments.next().unwrap_or_else(|| folder.path().join("pairs.db").display().to_string());
    let seconds = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(3);
    let store = SqliteStore::open(&format!("sqlite:{file}").parse()?)?;
    let (clock, mut pairs) = (Clock::system(), 0u64);
    let start = clock.now();
    let last = start.after(Duration::from_secs(seconds));
    while clock.now() < last {
        let claim = Claim {
            name: LockName::parse("pairs")?,
            id: ClaimId::random()?,
            owner: Owner::default(),
            share: Share::EXCLUSIVE,
            reshape: 0,
            turn: Turn::Now,
            ttl: Duration::from_secs(30),
            note: Note::NONE,
            anchored: false,
            aftermath: leasehold_core::Aftermath::NONE,
            succeeds: None,
            tokens: 1,
            seen: None,
            proposed: None,
            not_after: None,
        };
        if let State::Granted(_) = store.claim(&claim).await?.state {
            pairs += 1;
        }
        store.release(&claim.name, claim.id, Leave::Open).await?;
    }
    let rate = pairs as f64 / clock.now().since(start).as_secs_f64();
    println!("{rate:.0} pairs a second");
    Ok(store.close().await?)
}
