//! One of many processes that do one thing after the other, each once.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use leasehold::{BootTime, Clock, Code, Error, Leasehold, OnceOutcome, OnceRun};
use leasehold_harness::once::{name, resource, store};
use leasehold_harness::puppet::Trouble;
use leasehold_harness::resource::{Had, Resource};

/// How long to wait for somebody else's run.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest step of the work, before and after its effect, in microseconds.
const MOST_STEP: u64 = 8_000;

/// Does one thing after the other until its time is up.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where the store and the resource are.
    #[arg(long)]
    folder: PathBuf,
    /// The ttl in milliseconds.
    #[arg(long)]
    ttl_ms: u64,
    /// Until when, by the boot clock, in nanoseconds.
    #[arg(long)]
    until_ns: u64,
    #[arg(long)]
    seed: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Trouble> {
    let Arguments { folder, ttl_ms, until_ns, seed } = Arguments::parse();
    fastrand::seed(seed);
    let (clock, until) = (Clock::system(), BootTime::from_nanos(until_ns));
    let client = Leasehold::builder().timeout(Duration::from_secs(20)).connect(&store(&folder)).await?;
    let books = RefCell::new(Resource::open(&resource(&folder))?);
    // Whoever comes late need not ask for all that is done.
    let mut key = books.borrow().last_done()?;
    while clock.now() < until {
        let once = client.once(name(key)).ttl(Duration::from_millis(ttl_ms));
        let work = async |run: &OnceRun| pay(&books, key, run).await;
        let outcome =
            if fastrand::bool() { once.run(work).await } else { once.run_within(PATIENCE, work).await };
        match outcome {
            Ok(OnceOutcome::Ran(result)) => {
                result?;
                books.borrow().done(key)?;
                key += 1;
            }
            // Whose run it was may have been killed before he could write it down.
            Ok(OnceOutcome::AlreadyDone { .. }) => {
                books.borrow().done(key)?;
                key += 1;
            }
            Ok(OnceOutcome::InProgress(_)) => pause(20_000).await,
            // Frozen for too long; somebody else goes on.
            Err(Error::Lost(_)) => {}
            Err(error) if error.code() == Code::LOST => {}
            Err(error) => return Err(error.into()),
        }
    }
    client.close().await?;
    Ok(())
}

/// The work of one key, in steps between which it may be killed.
async fn pay(books: &RefCell<Resource>, key: u64, run: &OnceRun) -> Result<Had, Trouble> {
    books.borrow().starts(key)?;
    pause(MOST_STEP).await;
    let had = books.borrow_mut().effect(key, run.token())?;
    pause(MOST_STEP).await;
    Ok(had)
}

async fn pause(most: u64) {
    tokio::time::sleep(Duration::from_micros(fastrand::u64(0..=most))).await;
}
