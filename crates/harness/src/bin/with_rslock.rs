//! Contends for a key with the crate `rslock`. See `foreign/python/contender.py` for what is said when.

use std::io::BufRead as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use leasehold::Clock;
use leasehold_harness::foreign::journal::Visitor;
use leasehold_harness::puppet::Trouble;
use rslock::{LockError, LockManager};

const NAME: &str = "rslock";
/// Long enough that no lock runs out, whatever the machine does meanwhile.
const TTL: Duration = Duration::from_secs(20);
/// How often it tries for one acquire, and how long it waits between two tries at the most.
const TRIES: (u32, Duration) = (50, Duration::from_millis(20));
/// Which version was built: the crate itself does not say.
const LOCK: &str = include_str!("../../../../Cargo.lock");

#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    order: Order,
}

#[derive(Debug, Subcommand)]
enum Order {
    Contend { url: String, key: String, seconds: f64, journal: PathBuf, hold_ms: u64 },
    Hold { url: String, key: String },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Trouble> {
    let acquired = match Arguments::parse().order {
        Order::Hold { url, key } => {
            let lock = manager(&url).lock(key.as_str(), TTL).await?;
            ready()?;
            lock.release().await;
            1
        }
        Order::Contend { url, key, seconds, journal, hold_ms } => {
            let (clock, manager) = (Clock::system(), manager(&url));
            let mut visitor = Visitor::open(&journal, NAME)?;
            ready()?;
            let until = clock.now().after(Duration::from_secs_f64(seconds));
            let mut acquired = 0;
            while clock.now() < until {
                let lock = match manager.lock(key.as_str(), TTL).await {
                    Ok(lock) => lock,
                    Err(LockError::Unavailable) => continue,
                    Err(error) => return Err(error.into()),
                };
                acquired += 1;
                visitor.enter(None)?;
                tokio::time::sleep(Duration::from_millis(hold_ms)).await;
                visitor.leave()?;
                lock.release().await;
                tokio::time::sleep(Duration::from_micros(fastrand::u64(5_000..20_000))).await;
            }
            acquired
        }
    };
    println!("{{\"acquired\": {acquired}}}");
    Ok(())
}

/// Of one server, or of several with commas between them.
fn manager(url: &str) -> LockManager {
    let mut manager = LockManager::new(url.split(',').collect());
    let (count, delay) = TRIES;
    manager.set_retry(count, delay);
    manager
}

/// Says so, and waits for the word.
fn ready() -> Result<(), Trouble> {
    println!("{{\"client\": \"{NAME}\", \"version\": \"{}\"}}", version().ok_or("it is not in Cargo.lock")?);
    std::io::stdin().lock().read_line(&mut String::new())?;
    Ok(())
}

fn version() -> Option<&'static str> {
    let mut lines = LOCK.lines().skip_while(|line| *line != "name = \"rslock\"");
    lines.nth(1)?.strip_prefix("version = \"")?.strip_suffix('"')
}
