//! Several claims as one step: one transaction, which puts all keys or none.

use std::collections::HashSet;
use std::time::Duration;

use leasehold_core::{
    Claim, Error, Grant, Op, Overruled, Result as StoreResult, State, StoreErrorKind, Together, Verdict,
    Watch, admit, fault,
};

use crate::after::still_open;
use crate::claims::{Stating, remembered, stands};
use crate::client::{Leased, absent, counts, created_at, none_since, puts};
use crate::fail::{Fail, Result, What};
use crate::line::{View, looks, token};
use crate::proto::{Compare, TxnRequest};
use crate::store::{EtcdStore, Shared};
use crate::value::Value;
use crate::wake::Turn;

const ROUNDS: usize = 8;
/// Two reads, two conditions and two writes for each; etcd takes 128 of each kind unless it is told otherwise.
const MOST: usize = 64;

/// How one of the claims stands before the step.
enum Stage {
    /// It holds already.
    Holds { created: i64, left: Duration },
    /// It stands in line, and its turn has come.
    Stands { created: i64 },
    /// The name is free for it.
    Free,
}

impl EtcdStore {
    pub(crate) async fn stand_all(&self, claims: &[Claim]) -> StoreResult<Together> {
        let mut names = HashSet::new();
        if let Some(twice) = claims.iter().find(|claim| !names.insert(&claim.name)) {
            return Err(Overruled::NamedTwice.into_error(&self.0.settings.label, twice));
        }
        if claims.is_empty() {
            return Ok(Together::All(Vec::new()));
        }
        if claims.len() > MOST {
            let what = format!("claiming more than {MOST} names in one step");
            return Err(leasehold_core::Unsupported::new(what).help("claim fewer names at once").into());
        }
        let fails = self.failed(Op::Claim, None);
        for _ in 0..ROUNDS {
            if let Some(together) = self.round(claims).await? {
                return Ok(together);
            }
        }
        Err(fails(Fail::new(StoreErrorKind::Unavailable, "the lines moved each time they were looked at")))
    }

    /// One attempt. `None` when a line has moved meanwhile.
    async fn round(&self, claims: &[Claim]) -> StoreResult<Option<Together>> {
        let fails = self.failed(Op::Claim, None);
        let ons: Vec<Stating<'_>> = claims.iter().map(|claim| Stating::new(self, claim)).collect();
        let success = ons.iter().flat_map(|on| looks(&on.keys, &on.own.spent)).collect();
        let read = self.0.link.txn(TxnRequest { success, ..TxnRequest::default() }).await;
        let mut done = read.map_err(&fails)?;
        let (mut stages, mut open) = (Vec::new(), Vec::new());
        for (index, on) in ons.iter().enumerate() {
            let view = View::parse(&on.keys, &mut done).map_err(&fails)?;
            match self.stage(on, &view).await.map_err(&fails)? {
                Ok(Ok(stage)) => {
                    open.push(still_open(&on.keys, &view));
                    stages.push((stage, view.revision));
                }
                Ok(Err(state)) => {
                    let (watch, claim) = (Watch::Turn(on.claim.id), on.claim);
                    let ahead = view.members.len();
                    self.0.wakes.expect(&on.keys.line, claim.id, Turn::new(&view, None, ahead, claim.share));
                    return Ok(Some(Together::None { index, standing: stands(state, watch) }));
                }
                Err(overruled) => return Err(self.overrules(overruled, on.claim)),
            }
        }
        self.write(&ons, &stages, &open).await.map_err(&fails)
    }

    fn overrules(&self, overruled: Overruled, claim: &Claim) -> Error {
        overruled.into_error(&self.0.settings.label, claim)
    }

    /// How one of them stands; or why it cannot have the name now.
    async fn stage(&self, on: &Stating<'_>, view: &View) -> Result<Result<Result<Stage, State>, Overruled>> {
        let Stating { claim, own, .. } = on;
        let (ahead, stage) = match view.mine(own, claim.id)? {
            Some((_, member, value)) if value.holds() => {
                let known = self.0.holds.granted(claim.id).map(|granted| granted.until.since(on.asked));
                let left = match known.filter(|left| !left.is_zero()) {
                    None => self.remains(own, member.lease, member.created).await?,
                    left => left,
                };
                let Some(left) = left else { return Ok(Ok(Err(State::Spent))) };
                return Ok(Ok(Ok(Stage::Holds { created: member.created, left })));
            }
            Some((index, member, value)) => {
                if value.share != claim.share {
                    return Ok(Err(Overruled::OtherShare { stands: value.share }));
                }
                (index, Stage::Stands { created: member.created })
            }
            None if view.spent => return Ok(Ok(Err(State::Spent))),
            None => (view.members.len(), Stage::Free),
        };
        if let Some(overruled) = view.disagrees(ahead, claim.share) {
            return Ok(Err(overruled));
        }
        if let Some(closure) = self.closure(view).await? {
            return Ok(Ok(Err(State::Closed(closure))));
        }
        if admit(&view.shares(ahead), claim.share) != Verdict::Admit {
            let ahead = u32::try_from(ahead).ok();
            return Ok(Ok(Err(State::Waiting { ahead, retry_after: None })));
        }
        Ok(Ok(Ok(stage)))
    }

