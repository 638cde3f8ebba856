//! A store whose server goes by the clock of a test: it is told what time it is before it is asked anything.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::{
    Capabilities, Claim, ClaimId, Clock, Cursor, Doubt, Leave, Ledger, LockName, Mark, MarkKind, MarkOutcome,
    Record, RecordId, Release, Renew, Renewal, Result, Snapshot, Standing, Store, Together,
};
use leasehold_redis::RedisStore;

use super::host::Host;
use super::ways::Way;

/// The store, its server and the clock of both.
#[derive(Debug, Clone)]
pub(crate) struct Synced {
    store: RedisStore,
    server: Arc<Host>,
    clock: Clock,
    together: bool,
}

impl Synced {
    pub(crate) fn new(server: &Arc<Host>, way: Way, clock: &Clock) -> Self {
        let store = RedisStore::open_with(&server.url(way).parse().unwrap(), clock.clone()).unwrap();
        Self { store, server: server.clone(), clock: clock.clone(), together: way != Way::Cluster }
    }

    fn sync(&self) {
        // A counter of microseconds: what the model keeps of nanoseconds the server cannot.
        self.server.set_time(self.clock.wall_micros());
    }
}

impl std::fmt::Display for Synced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait]
impl Store for Synced {
    fn capabilities(&self) -> Capabilities {
        // The suite chooses names as it likes, which are in one slot only where it is told to.
        Capabilities { together: self.together, ..self.store.capabilities() }
    }

    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        self.sync();
        self.store.claim(claim).await
    }

    async fn claim_all(&self, claims: &[Claim]) -> Result<Together> {
        self.sync();
        self.store.claim_all(claims).await
    }

    async fn changed(&self, name: &LockName, since: &Cursor) -> Result<()> {
        let mut moves = self.clock.moves();
        let changed = self.store.changed(name, since);
        tokio::pin!(changed);
        loop {
            self.sync();
            tokio::select! {
                biased;
                _ = moves.changed() => {}
                done = &mut changed => return done,
            }
        }
    }

    async fn renew(&self, batch: &[Renew]) -> Vec<Result<Renewal>> {
        self.sync();
        self.store.renew(batch).await
    }

    async fn release(&self, name: &LockName, id: ClaimId, leave: Leave) -> Result<Release> {
        self.sync();
        self.store.release(name, id, leave).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot> {
        self.sync();
        self.store.inspect(name).await
    }

    async fn list(&self, prefix: &str, after: Option<&LockName>) -> Result<Vec<LockName>> {
        self.sync();
        self.store.list(prefix, after).await
    }

    async fn anchor(&self) -> Result<Option<OwnedFd>> {
        self.store.anchor().await
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        Some(self)
    }

    async fn doubt(&self) -> Doubt {
        self.store.doubt().await
    }

    async fn close(&self) -> Result<()> {
        self.store.close().await
    }
}

#[async_trait]
impl Ledger for Synced {
    async fn mark(&self, mark: &Mark) -> Result<MarkOutcome> {
        self.sync();
        self.store.mark(mark).await
    }

    async fn marks(&self, kind: MarkKind, name: &LockName) -> Result<Vec<Mark>> {
        self.sync();
        self.store.marks(kind, name).await
    }

    async fn unmark(&self, kind: MarkKind, name: &LockName, key: &str) -> Result<bool> {
        self.sync();
        self.store.unmark(kind, name, key).await
    }

    async fn record(&self, record: &Record) -> Result<RecordId> {
        self.sync();
        self.store.record(record).await
    }

    async fn records(
        &self,
        name: Option<&LockName>,
        after: RecordId,
        most: usize,
    ) -> Result<Vec<(RecordId, Record)>> {
        self.sync();
        self.store.records(name, after, most).await
    }
}
