//! Waits for a lock that a client of another kind holds: how late its release is noticed, and at what cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::{BootTime, Clock, Leasehold};
use tokio::task::JoinSet;

use crate::puppet::Trouble;
use crate::servers::Server;
use crate::servers::redis::{Redis, ask, ask_at, socket};

/// What is promised of the time from the release to the lease.
pub const BOUND: Duration = Duration::from_secs(1);
/// How often those ask who poll blindly: the default of redis-py's lock.
const BLIND: Duration = Duration::from_millis(100);
/// Who waits is given up after so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// How waiters find out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Ours, on a server that sends keyspace events.
    Events,
    /// Ours, on one that does not.
    Looks,
    /// `SET NX` over and over, as most do it.
    Blind,
}

impl Manner {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Events, Self::Looks, Self::Blind];

    /// In a few words.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Events => "leasehold, events",
            Self::Looks => "leasehold, no events",
            Self::Blind => "SET NX every 100ms",
        }
    }
}

/// What was measured.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// From each release to the first lease after it, shortest first.
    pub delays: Vec<Duration>,
    /// What all waiters together asked the server for while they waited.
    pub requests_per_second: f64,
}

/// Lets so many wait for a foreign lock, again and again for so long.
///
/// # Errors
///
/// When there is no server, or nobody ever gets the lock.
pub async fn measure(manner: Manner, waiters: usize, lasting: Duration) -> Result<Measured, Trouble> {
    let events = if manner == Manner::Events { "Kgx" } else { "" };
    let server = Redis::default().line(format!("notify-keyspace-events \"{events}\"")).start()?;
    let clock = Clock::system();
    let until = clock.now().after(lasting);
    let mut clients = Vec::new();
    if manner != Manner::Blind {
        let url = format!("redis+unix://{}", socket(&server).display());
        for _ in 0..waiters {
            clients.push(Leasehold::connect(&url).await?);
        }
    }
    let (mut measured, mut requests, mut waited) = (Measured::default(), 0, Duration::ZERO);
    while measured.delays.is_empty() || clock.now() < until {
        ask(&server, &["SET", "lock:job", "their-secret"])?;
        let round = match manner {
            Manner::Blind => Round::blind(&server, waiters),
            Manner::Events | Manner::Looks => Round::ours(&clients),
        };
        // Long enough for everybody to wait, and at any moment between two looks.
        tokio::time::sleep(Duration::from_millis(400)).await;
        let (before, from) = (requests_of(&server, manner)?, clock.now());
        tokio::time::sleep(Duration::from_millis(fastrand::u64(700..1400))).await;
        requests += requests_of(&server, manner)? - before;
        waited += clock.now().since(from);
        let released = clock.now();
        ask(&server, &["DEL", "lock:job"])?;
        measured.delays.push(round.first().await?.since(released));
    }
    for client in clients {
        client.close().await?;
    }
    measured.delays.sort();
    measured.requests_per_second = requests as f64 / waited.as_secs_f64();
    Ok(measured)
}

/// Waiters of one release, each with the moment at which it had the lock.
struct Round {
    tasks: JoinSet<Result<BootTime, Trouble>>,
}

impl Round {
    fn ours(clients: &[Leasehold]) -> Self {
        let mut tasks = JoinSet::new();
        for client in clients {
            let (lock, clock) = (client.lock("job"), client.clock().clone());
            tasks.spawn(async move {
                let lease = lock.acquire_within(PATIENCE).await?;
                let at = clock.now();
                lease.release().await?;
                Ok(at)
            });
        }
        Self { tasks }
    }

    fn blind(server: &Server, waiters: usize) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for at in 0..waiters {
            let (socket, over, clock) = (socket(server), over.clone(), Clock::system());
            tasks.spawn(async move {
                let me = at.to_string();
                // They did not all begin at once.
                tokio::time::sleep(BLIND.mul_f64(fastrand::f64())).await;
                while !over.load(Ordering::SeqCst) {
                    if ask_at(&socket, &["SET", "lock:job", &me, "NX", "PX", "60000"])?.starts_with("+OK") {
                        over.store(true, Ordering::SeqCst);
                        let had = clock.now();
                        ask_at(&socket, &["DEL", "lock:job"])?;
                        return Ok(had);
                    }
                    tokio::time::sleep(BLIND).await;
                }
                // Somebody else was first.
                Ok(BootTime::from_nanos(u64::MAX))
            });
        }
        Self { tasks }
    }

    /// When the first had it, once all have come and gone.
    async fn first(mut self) -> Result<BootTime, Trouble> {
        let mut first = BootTime::from_nanos(u64::MAX);
        while let Some(done) = self.tasks.join_next().await {
            first = first.min(done??);
        }
        Ok(first)
    }
}

/// What waiters have sent so far: scripts are counted, and not what is done inside of them.
fn requests_of(server: &Server, manner: Manner) -> Result<u64, Trouble> {
    let told = ask(server, &["INFO", "commandstats"])?;
    let sent: &[&str] = if manner == Manner::Blind { &["set"] } else { &["eval", "evalsha", "subscribe"] };
    let mut requests = 0;
    for line in told.lines() {
        let counted = line.strip_prefix("cmdstat_").and_then(|line| line.split_once(":calls="));
        if let Some((command, rest)) = counted.filter(|(command, _)| sent.contains(command)) {
            let calls = rest.split(',').next().unwrap_or_default();
            requests += calls.parse::<u64>().map_err(|_| format!("{command} has no count: {line}"))?;
        }
    }
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_manner_gets_the_lock_in_the_end() {
        for manner in Manner::ALL {
            match measure(manner, 3, Duration::ZERO).await {
                Ok(measured) => assert_eq!(measured.delays.len(), 1, "{manner:?}"),
                Err(error) if error.to_string().starts_with("there is no ") => eprintln!("skipped: {error}"),
                Err(error) => panic!("{manner:?}: {error}"),
            }
        }
    }
}
