//! Acquires whose futures are dropped after each of their polls, on a real Redis server: nothing of them stays.
//!
//! The server's clock stands still meanwhile. A place in line would else lapse by itself after two seconds, and whoever
//! waits for a while before he looks would find nothing of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::{Leasehold, Lock};
use leasehold_conformance::{Check, Failure, drop_after, ensure};
use leasehold_core::Clock;

use crate::servers::redis::{Redis, ask, freeze};
use crate::servers::{NoServer, Server, clock};

/// No acquire that is answered takes more polls.
const MOST_POLLS: usize = 6;
/// So many names at once, so that it goes quickly.
const NAMES: usize = 12;
/// After so many tries of a name it is looked at.
const LOOK_EVERY: u64 = 5;
/// What is given back in the background is gone by then, however busy the machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than this takes: nothing runs out by itself.
const TTL: Duration = Duration::from_secs(3600);

/// Names all keys but the tombstones of ids that are spent, and the last token, which are all that may be there.
const LEFT: &str = "local left = {}
    for _, key in ipairs(redis.call('keys', '*')) do
        if not string.find(key, ':x:', 1, true) and key ~= 'leasehold:tokens' then table.insert(left, key) end
    end
    return table.concat(left, ' ')";

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// Futures that were dropped before they were done.
    pub dropped: u64,
    /// .. and those that were done by then, and gave a lease, an error, or "taken".
    pub done: u64,
    /// How often a name was looked at and nothing was found.
    pub looks: u64,
}

/// Drops so many acquires; `None` where there is no such server.
///
/// # Errors
///
/// What was left behind, and on which name.
pub fn cancelled(tries: u64, seed: u64) -> Check<Option<Dropped>> {
    let redis = Redis { clock: Some(clock::library()?), ..Redis::default() };
    let server = match redis.start() {
        Ok(server) => server,
        Err(NoServer::Missing(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    freeze(&server, &Clock::system())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(all(&server, tries, seed)).map(Some)
}

#[derive(Debug, Default)]
struct Counts {
    begun: AtomicU64,
    dropped: AtomicU64,
    done: AtomicU64,
    looks: AtomicU64,
}

async fn all(server: &Server, tries: u64, seed: u64) -> Check<Dropped> {
    let url = format!("redis://{}", server.address());
    let (holder, dropper) = (Leasehold::connect(&url).await?, Leasehold::connect(&url).await?);
    let counts = Arc::new(Counts::default());
    let each = (0..NAMES).map(|number| {
        let (holder, dropper, counts) = (holder.clone(), dropper.clone(), counts.clone());
        let dice = fastrand::Rng::with_seed(seed.wrapping_mul(NAMES as u64).wrapping_add(number as u64));
        tokio::spawn(async move { Name { number, holder, dropper, counts, dice }.run(tries).await })
    });
    let each: Vec<_> = each.collect();
    for task in each {
        task.await??;
    }
    let left = ask(server, &["EVAL", LEFT, "0"])?;
    ensure!(left.starts_with("$0"), "keys are left: {left}");
    let read = |count: &AtomicU64| count.load(Ordering::SeqCst);
    Ok(Dropped { dropped: read(&counts.dropped), done: read(&counts.done), looks: read(&counts.looks) })
}

/// One name, for which somebody else asks as well.
struct Name {
    number: usize,
    holder: Leasehold,
    dropper: Leasehold,
    counts: Arc<Counts>,
    dice: fastrand::Rng,
}

impl Name {
    fn text(&self) -> String {
        format!("dropped:{}", self.number)
    }

    /// A lock of the kind that this name has, for one of its users.
    fn lock(&mut self, client: &Leasehold) -> Lock {
        let (name, second) = (self.text(), self.dice.bool());
        let lock = match self.number % 4 {
            0 => client.lock(name),
            1 => client.lock(name).fair(),
            2 if second => client.rwlock(name).read(),
            2 => client.rwlock(name).write(),
            _ => client.semaphore(name, 2).permits(if second { 2 } else { 1 }),
        };
        lock.ttl(TTL)
    }

    async fn run(mut self, tries: u64) -> Check {
        let mut mine = 0;
        while self.counts.begun.fetch_add(1, Ordering::SeqCst) < tries {
            mine += 1;
            let client = self.holder.clone();
            let in_the_way = match self.dice.u8(..3) {
                0 => None,
                _ => Some(self.lock(&client).acquire_within(PATIENCE).await?),
            };
            let client = self.dropper.clone();
            let lock = self.lock(&client);
            let polls = self.dice.usize(0..=MOST_POLLS);
            let wait = Duration::from_millis(self.dice.u64(1..5));
            let done = match self.dice.u8(..5) {
                0 => drop_after(polls, lock.acquire()).await.is_some(),
                1 => drop_after(polls, lock.acquire_within(wait)).await.is_some(),
                2 => drop_after(polls, lock.try_acquire()).await.is_some(),
                3 => drop_after(polls, lock.attempt()).await.is_some(),
                _ => drop_after(polls, lock.run(async |_| tokio::time::sleep(wait).await)).await.is_some(),
            };
            let count = if done { &self.counts.done } else { &self.counts.dropped };
            count.fetch_add(1, Ordering::SeqCst);
            if let Some(lease) = in_the_way {
                lease.release().await?;
            }
            if mine % LOOK_EVERY == 0 {
                self.is_deserted(mine).await?;
            }
        }
        self.is_deserted(mine).await
    }

    async fn is_deserted(&self, tries: u64) -> Check {
        let clock = Clock::system();
        let until = clock.now().after(PATIENCE);
        loop {
            let snapshot = self.holder.inspect(self.text()).await?;
            if snapshot.holders.is_empty() && snapshot.waiters.is_empty() {
                self.counts.looks.fetch_add(1, Ordering::SeqCst);
                return Ok(());
            }
            if clock.now() >= until {
                return Err(Failure::new(format!(
                    "left on {} after {tries} tries: {snapshot:?}",
                    self.text()
                )));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
