//! What may cross threads: every public type and every public future, so that none can lose it unnoticed.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::sim::{Mishap, Sim, Wire};
use leasehold::{
    Backed, BackedLock, Bare, Both, Builder, Election, Event, HandOver, Held, LeaderWatch, Lease, LeasePair,
    LeaseSet, LeaseState, LeaseTicket, Leasehold, Ledger, Lock, LockAll, Once, OnceOutcome, OnceRun,
    OpenLock, OpenRun, Outcome, Period, Quorum, QuorumBuilder, Remembered, Result, RwLock, Scope, Stuck,
    Term, Token, Zone, blocking, config,
};

fn everything<T: Send + Sync + Unpin + 'static>() {}
fn send<T: Send>(future: T) -> T {
    future
}

/// Types that need no pin, and why.
const NO_TYPE: &[(&str, &str)] = &[
    ("Observer", "a trait that asks for it"),
    ("AsyncLedger", "a trait that asks for it"),
    ("AfterTerm", "a trait of what the work answers, which stays where the work is"),
];

#[test]
fn every_type_may_be_sent_and_shared() {
    everything::<Backed>();
    everything::<BackedLock>();
    everything::<Bare>();
    everything::<Both>();
    everything::<Builder>();
    everything::<Election>();
    everything::<Event>();
    everything::<HandOver>();
    everything::<Held>();
    everything::<LeaderWatch>();
    everything::<Lease>();
    everything::<LeasePair>();
    everything::<LeaseSet>();
    everything::<LeaseState>();
    everything::<LeaseTicket>();
    everything::<Leasehold>();
    everything::<Lock>();
    everything::<LockAll>();
    everything::<Once>();
    everything::<OnceOutcome<u8, u8>>();
    everything::<OnceRun>();
    everything::<OpenLock>();
    everything::<OpenRun>();
    everything::<Outcome<u8>>();
    everything::<Period>();
    everything::<Remembered>();
    everything::<RwLock>();
    everything::<Scope>();
    everything::<Stuck>();
    everything::<Term>();
    everything::<Zone>();
    everything::<config::Config>();
    everything::<Sim>();
    everything::<Wire>();
    everything::<Quorum>();
    everything::<QuorumBuilder>();
    everything::<Mishap>();
    everything::<leasehold::Error>();
    everything::<leasehold::Busy>();
    everything::<leasehold::Lost>();
    #[cfg(feature = "metrics")]
    everything::<leasehold::Metrics>();
}

#[test]
fn every_blocking_type_may_be_sent_and_shared() {
    everything::<blocking::Backed>();
    everything::<blocking::BackedLock>();
    everything::<blocking::Both>();
    everything::<blocking::Builder>();
    everything::<blocking::Election>();
    everything::<blocking::HandOver>();
    everything::<blocking::Held>();
    everything::<blocking::LeaderWatch>();
    everything::<blocking::Lease>();
    everything::<blocking::LeasePair>();
    everything::<blocking::LeaseSet>();
    everything::<blocking::Leasehold>();
    everything::<blocking::Lock>();
    everything::<blocking::LockAll>();
    everything::<blocking::Once>();
    everything::<blocking::OnceRun>();
    everything::<blocking::OpenLock>();
    everything::<blocking::RwLock>();
    everything::<blocking::Scope>();
    everything::<blocking::Term>();
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
    drop(send(client.checkup(Duration::from_secs(30))));
    drop(send(client.bare("x", 1, Duration::ZERO)));
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

    let mut lease = smol::block_on(client.lock("z").acquire()).unwrap();
    drop(send(lease.upgrade()));
    drop(send(lease.upgrade_within(second)));
    drop(send(lease.try_upgrade()));
    drop(send(lease.downgrade()));
    let given = smol::block_on(lease.hand_over()).unwrap();
    drop(send(client.take_over(given.ticket().clone())));
    drop(send(given.taken()));
    drop(send(smol::block_on(client.lock("z").acquire()).unwrap().hand_over()));

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

#[test]
fn every_future_of_several_locks_may_be_sent() {
    let (second, client) = (Duration::from_secs(1), Leasehold::memory());
    let all = client.lock_all(["x", "y"]);
    drop(send(all.acquire()));
    drop(send(all.acquire_within(second)));
    drop(send(all.try_acquire()));
    drop(send(all.attempt()));
    drop(send(all.run(async |leases| leases.check().is_ok())));
    drop(send(all.run_within(second, async |leases| leases.ensure(Duration::ZERO).await)));
    drop(send(all.try_run(async |leases| leases.lost().await)));
    let leases = smol::block_on(all.acquire()).unwrap();
    drop(send(leases.ensure(second)));
    drop(send(leases.lost()));
    drop(send(leases.release()));

    let both = client.lock("v").and(client.lock("w"));
    drop(send(both.acquire()));
    drop(send(both.acquire_within(second)));
    drop(send(both.try_acquire()));
    drop(send(both.attempt()));
    drop(send(both.run(async |pair| pair.check().is_ok())));
    drop(send(both.run_within(second, async |pair| pair.ensure(Duration::ZERO).await)));
    drop(send(both.try_run(async |pair| pair.lost().await)));
    let pair = smol::block_on(both.acquire()).unwrap();
    drop(send(pair.ensure(second)));
    drop(send(pair.lost()));
    drop(send(pair.release()));
}

#[test]
fn every_future_of_a_lock_with_a_policy_may_be_sent() {
    let (second, client) = (Duration::from_secs(1), Leasehold::memory());
    let open = client.lock("x").or_open();
    drop(send(open.acquire()));
    drop(send(open.acquire_within(second)));
    drop(send(open.attempt()));
    drop(send(open.run(async |held| held.lease().is_some())));
    drop(send(open.run_within(second, async |held| held.lease().is_some())));
    drop(send(open.try_run(async |held| held.lease().is_some())));
    drop(send(smol::block_on(open.acquire()).unwrap().release()));

    let backed = client.lock("y").or_else(client.lock("z"));
    drop(send(backed.acquire()));
    drop(send(backed.acquire_within(second)));
    drop(send(backed.attempt()));
    drop(send(backed.run(async |backed| backed.lease().check().is_ok())));
    drop(send(backed.run_within(second, async |backed| backed.lease().check().is_ok())));
    drop(send(backed.try_run(async |backed| backed.lease().lost().await)));
}

#[test]
fn every_future_of_terms_and_of_what_is_done_once_may_be_sent() {
    let (second, client) = (Duration::from_secs(1), Leasehold::memory());
    let election = client.election("x");
    drop(send(election.campaign()));
    drop(send(election.lead(|term| async move { ControlFlow::Break(term.ends().await) })));
    drop(send(election.watch().changed()));
    let term = smol::block_on(election.campaign()).unwrap();
    drop(send(term.ends()));
    drop(send(term.resign()));

    let once = client.once("y");
    drop(send(once.run(async |run| run.check())));
    drop(send(once.run_within(second, async |run| run.lease().ensure(Duration::ZERO).await)));
    drop(send(once.forget()));
    drop(send(client.scope("me").lock("z").acquire()));
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
    let blocking = std::fs::read_to_string(src.join("blocking/mod.rs")).unwrap();
    for export in blocking.split("pub use ").skip(1) {
        let types =
            words(export.split(';').next().unwrap()).filter(|word| word.starts_with(char::is_uppercase));
        let types = types.map(|name| format!("blocking::{name}"));
        missing.extend(types.filter(|name| !here.contains(&format!("everything::<{name}>"))));
    }
    assert!(missing.is_empty(), "pin these here: {missing:?}");
}
