//! Contends for a name in ZooKeeper with the recipe of the crate `zookeeper-client`. See `foreign/python/contender.py`
//! for what is said when.

use std::io::BufRead as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use leasehold::Clock;
use leasehold_harness::foreign::journal::Visitor;
use leasehold_harness::puppet::Trouble;
use zookeeper_client::{Acls, Client, CreateMode, LockClient, LockOptions, LockPrefix};

const NAME: &str = "zookeeper-client";
/// Long enough that no session runs out, whatever the machine does meanwhile.
const TTL: Duration = Duration::from_secs(20);
/// As Curator's InterProcessMutex has it.
const PREFIX: &str = "lock-";
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
            let client = connect(&url).await?;
            let lock = lock(&client, &key).await?;
            ready()?;
            give_back(lock).await?;
            1
        }
        Order::Contend { url, key, seconds, journal, hold_ms } => {
            let (clock, client) = (Clock::system(), connect(&url).await?);
            let mut visitor = Visitor::open(&journal, NAME)?;
            ready()?;
            let until = clock.now().after(Duration::from_secs_f64(seconds));
            let mut acquired = 0;
            while clock.now() < until {
                let lock = lock(&client, &key).await?;
                acquired += 1;
                visitor.enter(None)?;
                tokio::time::sleep(Duration::from_millis(hold_ms)).await;
                visitor.leave()?;
                give_back(lock).await?;
                tokio::time::sleep(Duration::from_micros(fastrand::u64(5_000..20_000))).await;
            }
            acquired
        }
    };
    println!("{{\"acquired\": {acquired}}}");
    Ok(())
}

async fn connect(url: &str) -> Result<Client, Trouble> {
    Ok(Client::connector().with_session_timeout(TTL).connect(url).await?)
}

async fn lock<'a>(client: &'a Client, key: &str) -> Result<LockClient<'a>, Trouble> {
    let acls = Acls::anyone_all();
    let options = LockOptions::new(acls).with_ancestor_options(CreateMode::Container.with_acls(acls))?;
    Ok(client.lock(LockPrefix::new_curator(key, PREFIX)?, b"", options).await?)
}

/// It is gone when this returns: dropped alone, it would go some time later.
async fn give_back(lock: LockClient<'_>) -> Result<(), Trouble> {
    Ok(lock.client().delete(lock.lock_path(), None).await?)
}

/// Says so, and waits for the word.
fn ready() -> Result<(), Trouble> {
    println!("{{\"client\": \"{NAME}\", \"version\": \"{}\"}}", version().ok_or("it is not in Cargo.lock")?);
    std::io::stdin().lock().read_line(&mut String::new())?;
    Ok(())
}

fn version() -> Option<&'static str> {
    let mut lines = LOCK.lines().skip_while(|line| *line != "name = \"zookeeper-client\"");
    lines.nth(1)?.strip_prefix("version = \"")?.strip_suffix('"')
}
