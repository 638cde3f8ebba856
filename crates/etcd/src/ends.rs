//! How a claim ends, and what it leaves behind: its id is spent, its leases are revoked, the name may be shut.

use std::time::Duration;

use leasehold_core::{ClaimId, Leave, LockName, Note, Release, StoreErrorKind, TOMBSTONE_LIFE, fault};

use crate::client::{absent, changed_at, present, puts, takes, takes_all};
use crate::fail::{Fail, Result, What};
use crate::keys::{Keys, Own};
use crate::line::{Member, Shut};
use crate::proto::TxnRequest;
use crate::store::{EtcdStore, Shared};
use crate::value::Value;

const ROUNDS: usize = 8;
/// No closure lasts longer.
const MOST_LASTING: Duration = Duration::from_secs(50 * 365 * 24 * 3600);

impl EtcdStore {
    pub(crate) async fn end(&self, name: &LockName, id: ClaimId, leave: &Leave) -> Result<Release> {
        let keys = self.keys(name);
        let own = keys.own(id);
        self.0.wakes.forget(&keys.line, id);
        let released = match leave {
            Leave::Closed { lasting, note } if !lasting.is_zero() => {
                self.end_shut(&keys, &own, id, (*lasting).min(MOST_LASTING), note).await?
            }
            Leave::Open | Leave::Closed { .. } => None,
        };
        let released = match released {
            Some(released) => released,
            None => self.end_open(&keys, &own, id).await?,
        };
        self.revoke(&own, id).await;
        Ok(released)
    }

    async fn end_open(&self, keys: &Keys, own: &Own, id: ClaimId) -> Result<Release> {
        let Shared { link, spent, clock, .. } = &*self.0;
        let mut full = false;
        for _ in 0..ROUNDS {
            let mark = match spent.lease(link, clock, TOMBSTONE_LIFE).await {
                _ if full => None,
                Ok(lease) => Some(puts(&own.spent, Vec::new(), lease)),
                // A cluster without space takes no more keys; one key less it takes.
                Err(fail) if fail.is_full() => None,
                Err(fail) => return Err(fail),
            };
            let mark = mark.filter(|_| !fault!("etcd_no_tombstone"));
            let (first, end) = keys.afters(own);
            // What ended uncleanly before leaves behind what it was to.
            let takes = [takes_all(&first, &end), takes(&own.key)].into_iter();
            let txn = TxnRequest {
                compare: vec![present(&own.key)],
                success: takes.chain(mark.clone()).collect(),
                failure: mark.into_iter().collect(),
            };
            match link.txn(txn).await {
                Ok(done) if !done.succeeded => return Ok(Release::NotHeld),
                Ok(mut done) => {
                    for left in done.deleted()? {
                        link.revoke(left.lease).await?;
                    }
                    return Ok(released(&done.deleted()?.into_iter().next(), id));
                }
                Err(fail) if fail.what() == What::NoLease => spent.forget().await,
                Err(fail) if fail.is_full() && !full => full = true,
                Err(fail) => return Err(fail),
            }
        }
        Err(Fail::new(StoreErrorKind::Unavailable, "its leases end as soon as they are made"))
    }

    /// Gives back what holds, and shuts the name in the same step. `None` when it does not hold.
    async fn end_shut(
        &self,
        keys: &Keys,
        own: &Own,
        id: ClaimId,
        lasting: Duration,
        note: &Note,
    ) -> Result<Option<Release>> {
        let Shared { link, spent, clock, .. } = &*self.0;
        for _ in 0..ROUNDS {
            let view = self.view(keys, own).await?;
            let Some((_, Member { modified, .. }, value)) = view.mine(own, id)? else { return Ok(None) };
            if !value.holds() {
                return Ok(None);
            }
            let mut compare = vec![changed_at(&own.key, *modified)];
            let mark = spent.lease(link, clock, TOMBSTONE_LIFE).await?;
            let (first, end) = keys.afters(own);
            let mut success =
                vec![takes_all(&first, &end), takes(&own.key), puts(&own.spent, Vec::new(), mark)];
            let shut = view.shut.iter().find(|shut| shut.key == keys.shut);
            let stands = match shut {
                Some(shut) => link.left(shut.lease).await?.map(|left| shut.closure(Some(left)).left),
                None => None,
            };
            // A shorter one opens nothing early.
            let longer = stands.is_none_or(|stands| lasting > stands);
            let mut lease = None;
            if longer {
                let id = link.grant(0, lasting).await?.id;
                lease = Some(id);
                success.push(puts(&keys.shut, Shut::value(lasting, &value.owner, note), id));
                if shut.is_none() {
                    compare.push(absent(&keys.shut));
                }
            }
            match link.txn(TxnRequest { compare, success, ..TxnRequest::default() }).await {
                Ok(mut done) if done.succeeded => {
                    for left in done.deleted()? {
                        link.revoke(left.lease).await?;
                    }
                    return Ok(Some(Release::Released));
                }
                Ok(_) => {}
                Err(fail) if fail.what() == What::NoLease => spent.forget().await,
                Err(fail) => return Err(fail),
            }
            if let Some(lease) = lease {
                link.revoke(lease).await?;
            }
        }
        Err(Fail::new(StoreErrorKind::Unavailable, "the line moved each time it was looked at"))
    }
}

fn released(was: &Option<crate::proto::KeyValue>, id: ClaimId) -> Release {
    match was.as_ref().and_then(|kv| Value::parse(&kv.value)) {
        Some(value) if value.id == id && value.holds() => Release::Released,
        Some(value) if value.id == id => Release::Withdrawn,
        _ => Release::NotHeld,
    }
}
