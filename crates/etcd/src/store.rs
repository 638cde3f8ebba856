//! The store: the trait's verbs as transactions, and the waits.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use leasehold_core::{
    Capabilities, Claim, ClaimId, Clock, Cursor, Doctor, Doubt, Error, Expiry, Fencing, Leave, Ledger,
    LockName, Minting, Op, PLACE_LIFE, Queueing, Reach, Release, Renew, Renewal, Result, Shares, Snapshot,
    Standing, Store, StoreUrl, Together, Verdict, Wake, Watch, admit,
};

use crate::client::Left;
use crate::config::Settings;
use crate::fail::{self, Fail};
use crate::holds::Holds;
use crate::keys::{Keys, Own};
use crate::line::{View, looks};
use crate::link::Link;
use crate::proto::TxnRequest;
use crate::spent::Spent;
use crate::value::Value;
use crate::wake::{Stage, Turn, Wakes};

/// What is waited for is looked at so often, whatever the watch says.
const POLL: Duration = Duration::from_secs(5);
/// So many waiters are asked what is left of their places; of more nobody reads it.
const SHOWN: usize = 32;
/// So many leases are asked for at a time.
const AT_ONCE: usize = 32;

/// Locks in an etcd cluster. Clones share one connection.
///
/// See the [crate] for what it promises and what it cannot.
#[derive(Clone)]
pub struct EtcdStore(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) link: Arc<Link>,
    pub(crate) wakes: Arc<Wakes>,
    pub(crate) holds: Holds,
    pub(crate) spent: Spent,
    pub(crate) clock: Clock,
}

impl EtcdStore {
    /// Prepares to speak to the members that a URL names: `etcd:`, or `etcds:` over TLS. Reads the files that the URL
    /// names; connects with the first call, not here.
    ///
    /// # Errors
    ///
    /// A URL that cannot be used, or a file in it that cannot be read.
    pub fn open(url: &StoreUrl) -> Result<Self> {
        Self::open_with(url, Clock::system())
    }

    /// As [`open`](Self::open), by this clock. Leases are judged by the cluster alone.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_with(url: &StoreUrl, clock: Clock) -> Result<Self> {
        let settings = Settings::parse(url)?;
        let link = Arc::new(Link::new(&settings)?);
        let wakes = Arc::new(Wakes::new(&settings.prefix));
        let (holds, spent) = (Holds::default(), Spent::default());
        Ok(Self(Arc::new(Shared { settings, link, wakes, holds, spent, clock })))
    }

    pub(crate) fn keys(&self, name: &LockName) -> Keys {
        Keys::of(&self.0.settings.prefix, name)
    }

    pub(crate) fn failed(&self, op: Op, name: Option<&LockName>) -> impl Fn(Fail) -> Error {
        move |fail| fail.into_error(op, name, &self.0.settings.label)
    }

    /// What stands for a name, and whether this claim's id is spent.
    pub(crate) async fn view(&self, keys: &Keys, own: &Own) -> fail::Result<View> {
        let txn = TxnRequest { success: looks(keys, &own.spent), ..TxnRequest::default() };
        View::parse(keys, &mut self.0.link.txn(txn).await?)
    }

    /// The same for somebody who has no claim.
    pub(crate) async fn look(&self, keys: &Keys) -> fail::Result<View> {
        self.view(keys, &keys.own(ClaimId::from_bytes([0; 16]))).await
    }

    /// Waits for the turn of a claim.
    async fn await_turn(&self, keys: &Keys, id: ClaimId) -> fail::Result<()> {
        let Shared { wakes, link, clock, .. } = &*self.0;
        // Who does not restate its claim by then has no place any more.
        let last = clock.now().after(PLACE_LIFE);
        wakes.open(link).await?;
        loop {
            match wakes.turn(&keys.line, id) {
                None | Some(Stage::Ready) => return Ok(()),
                Some(Stage::Stale { own, share }) => {
                    let view = self.look(keys).await?;
                    let mine = |key: &Vec<u8>| view.members.iter().position(|member| member.key == *key);
                    let ahead = match own.as_ref().map(mine) {
                        None => view.members.len(),
                        Some(Some(index)) => index,
                        Some(None) => return Ok(()),
                    };
                    if view.is_open() && admit(&view.shares(ahead), share) == Verdict::Admit {
                        return Ok(());
                    }
                    wakes.expect(&keys.line, id, Turn::new(&view, own, ahead, share));
                }
                Some(Stage::Waits(notify)) => {
                    tokio::select! {
                        () = notify.notified() => {}
                        () = clock.sleep_until(last) => return Ok(()),
                    }
                }
            }
        }
    }

    /// Waits until a claim holds no longer.
    async fn await_end(&self, keys: &Keys, id: ClaimId) -> fail::Result<()> {
        let Shared { wakes, link, .. } = &*self.0;
        let own = keys.own(id);
        wakes.open(link).await?;
        let interest = wakes.interest(&own.key);
        loop {
            let view = self.view(keys, &own).await?;
            if !view.mine(&own, id)?.is_some_and(|(_, _, value)| Value::holds(value)) {
                return Ok(());
            }
            interest.told(POLL).await;
        }
    }

    /// Waits until what was seen of a name is out of date.
    async fn await_change(&self, keys: &Keys, version: u64) -> fail::Result<()> {
        let Shared { wakes, link, .. } = &*self.0;
        wakes.open(link).await?;
        let interest = wakes.interest(&keys.line);
        while self.look(keys).await?.version() == version {
            interest.told(POLL).await;
        }
        Ok(())
    }

    /// What is left of these leases.
    pub(crate) async fn lefts(&self, leases: Vec<i64>) -> fail::Result<HashMap<i64, Left>> {
        let asked = leases.into_iter().filter(|lease| *lease != 0).map(|lease| async move {
            Ok::<_, Fail>(self.0.link.left(lease).await?.map(|left| (lease, left)))
        });
        let told: Vec<_> = futures_util::stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
        told.into_iter().filter_map(Result::transpose).collect()
    }
}

