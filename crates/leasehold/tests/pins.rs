//! What may cross threads: every public type and every public future, so that none can lose it unnoticed.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::sim::{Mishap, Sim, Wire};
use leasehold::{
    Builder, Event, Lease, LeaseState, LeaseTicket, Leasehold, Ledger, Lock, Outcome, Result, Token,
    blocking, config,
};

fn everything<T: Send + Sync + Unpin + 'static>() {}
fn send<T: Send>(future: T) -> T {
    future
}

/// Types that need no pin, and why.
const NO_TYPE: &[(&str, &str)] =
    &[("Observer", "a trait that asks for it"), ("AsyncLedger", "a trait that asks for it")];

#[test]
fn every_type_may_be_sent_and_shared() {
    everything::<Builder>();
    everything::<Event>();
    everything::<Lease>();
    everything::<LeaseState>();
    everything::<LeaseTicket>();
    everything::<Leasehold>();
    everything::<Lock>();
    everything::<Outcome<u8>>();
    everything::<config::Config>();
    everything::<blocking::Builder>();
    everything::<blocking::Lease>();
    everything::<blocking::Leasehold>();
    everything::<blocking::Lock>();
    everything::<Sim>();
    everything::<Wire>();
    everything::<Mishap>();
    everything::<leasehold::Error>();
    everything::<leasehold::Busy>();
    everything::<leasehold::Lost>();
    #[cfg(feature = "metrics")]
    everything::<leasehold::Metrics>();
}

fn work(ledger: &dyn Ledger) -> futures_util::future::BoxFuture<'_, Result<()>> {
    Box::pin(async move { ledger.records(None, leasehold::RecordId(0), 1).await.map(drop) })
}

/// Every future is made, asked whether it may cross threads, and dropped before it was polled.
#[test]
fn every_future_may_be_sent() {
    let (second, client) = (Duration::from_secs(1), Leasehold::memory());
    let token = Token::new(1).unwrap();
    drop(send(Leasehold::connect("memory:")));
    drop(send(Leasehold::from_env()));
    drop(send(Builder::default().connect("memory:")));
    drop(send(Builder::default().open("memory:".parse().unwrap())));
    drop(send(client.inspect("x")));
    drop(send(client.list("")));
    drop(send(client.with_ledger(work)));
    drop(send(client.find("x", token)));
    drop(send(client.break_lease("x", token)));
    drop(send(client.life()));
    drop(send(client.clone().close()));

    let lock = client.lock("x");
    drop(send(lock.acquire()));
    drop(send(lock.acquire_within(second)));
    drop(send(lock.try_acquire()));
    drop(send(lock.attempt()));
    drop(send(lock.run(async |lease| lease.check().is_ok())));
    drop(send(lock.run_within(second, async |lease| lease.ensure(Duration::ZERO).await)));
    drop(send(lock.try_run(async |lease| lease.lost().await)));

    let lease = smol::block_on(lock.acquire()).unwrap();
    drop(send(lease.ensure(second)));
    drop(send(lease.lost()));
    drop(send(lease.endangered()));
    drop(send(lease.changed()));
    drop(send(lease.ticket()));
    drop(send(client.resume(smol::block_on(lease.ticket()).unwrap())));
    drop(send(lease.release_closed(second, "")));
    drop(send(smol::block_on(client.lock("y").acquire()).unwrap().release()));

    let sim = Sim::new();
    let lease = smol::block_on(sim.client().lock("x").acquire()).unwrap();
    drop(send(sim.advance(second)));
    drop(send(sim.until(sim.sleep(second))));
    drop(send(sim.mend(&lease)));
    drop(send(sim.expire(&lease)));
    drop(send(sim.break_lease(&lease)));
    drop(send(sim.fail_over()));
    drop(send(sim.fail_over_losing(second)));
}

/// The whole of a life of a lease, in one future that knows no runtime.
async fn all_of_it(client: Leasehold) -> Result<Token> {
    let lease = client.lock("x").acquire_within(Duration::from_secs(5)).await?;
    lease.ensure(Duration::from_secs(1)).await?;
    lease.release().await?;
    client.lock("x").run(async |lease| lease.token()).await
}

#[test]
fn it_may_be_spawned_on_tokio_and_on_smol() {
    let client = Leasehold::memory();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let first = runtime.block_on(runtime.spawn(all_of_it(client.clone()))).unwrap().unwrap();
    let second = smol::block_on(smol::spawn(all_of_it(client))).unwrap();
    assert!(second > first);
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[test]
fn nothing_public_is_without_a_pin() {
    let (here, src) = (include_str!("pins.rs"), Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let mut missing = BTreeSet::new();
    for path in sources(&src) {
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            if let Some(rest) = line.trim_start().strip_prefix("pub async fn ") {
                let name = words(rest).next().unwrap();
                if !here.contains(&format!(".{name}(")) && !here.contains(&format!("::{name}(")) {
                    missing.insert(name.to_owned());
                }
            }
        }
    }
    let exports = std::fs::read_to_string(src.join("lib.rs")).unwrap();
    for export in exports.split("pub use ").skip(1) {
        let export = export.split(';').next().unwrap();
        let types = words(export).filter(|word| word.starts_with(char::is_uppercase));
        // The core's are plain values.
        for name in types.filter(|_| !export.starts_with("leasehold_core")) {
            let exempt = NO_TYPE.iter().any(|(exempt, _)| *exempt == name);
            let pinned = [name.to_owned(), format!("leasehold::{name}")];
            if !exempt && !pinned.iter().any(|name| here.contains(&format!("everything::<{name}"))) {
                missing.insert(name.to_owned());
            }
        }
    }
    assert!(missing.is_empty(), "pin these here: {missing:?}");
}