    async fn write(
        &self,
        ons: &[Stating<'_>],
        stages: &[(Stage, i64)],
        open: &[Vec<Compare>],
    ) -> Result<Option<Together>> {
        let Shared { link, holds, spent, clock, .. } = &*self.0;
        let fresh = |stage: &Stage| !matches!(stage, Stage::Holds { .. });
        let grants = ons.iter().zip(stages).map(|(on, (stage, _))| async move {
            if !fresh(stage) {
                return Ok(None);
            }
            holds.note(on.claim.id, |hold| hold.lease = true);
            link.grant(on.own.lease, on.claim.ttl).await.map(Some)
        });
        let grants = futures_util::future::join_all(grants).await.into_iter().collect::<Result<Vec<_>>>()?;
        let longest = ons.iter().map(|on| on.claim.ttl).max().unwrap_or_default();
        let mark = spent.lease(link, clock, remembered(longest)).await?;
        let (mut compare, mut success) = (Vec::new(), Vec::new());
        for (((on, (stage, revision)), granted), open) in ons.iter().zip(stages).zip(&grants).zip(open) {
            let Stating { claim, keys, own, .. } = on;
            match stage {
                Stage::Holds { created, .. } => {
                    compare.push(created_at(&own.key, *created));
                    continue;
                }
                Stage::Stands { created } => {
                    compare.extend([created_at(&own.key, *created), absent(&own.spent)]);
                    compare.extend(open.clone());
                }
                // Neither a key of its own nor a closure was there, and neither has come since.
                Stage::Free => {
                    compare.extend([absent(&own.spent), none_since(&keys.line, &keys.end, *revision)]);
                    // The first of these is part of that.
                    compare.extend(open.iter().skip(1).cloned());
                }
            }
            let value = Value::waiting(claim).granted().to_bytes();
            success.extend([puts(&own.key, value, own.lease), puts(&own.spent, Vec::new(), mark)]);
            let ttl = granted.map_or(claim.ttl, |leased: Leased| leased.ttl);
            success.extend(self.leaves(claim, keys, own, own.lease, ttl).await?.puts);
        }
        let done = match link.txn(TxnRequest { compare, success, ..TxnRequest::default() }).await {
            Ok(done) => done,
            Err(fail) if fail.what() == What::NoLease => {
                spent.forget().await;
                return Ok(None);
            }
            Err(fail) => return Err(fail),
        };
        if !done.succeeded {
            for (on, (stage, _)) in ons.iter().zip(stages) {
                if fresh(stage) && !fault!("etcd_lease_stays") {
                    link.revoke(on.own.lease).await?;
                    self.revoke_after(&on.own, on.claim.id).await?;
                }
            }
            return Ok(None);
        }
        let mut standings = Vec::new();
        for ((on, (stage, _)), granted) in ons.iter().zip(stages).zip(grants) {
            let claim = on.claim;
            let grant = match (stage, granted) {
                (Stage::Holds { created, left }, _) => {
                    let Some(token) = token(*created) else { return Err(Fail::garbled("a revision")) };
                    Grant { token, tokens: 1, ttl: *left }
                }
                (Stage::Stands { created }, Some(leased)) => {
                    let Some(ttl) = self.lasts(on, leased, *created, done.term).await? else {
                        return Ok(None);
                    };
                    link.revoke(on.own.place).await?;
                    let grant = self.granted(on, *created, ttl, true, Value::waiting(claim).granted())?;
                    // It has a lease of its whole ttl already.
                    holds.note(claim.id, |hold| hold.granted.iter_mut().for_each(|got| got.short = false));
                    grant
                }
                (_, Some(leased)) => {
                    let lasts = self.lasts(on, leased, done.revision, done.term).await?;
                    let Some(ttl) = lasts else { return Ok(None) };
                    self.granted(on, done.revision, ttl, false, Value::waiting(claim).granted())?
                }
                (_, None) => return Err(Fail::garbled("a lease that was not granted")),
            };
            standings.push(stands(State::Granted(grant), Watch::Hold(claim.id)));
        }
        Ok(Some(Together::All(standings)))
    }

    /// For how long what was written holds, once that is proved.
    async fn lasts(
        &self,
        on: &Stating<'_>,
        leased: Leased,
        created: i64,
        term: u64,
    ) -> Result<Option<Duration>> {
        if counts(leased.term, term) {
            return Ok(Some(leased.ttl));
        }
        self.prove(&on.own, on.own.lease, created).await
    }
}