#[async_trait]
impl Store for EtcdStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            fencing: Fencing::Strong,
            minting: Minting::Revision,
            shares: Shares::Any,
            queueing: Queueing::Always,
            expiry: Expiry::PerClaim,
            wake: Wake::Push,
            closing: true,
            together: true,
            reshaping: false,
            succession: false,
            aftermath: true,
            reach: Reach::Fleet,
            ttl: Duration::from_millis(100)..=Duration::from_secs(24 * 60 * 60),
        }
    }

    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        let stood = self.stand(claim).await.map_err(self.failed(Op::Claim, Some(&claim.name)))?;
        stood.map_err(|overruled| overruled.into_error(&self.0.settings.label, claim))
    }

    async fn claim_all(&self, claims: &[Claim]) -> Result<Together> {
        self.stand_all(claims).await
    }

    async fn changed(&self, name: &LockName, since: &Cursor) -> Result<()> {
        let keys = self.keys(name);
        let done = match Watch::parse(since) {
            Some(Watch::Turn(id)) => self.await_turn(&keys, id).await,
            Some(Watch::Hold(id)) => self.await_end(&keys, id).await,
            Some(Watch::Any(version)) => self.await_change(&keys, version).await,
            None => Ok(()),
        };
        done.map_err(self.failed(Op::Wait, Some(name)))
    }

    async fn renew(&self, batch: &[Renew]) -> Vec<Result<Renewal>> {
        let renewed = batch.iter().map(|renew| self.renew_one(renew));
        futures_util::future::join_all(renewed).await
    }

    async fn release(&self, name: &LockName, id: ClaimId, leave: Leave) -> Result<Release> {
        self.end(name, id, &leave).await.map_err(self.failed(Op::Release, Some(name)))
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot> {
        let fails = self.failed(Op::Inspect, Some(name));
        let view = self.look(&self.keys(name)).await.map_err(&fails)?;
        let (holders, waiters): (Vec<_>, Vec<_>) = view.holders().partition(|(_, holds)| *holds);
        let shown = holders.into_iter().chain(waiters.into_iter().take(SHOWN));
        let leases = shown.map(|(member, _)| member.lease).chain(view.shut.iter().map(|shut| shut.lease));
        let lefts = self.lefts(leases.collect()).await.map_err(&fails)?;
        Ok(view.snapshot(name, |lease| lefts.get(&lease).copied()))
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
        self.0.link.doubted().await
    }

    fn doctor(&self) -> Option<&dyn Doctor> {
        Some(self)
    }

    async fn close(&self) -> Result<()> {
        self.0.wakes.close();
        self.0.link.close();
        Ok(())
    }
}

impl fmt::Display for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.settings.label)
    }
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore").field("cluster", &self.0.settings.label).finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.wakes.close();
    }
}
