//! The store: the trait's verbs.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{
    Capabilities, Claim, ClaimId, Clock, Cursor, Doubt, Error, Expiry, Fencing, Leave, Ledger, LockName,
    Minting, Op, Queueing, Reach, Release, Renew, Renewal, Result, Shares, Snapshot, Standing, Store,
    StoreUrl, Together, Unsupported, Wake, Watch,
};

use tokio::task::AbortHandle;

use crate::config::Settings;
use crate::fail::Fail;
use crate::holds::Holds;
use crate::node::Paths;
use crate::session::Sessions;

/// Locks in a ZooKeeper ensemble. Clones share their sessions.
///
/// See the [crate] for what it promises and what it cannot.
#[derive(Clone)]
pub struct ZooKeeperStore(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) label: String,
    pub(crate) paths: Paths,
    pub(crate) sessions: Sessions,
    pub(crate) holds: Holds,
    pub(crate) clock: Clock,
    /// Takes away what nobody asks for any more.
    pub(crate) lapses: OnceLock<AbortHandle>,
}

impl ZooKeeperStore {
    /// Prepares to speak to the servers that a URL names. Reads the file that the URL names; connects with the first
    /// call, not here.
    ///
    /// # Errors
    ///
    /// A URL that cannot be used, or a file in it that cannot be read.
    pub fn open(url: &StoreUrl) -> Result<Self> {
        Self::open_with(url, Clock::system())
    }

    /// As [`open`](Self::open), by this clock. Sessions are judged by the servers alone.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_with(url: &StoreUrl, clock: Clock) -> Result<Self> {
        let settings = Settings::parse(url)?;
        let paths = Paths::new(&settings.root);
        let sessions = Sessions::new(&settings, &paths, &clock);
        let label = settings.label;
        Ok(Self(Arc::new(Shared {
            label,
            paths,
            sessions,
            holds: Holds::default(),
            clock,
            lapses: OnceLock::new(),
        })))
    }

    pub(crate) fn failed(&self, op: Op, name: Option<&LockName>) -> impl Fn(Fail) -> Error {
        move |fail| fail.into_error(op, name, &self.0.label)
    }
}

#[async_trait]
impl Store for ZooKeeperStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            fencing: Fencing::Strong,
            minting: Minting::Revision,
            shares: Shares::Any,
            queueing: Queueing::Always,
            expiry: Expiry::Session,
            wake: Wake::Push,
            closing: true,
            together: false,
            reshaping: false,
            succession: false,
            aftermath: false,
            reach: Reach::Fleet,
            ttl: Duration::from_millis(100)..=Duration::from_secs(24 * 60 * 60),
        }
    }

    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        let stood = self.stand(claim).await.map_err(self.failed(Op::Claim, Some(&claim.name)))?;
        stood.map_err(|overruled| overruled.into_error(&self.0.label, claim))
    }

    async fn claim_all(&self, _claims: &[Claim]) -> Result<Together> {
        Err(Unsupported::here("claiming several names in one step").into())
    }

    async fn changed(&self, name: &LockName, since: &Cursor) -> Result<()> {
        let done = match Watch::parse(since) {
            Some(Watch::Turn(id)) => {
                let turn = self.await_turn(name, id).await;
                // Whoever was told has as long again to ask.
                self.0.holds.refresh(id, self.0.clock.now());
                turn
            }
            Some(Watch::Hold(id)) => self.await_end(name, id).await,
            Some(Watch::Any(version)) => self.await_change(name, version).await,
            None => Ok(()),
        };
        done.map_err(self.failed(Op::Wait, Some(name)))
    }

    async fn renew(&self, batch: &[Renew]) -> Vec<Result<Renewal>> {
        futures_util::future::join_all(batch.iter().map(|renew| self.renew_one(renew))).await
    }

    async fn release(&self, name: &LockName, id: ClaimId, leave: Leave) -> Result<Release> {
        self.end(name, id, &leave).await.map_err(self.failed(Op::Release, Some(name)))
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot> {
        self.snapshot(name).await.map_err(self.failed(Op::Inspect, Some(name)))
    }

    async fn list(&self, prefix: &str, after: Option<&LockName>) -> Result<Vec<LockName>> {
        self.names(prefix, after).await.map_err(self.failed(Op::List, None))
    }

    async fn anchor(&self) -> Result<Option<OwnedFd>> {
        Ok(None)
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        Some(self)
    }

    async fn doubt(&self) -> Doubt {
        self.0.sessions.doubted().await
    }

    async fn close(&self) -> Result<()> {
        self.0.sessions.close();
        Ok(())
    }
}

impl fmt::Display for ZooKeeperStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.label)
    }
}

impl fmt::Debug for ZooKeeperStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperStore").field("servers", &self.0.label).finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(lapses) = self.lapses.get() {
            lapses.abort();
        }
        self.sessions.close();
    }
}
