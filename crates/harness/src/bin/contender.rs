//! One of many processes that fight for one lock, and write down what happens to them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Parser;
use leasehold::{Clock, Event, Leasehold, LockName, Observer, Share};
use leasehold_conformance::{Happened, HistoryWriter, Record};
use leasehold_core::Turn;
use leasehold_harness::puppet::Trouble;

/// Fights for a lock until its time is up.
#[derive(Debug, Parser)]
struct Arguments {
    /// The store's URL.
    #[arg(long)]
    store: String,
    /// What to fight for.
    #[arg(long)]
    name: String,
    /// Where to write down what happens.
    #[arg(long)]
    history: PathBuf,
    /// The number of this process in the history.
    #[arg(long)]
    process: u32,
    /// The ttl in milliseconds.
    #[arg(long)]
    ttl_ms: u64,
    /// Until when, by the boot clock, in nanoseconds.
    #[arg(long)]
    until_ns: u64,
    /// How long a lease is held at the most, in microseconds.
    #[arg(long)]
    hold_us: u64,
    /// How long it rests between two at the most, in microseconds.
    #[arg(long, default_value_t = 0)]
    rest_us: u64,
    /// Keep strict order.
    #[arg(long)]
    fair: bool,
    #[arg(long)]
    seed: u64,
}

/// The pen: records of the main thread and of the client's own.
#[derive(Debug)]
struct Pen {
    writer: Mutex<HistoryWriter>,
    clock: Clock,
    process: u32,
    claim: AtomicU64,
}

impl Pen {
    fn write(&self, what: Happened) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let claim = self.claim.load(Ordering::SeqCst);
        let record = Record { at: self.clock.now(), process: self.process, claim, what };
        if let Err(error) = writer.write(&record) {
            // A history with holes would be judged as if nothing had happened in them.
            panic!("the history cannot be written: {error}");
        }
    }
}

impl Observer for Pen {
    fn on(&self, event: &Event) {
        match event {
            Event::Renewed { remaining, .. } => {
                self.write(Happened::Renewed { valid_until: self.clock.now().after(*remaining) });
            }
            Event::Waiting { .. } => self.write(Happened::Queued),
            _ => {}
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Trouble> {
    let arguments = Arguments::parse();
    fastrand::seed(arguments.seed);
    let (clock, until) = (Clock::system(), leasehold::BootTime::from_nanos(arguments.until_ns));
    let writer = Mutex::new(HistoryWriter::open(&arguments.history)?);
    let (process, claim) = (arguments.process, AtomicU64::new(0));
    let pen = Arc::new(Pen { writer, clock: clock.clone(), process, claim });
    let builder = Leasehold::builder().observer(pen.clone()).timeout(Duration::from_secs(20));
    let client = builder.connect(&arguments.store).await?;
    let lock = client.lock(&arguments.name).ttl(Duration::from_millis(arguments.ttl_ms));
    let lock = if arguments.fair { lock.fair() } else { lock };
    let turn = if arguments.fair { Turn::Fifo } else { Turn::Any };
    let name = LockName::parse(&arguments.name)?;
    while clock.now() < until {
        if arguments.rest_us > 0 {
            let rest = Duration::from_micros(fastrand::u64(0..=arguments.rest_us));
            clock.sleep_until(clock.now().after(rest)).await;
        }
        pen.claim.fetch_add(1, Ordering::SeqCst);
        let (name, share) = (name.clone(), Share::EXCLUSIVE);
        pen.write(Happened::Asked { name, attempt: 1, turn, share });
        let lease = tokio::select! {
            lease = lock.acquire() => lease?,
            () = clock.sleep_until(until) => {
                pen.write(Happened::GaveUp);
                break;
            }
        };
        let valid_until = clock.now().after(lease.remaining());
        pen.write(Happened::Granted { token: lease.token(), valid_until });
        // Now and then so long that it must be renewed, by who is killed or frozen like everybody.
        let long = fastrand::u32(..200) == 0;
        let most = if long { arguments.ttl_ms * 600 } else { arguments.hold_us };
        let hold = Duration::from_micros(if long { most } else { fastrand::u64(0..=most) });
        clock.sleep_until(clock.now().after(hold)).await;
        if lease.check().is_err() {
            pen.write(Happened::Lost);
            continue;
        }
        pen.write(Happened::ReleaseCalled);
        match lease.release().await {
            Ok(()) => pen.write(Happened::Released),
            Err(leasehold::Error::Lost(_)) => pen.write(Happened::Lost),
            Err(error) => return Err(error.into()),
        }
    }
    client.close().await?;
    Ok(())
}
