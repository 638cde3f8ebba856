//! A daily report on five servers: whoever comes first builds it, and the others are told what came of it.

use std::time::Duration;

use leasehold::{Leasehold, OnceOutcome, OnceRun, Result};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    // With `connect("sqlite:/var/lib/app/locks.db")` the servers may be processes.
    let client = Leasehold::memory();
    for server in 1..=5 {
        let report = client.once_per("daily", "report").ttl(Duration::from_secs(120));
        match report.run(build_report).await? {
            // An error leaves no mark: the next server may try.
            OnceOutcome::Ran(pages) => println!("server {server} built {} pages", pages?),
            OnceOutcome::AlreadyDone { by, remembered, .. } => {
                println!(
                    "server {server}: done by {by}, {} pages",
                    remembered.map_or("?".into(), |told| told.text().to_owned())
                );
            }
            OnceOutcome::InProgress(busy) => println!("server {server}: running elsewhere, {busy}"),
        }
    }
    client.close().await
}

async fn build_report(run: &OnceRun) -> Result<u32> {
    // Before each step that matters; and send the token with what you write.
    run.check()?;
    run.remember_text("17")?;
    Ok(17)
}
