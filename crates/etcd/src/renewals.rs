//! How a lease is prolonged: its own lease is kept alive, and then a transaction that writes says whether its key stands.
//!
//! Neither is enough alone. etcd before 3.4.38, 3.5.23 and 3.6.5 may say that it kept a lease alive which it has revoked;
//! and the transaction prolongs nothing. Nor are both together, unless they are said in one term of one leader.

use std::time::Duration;

use leasehold_core::{Aftermath, Op, PLACE_LIFE, Renew, Renewal, Result as StoreResult, Tenure, fault};

use crate::claims::{PROOFS, remembered, unproved, writes_nothing};
use crate::client::{Done, counts, created_at, only, puts, reads};
use crate::fail::{Fail, Result, What};
use crate::holds::Granted;
use crate::keys::Own;
use crate::line::token;
use crate::proto::{RequestOp, TxnRequest};
use crate::store::{EtcdStore, Shared};
use crate::value::Value;

impl EtcdStore {
    pub(crate) async fn renew_one(&self, renew: &Renew) -> StoreResult<Renewal> {
        let Renew { claim, tenure } = renew;
        let fails = self.failed(Op::Renew, Some(&claim.name));
        let keys = self.keys(&claim.name);
        let own = keys.own(claim.id);
        let renewed = self.prolong(renew, &own).await.map_err(fails)?;
        let Some(ttl) = renewed else {
            let held = self.0.holds.granted(claim.id).is_some_and(|granted| is(&granted, tenure));
            if held {
                self.0.wakes.forget(&keys.line, claim.id);
                // Its key may have been taken away without its lease.
                self.revoke(&own, claim.id).await;
            }
            return Ok(Renewal::Lost);
        };
        Ok(Renewal::Kept { ttl, server_time: None })
    }

    /// For how long it then holds. `None` when it holds nothing.
    async fn prolong(&self, renew: &Renew, own: &Own) -> Result<Option<Duration>> {
        let Renew { claim, tenure } = renew;
        let Shared { link, holds, clock, .. } = &*self.0;
        let sent = clock.now();
        let known = match holds.granted(claim.id) {
            Some(known) => known,
            // Somebody else has claimed it.
            None => match self.find(renew, own).await? {
                Some(found) => found,
                None => return Ok(None),
            },
        };
        if !is(&known, tenure) {
            return Ok(None);
        }
        let held = sent.since(known.since);
        let value = known.value.clone().renewed(tenure, held);
        let known_short = known.short;
        let Some(ttl) = self.keep(renew, own, known_short, &value).await? else { return Ok(None) };
        let granted = Granted { until: sent.after(ttl), short: false, value, ..known };
        holds.note(claim.id, |hold| hold.granted = Some(granted));
        if known_short {
            // A key that is put again under another lease keeps its revision, and the old lease has no keys.
            link.revoke(own.place).await?;
            if claim.aftermath != Aftermath::NONE {
                link.revoke(own.after_place).await?;
            }
            holds.note(claim.id, |hold| hold.place = false);
        }
        Ok(Some(ttl))
    }

    /// Keeps its lease alive and then asks whether its key stands, until both are said in one term of one leader.
    async fn keep(&self, renew: &Renew, own: &Own, short: bool, value: &Value) -> Result<Option<Duration>> {
        let Renew { claim, .. } = renew;
        let Shared { link, holds, .. } = &*self.0;
        let keys = self.keys(&claim.name);
        for _ in 0..PROOFS {
            // What is left behind outlives the lease, whatever becomes of this.
            let most = claim.ttl.max(PLACE_LIFE);
            let after = self.leaves_later(claim, &keys, own, most).await?;
            let kept = if short {
                // From now on it has a lease of its whole ttl.
                holds.note(claim.id, |hold| hold.lease = true);
                Some(link.grant(own.lease, claim.ttl).await?)
            } else {
                link.keep_alive(own.lease).await?
            };
            let Some(kept) = kept else { return self.gone(renew, own).await };
            if fault!("etcd_renewed_by_keep_alive") && !short {
                return Ok(Some(kept.ttl));
            }
            let done = self.owns(renew, own, value.to_bytes(), after.puts).await?;
            if !done.succeeded {
                link.revoke(own.lease).await?;
                return Ok(None);
            }
            if after.terms.into_iter().chain([kept.term]).all(|term| counts(term, done.term)) {
                return Ok(Some(kept.ttl));
            }
        }
        Err(unproved())
    }

    /// What stands for a claim that this process knows nothing of.
    async fn find(&self, renew: &Renew, own: &Own) -> Result<Option<Granted>> {
        let Shared { clock, .. } = &*self.0;
        let now = clock.now();
        let view = self.view(&self.keys(&renew.claim.name), own).await?;
        let Some((_, member, value)) = view.mine(own, renew.claim.id)? else { return Ok(None) };
        if !value.holds() {
            return Ok(None);
        }
        let short = member.lease == own.place;
        let since = now.before(value.held);
        Ok(Some(Granted { created: member.created, since, until: now, short, value: value.clone() }))
    }

    /// Whether the key of this very tenure stands; writes, since old versions may answer from the past what only reads.
    async fn owns(&self, renew: &Renew, own: &Own, value: Vec<u8>, after: Vec<RequestOp>) -> Result<Done> {
        let Shared { link, spent, clock, .. } = &*self.0;
        let Renew { claim, tenure } = renew;
        let compare = vec![created_at(&own.key, tenure.token.as_i64())];
        let mark = match spent.lease(link, clock, remembered(claim.ttl)).await {
            Ok(mark) => Some(mark),
            Err(fail) if fail.is_full() => None,
            Err(fail) => return Err(fail),
        };
        let success = mark.map(|mark| {
            let puts = [puts(&own.key, value, own.lease), puts(&own.spent, Vec::new(), mark)];
            puts.into_iter().chain(after).collect()
        });
        let full = success.is_none();
        let success = success.unwrap_or_else(|| writes_nothing(own));
        let txn = TxnRequest { compare: compare.clone(), success, failure: vec![reads(only(&own.key))] };
        match link.txn(txn).await {
            Ok(done) => Ok(done),
            Err(fail) if (fail.is_full() && !full) || fail.what() == What::NoLease => {
                if fail.what() == What::NoLease {
                    spent.forget().await;
                }
                let success = writes_nothing(own);
                let done = link.txn(TxnRequest { compare, success, ..TxnRequest::default() }).await?;
                // It stands, but not under the lease that is kept alive.
                if done.succeeded && fail.what() == What::NoLease { Err(fail.unknown()) } else { Ok(done) }
            }
            Err(fail) => Err(fail),
        }
    }

    /// Its lease is gone; so is its key then, or will be.
    async fn gone(&self, renew: &Renew, own: &Own) -> Result<Option<Duration>> {
        let compare = vec![created_at(&own.key, renew.tenure.token.as_i64())];
        let txn = TxnRequest { compare, success: writes_nothing(own), ..TxnRequest::default() };
        if self.0.link.txn(txn).await?.succeeded {
            return Err(Fail::garbled("a key stands whose lease is gone"));
        }
        Ok(None)
    }
}

/// Whether this is the tenure that was granted.
fn is(granted: &Granted, tenure: &Tenure) -> bool {
    token(granted.created) == Some(tenure.token)
}
