//! What the tests of the engine share: a listener, a wait for conditions, and a store that can be told to fail.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::{
    Capabilities, Clock, Event, LockName, MemoryStore, Observer, Op, Result, Snapshot, Store, StoreError,
    StoreErrorKind,
};
use leasehold_core::{Claim, ClaimId, Cursor, Leave, Ledger, Release, Renew, Renewal, Standing, Together};

pub(crate) const TTL: Duration = Duration::from_millis(600);

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Waits until `done`, for at most 20 ttl.
pub(crate) async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let clock = Clock::system();
    let deadline = clock.now().after(TTL * 20);
    while !done().await {
        assert!(clock.now() < deadline, "not within 20 ttl: {what}");
        tokio::time::sleep(ms(2)).await;
    }
}

#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<Vec<Event>>);

impl Observer for Log {
    fn on(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Log {
    pub(crate) fn events(&self) -> Vec<Event> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.0.lock().unwrap().iter().filter(|event| wanted(event)).count()
    }
}

/// How a store treats its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Fine,
    /// Not executed, and says so.
    Refuse,
    /// Executed, but the answer is lost.
    Lose,
    /// Executed, but the answer takes so many milliseconds.
    Late(u64),
    /// Never answers.
    Hang,
}

/// A store in memory whose calls go as they are told to.
#[derive(Debug)]
pub(crate) struct Moody {
    pub(crate) inner: MemoryStore,
    moods: Mutex<Vec<(Op, Mood, u32)>>,
    asked: Mutex<Vec<Op>>,
}

impl Moody {
    pub(crate) fn new() -> Self {
        Self { inner: MemoryStore::new(), moods: Mutex::default(), asked: Mutex::default() }
    }

    /// From now on, for the next `times` calls.
    pub(crate) fn be(&self, op: Op, mood: Mood, times: u32) {
        let mut moods = self.moods.lock().unwrap();
        moods.retain(|(other, ..)| *other != op);
        moods.push((op, mood, times));
    }

    /// How often it was asked.
    pub(crate) fn asked(&self, op: Op) -> usize {
        self.asked.lock().unwrap().iter().filter(|other| **other == op).count()
    }

    fn mood(&self, op: Op) -> Mood {
        self.asked.lock().unwrap().push(op);
        let mut moods = self.moods.lock().unwrap();
        match moods.iter_mut().find(|(other, _, times)| *other == op && *times > 0) {
            Some((_, mood, times)) => {
                *times -= 1;
                *mood
            }
            None => Mood::Fine,
        }
    }

    async fn go<T>(&self, op: Op, call: impl Future<Output = Result<T>>) -> Result<T> {
        let error = || StoreError::new(StoreErrorKind::Unavailable, op, self).saying("it was told to fail");
        match self.mood(op) {
            Mood::Fine => call.await,
            Mood::Refuse => Err(error().into()),
            Mood::Lose => {
                call.await?;
                Err(error().unknown().into())
            }
            Mood::Late(millis) => {
                let answer = call.await;
                tokio::time::sleep(ms(millis)).await;
                answer
            }
            Mood::Hang => std::future::pending().await,
        }
    }
}

impl fmt::Display for Moody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("moody:")
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for Moody {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        self.go(Op::Claim, self.inner.claim(claim)).await
    }

    async fn claim_all(&self, claims: &[Claim]) -> Result<Together> {
        self.go(Op::Claim, self.inner.claim_all(claims)).await
    }

    async fn changed(&self, name: &LockName, since: &Cursor) -> Result<()> {
        self.go(Op::Wait, self.inner.changed(name, since)).await
    }

    async fn renew(&self, batch: &[Renew]) -> Vec<Result<Renewal>> {
        match self.go(Op::Renew, async { Ok(self.inner.renew(batch).await) }).await {
            Ok(answers) => answers,
            Err(error) => batch.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn release(&self, name: &LockName, id: ClaimId, leave: Leave) -> Result<Release> {
        self.go(Op::Release, self.inner.release(name, id, leave)).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot> {
        self.go(Op::Inspect, self.inner.inspect(name)).await
    }

    async fn list(&self, prefix: &str, after: Option<&LockName>) -> Result<Vec<LockName>> {
        self.go(Op::List, self.inner.list(prefix, after)).await
    }

    async fn anchor(&self) -> Result<Option<OwnedFd>> {
        self.inner.anchor().await
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        self.inner.ledger()
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}
