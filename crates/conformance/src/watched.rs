//! A store that notes which of its calls are open, so that a case that hangs can say where.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use leasehold_core::{
    Capabilities, Claim, ClaimId, Cursor, Doctor, Doubt, Leave, Ledger, LockName, Release, Renew, Renewal,
    Result, Snapshot, Standing, Store, Together,
};

/// The calls that are open now, in the order in which they began.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenCalls(Arc<Mutex<Vec<(u64, String)>>>);

impl OpenCalls {
    fn enter(&self, what: String) -> Entered {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = open.last().map_or(0, |(number, _)| number + 1);
        open.push((number, what));
        Entered { calls: self.clone(), number }
    }

    /// What a case that hangs hangs in.
    pub(crate) fn tell(&self) -> String {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let calls: Vec<&str> = open.iter().map(|(_, what)| what.as_str()).collect();
        if calls.is_empty() {
            "in no call to the store".to_owned()
        } else {
            format!("in {}", calls.join(" and "))
        }
    }
}

struct Entered {
    calls: OpenCalls,
    number: u64,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut open = self.calls.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(number, _)| *number != self.number);
    }
}

/// The store of a case, watched.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) calls: OpenCalls,
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Store for Watched {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        let _open = self.calls.enter(format!("claim({:?}, {:?})", claim.name, claim.turn));
        self.inner.claim(claim).await
    }

    async fn claim_all(&self, claims: &[Claim]) -> Result<Together> {
        let _open = self.calls.enter(format!("claim_all({} claims)", claims.len()));
        self.inner.claim_all(claims).await
    }

    async fn changed(&self, name: &LockName, since: &Cursor) -> Result<()> {
        let _open = self.calls.enter(format!("changed({name:?})"));
        self.inner.changed(name, since).await
    }

    async fn renew(&self, batch: &[Renew]) -> Vec<Result<Renewal>> {
        let _open = self.calls.enter(format!("renew({} claims)", batch.len()));
        self.inner.renew(batch).await
    }

    async fn release(&self, name: &LockName, id: ClaimId, leave: Leave) -> Result<Release> {
        let _open = self.calls.enter(format!("release({name:?}, {leave:?})"));
        self.inner.release(name, id, leave).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot> {
        let _open = self.calls.enter(format!("inspect({name:?})"));
        self.inner.inspect(name).await
    }

    async fn list(&self, prefix: &str, after: Option<&LockName>) -> Result<Vec<LockName>> {
        let _open = self.calls.enter(format!("list({prefix:?}, {after:?})"));
        self.inner.list(prefix, after).await
    }

    async fn anchor(&self) -> Result<Option<OwnedFd>> {
        self.inner.anchor().await
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        self.inner.ledger()
    }

    async fn doubt(&self) -> Doubt {
        self.inner.doubt().await
    }

    fn doctor(&self) -> Option<&dyn Doctor> {
        self.inner.doctor()
    }

    async fn close(&self) -> Result<()> {
        let _open = self.calls.enter("close()".to_owned());
        self.inner.close().await
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
