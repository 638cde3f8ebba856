//! How a claim is stated: read, judged by the one rule, and written under the condition that what was read still holds.

use std::time::Duration;

use leasehold_core::{
    BootTime, Claim, ClaimId, Closure, Grant, Overruled, PLACE_LIFE, SHORT_GRANT, Standing, State,
    StoreErrorKind, TOMBSTONE_LIFE, Turn as Patience, Verdict, Watch, admit, fault,
};

use crate::after::still_open;
use crate::client::{Leased, absent, counts, created_at, none_since, puts, takes};
use crate::fail::{Fail, Result, What};
use crate::holds::Granted;
use crate::keys::{Keys, Own};
use crate::line::{View, looks, token};
use crate::proto::{RequestOp, TxnRequest};
use crate::store::{EtcdStore, Shared};
use crate::value::Value;
use crate::wake::Turn;

/// So often a claim is judged anew because the line has moved meanwhile. Whoever stands in it is overtaken by nobody, so
/// that this many are enough for all but a try among many.
const ROUNDS: usize = 16;
/// So often it is asked again where another leader was elected meanwhile.
pub(crate) const PROOFS: usize = 3;

/// A claim on its way, and what is known of it.
pub(crate) struct Stating<'a> {
    pub(crate) claim: &'a Claim,
    pub(crate) keys: Keys,
    pub(crate) own: Own,
    /// Before the first of it was sent.
    pub(crate) asked: BootTime,
    /// The highest revision that had been seen then.
    pub(crate) seen: i64,
}

impl<'a> Stating<'a> {
    pub(crate) fn new(store: &EtcdStore, claim: &'a Claim) -> Self {
        let keys = store.keys(&claim.name);
        let own = keys.own(claim.id);
        let Shared { clock, link, .. } = &*store.0;
        Self { claim, keys, own, asked: clock.now(), seen: link.highest() }
    }

    fn waits(&self) -> Standing {
        stands(State::Waiting { ahead: None, retry_after: None }, Watch::Turn(self.claim.id))
    }
}

pub(crate) fn stands(state: State, watch: Watch) -> Standing {
    Standing { state, cursor: watch.cursor(), server_time: None }
}

/// For how long an id must be remembered whose lease has this ttl: until well after that has run out.
pub(crate) fn remembered(ttl: Duration) -> Duration {
    ttl.max(PLACE_LIFE) + TOMBSTONE_LIFE
}

impl EtcdStore {
    /// One step of a claim.
    pub(crate) async fn stand(&self, claim: &Claim) -> Result<Result<Standing, Overruled>> {
        let on = Stating::new(self, claim);
        let Shared { link, holds, .. } = &*self.0;
        let known = holds.get(claim.id);
        // A place is refreshed by whoever restates its claim.
        let mut fresh: Option<Leased> = None;
        let mut view = if known.is_some_and(|hold| hold.place && hold.granted.is_none()) {
            let (kept, view) = tokio::join!(link.keep_alive(on.own.place), self.view(&on.keys, &on.own));
            fresh = kept?;
            view?
        } else {
            self.view(&on.keys, &on.own).await?
        };
        for _ in 0..ROUNDS {
            let mine = view.mine(&on.own, claim.id)?;
            let (ahead, stood) = match mine {
                Some((_, member, value)) if value.holds() && value.share == claim.share => {
                    return Ok(Ok(self.repeat(&on, member.lease, member.created).await?));
                }
                Some((index, member, value)) => {
                    if value.share != claim.share {
                        return Ok(Err(Overruled::OtherShare { stands: value.share }));
                    }
                    if fresh.is_none() {
                        fresh = link.keep_alive(on.own.place).await?;
                        if fresh.is_none() {
                            view = self.view(&on.keys, &on.own).await?;
                            continue;
                        }
                    }
                    (index, Some(member.created))
                }
                None if view.spent => return Ok(Ok(stands(State::Spent, Watch::Turn(claim.id)))),
                None => (view.members.len(), None),
            };
            if let Some(overruled) = view.disagrees(ahead, claim.share) {
                if stood.is_some() {
                    // It came in the moment before this one: what is refused leaves no place.
                    self.withdraw(&on).await?;
                }
                return Ok(Err(overruled));
            }
            let admitted = admit(&view.shares(ahead), claim.share) == Verdict::Admit;
            let next = match stood {
                Some(created) if admitted && view.is_open() => {
                    self.confirm(&on, &view, created, fresh.and_then(|leased| leased.term)).await?
                }
                None if admitted && view.is_open() => self.take(&on, &view).await?,
                None if claim.turn != Patience::Now => self.join(&on, &mut fresh).await?,
                _ => return Ok(Ok(self.wait(&on, &view, stood.is_some(), ahead).await?)),
            };
            match next {
                Next::Stands(standing) => return Ok(Ok(standing)),
                Next::Again(Some(next)) => view = next,
                Next::Again(None) => {
                    fresh = None;
                    view = self.view(&on.keys, &on.own).await?;
                }
            }
        }
        Err(Fail::new(StoreErrorKind::Unavailable, "the line moved each time it was looked at").unknown())
    }

    /// It waits, or the name is shut.
    async fn wait(
        &self,
        on: &Stating<'_>,
        view: &View,
        stands_there: bool,
        ahead: usize,
    ) -> Result<Standing> {
        let Stating { claim, keys, own, .. } = on;
        let key = stands_there.then(|| own.key.clone());
        self.0.wakes.expect(&keys.line, claim.id, Turn::new(view, key, ahead, claim.share));
        let state = match self.closure(view).await? {
            Some(closure) => State::Closed(closure),
            None => State::Waiting { ahead: u32::try_from(ahead).ok(), retry_after: None },
        };
        Ok(Standing { state, ..on.waits() })
    }

    /// Takes a place in the line. Answers how the line is then.
    async fn join(&self, on: &Stating<'_>, fresh: &mut Option<Leased>) -> Result<Next> {
        let Stating { claim, keys, own, .. } = on;
        let Shared { link, holds, .. } = &*self.0;
        // Before it may exist: whoever gives up from here on has it revoked.
        holds.note(claim.id, |hold| hold.place = true);
        let leased = link.grant(own.place, PLACE_LIFE).await?;
        let looks = looks(keys, &own.spent);
        let put = puts(&own.key, Value::waiting(claim).to_bytes(), leased.id);
        let txn = TxnRequest {
            compare: vec![absent(&own.key), absent(&own.spent)],
            success: std::iter::once(put).chain(looks.clone()).collect(),
            failure: looks,
        };
        let mut done = match link.txn(txn).await {
            Ok(done) => done,
            Err(fail) if fail.what() == What::NoLease => return Ok(Next::Again(None)),
            Err(fail) => return Err(fail),
        };
        if done.succeeded {
            done.skip();
        }
        *fresh = Some(leased);
        View::parse(keys, &mut done).map(|view| Next::Again(Some(view)))
    }

    /// Takes a name that is free, in the very transaction that sees it free: nobody has come since it was read. (That
    /// somebody has gone since makes it no less free.)
    async fn take(&self, on: &Stating<'_>, view: &View) -> Result<Next> {
        let Stating { claim, keys, own, .. } = on;
        let Shared { link, holds, spent, clock, .. } = &*self.0;
        holds.note(claim.id, |hold| hold.lease = true);
        let (granted, spent) =
            tokio::join!(link.grant(own.lease, claim.ttl), spent.lease(link, clock, remembered(claim.ttl)));
        let (Leased { id: lease, mut ttl, term }, spent) = (granted?, spent?);
        let after = self.leaves(claim, keys, own, lease, ttl).await?;
        let value = Value::waiting(claim).granted();
        let txn = TxnRequest {
            compare: [
                // Neither a key of its own nor a closure was there, and neither has come since.
                none_since(&keys.line, &keys.end, view.revision),
                absent(&own.spent),
            ]
            .into_iter()
            .chain(view.lives())
            .collect(),
            success: [puts(&own.key, value.to_bytes(), lease), puts(&own.spent, Vec::new(), spent)]
                .into_iter()
                .chain(after.puts)
                .collect(),
            failure: looks(keys, &own.spent),
        };
        let mut done = match link.txn(txn).await {
            Ok(done) => done,
            Err(fail) if fail.what() == What::NoLease => {
                self.0.spent.forget().await;
                return Ok(Next::Again(None));
            }
            Err(fail) => return Err(fail),
        };
        if done.succeeded {
            if !counts(term, done.term) {
                let Some(proved) = self.prove(own, own.lease, done.revision).await? else {
                    return Ok(Next::Again(None));
                };
                ttl = proved;
            }
            let granted = self.granted(on, done.revision, ttl, false, value)?;
            return Ok(Next::Stands(stands(State::Granted(granted), Watch::Hold(claim.id))));
        }
        let view = View::parse(keys, &mut done)?;
        if view.mine(own, claim.id)?.is_none() {
            // It holds nothing: a try ends here, and a place has another lease.
            link.revoke(own.lease).await?;
            self.revoke_after(own, claim.id).await?;
            holds.note(claim.id, |hold| hold.lease = false);
        }
        Ok(Next::Again(Some(view)))
    }

    /// Takes a lease whose turn has come, under the condition that its place is still the one that was waited in. That
    /// nobody is ahead of it is not proof enough: its own key may have gone while it waited.
    async fn confirm(&self, on: &Stating<'_>, view: &View, created: i64, term: Option<u64>) -> Result<Next> {
        let Stating { claim, keys, own, .. } = on;
        let Shared { link, spent, clock, .. } = &*self.0;
        let value = Value::waiting(claim).granted();
        if fault!("etcd_turn_not_confirmed") {
            let granted = self.granted(on, created, SHORT_GRANT, true, value)?;
            return Ok(Next::Stands(stands(State::Granted(granted), Watch::Hold(claim.id))));
        }
        let spent = spent.lease(link, clock, remembered(claim.ttl)).await?;
        let after = self.leaves(claim, keys, own, own.place, PLACE_LIFE).await?;
        let mut compare = vec![created_at(&own.key, created), absent(&own.spent)];
        compare.extend(still_open(keys, view));
        // Its waiter may have died with its grant: it has the lease of its place until it is renewed.
        let mut success =
            vec![puts(&own.key, value.to_bytes(), own.place), puts(&own.spent, Vec::new(), spent)];
        success.extend(after.puts);
        let txn = TxnRequest { compare, success, failure: looks(keys, &own.spent) };
        let mut done = match link.txn(txn).await {
            Ok(done) => done,
            Err(fail) if fail.what() == What::NoLease => {
                self.0.spent.forget().await;
                return Ok(Next::Again(None));
            }
            Err(fail) => return Err(fail),
        };
        if done.succeeded {
            // Its place was refreshed after it was asked for.
            if !counts(term, done.term) && self.prove(own, own.place, created).await?.is_none() {
                return Ok(Next::Again(None));
            }
            let ttl = SHORT_GRANT.min(claim.ttl.max(Duration::from_millis(1)));
            let granted = self.granted(on, created, ttl, true, value)?;
            return Ok(Next::Stands(stands(State::Granted(granted), Watch::Hold(claim.id))));
        }
        View::parse(keys, &mut done).map(|view| Next::Again(Some(view)))
    }

    /// Keeps a lease alive, and proves that it counts. `None` when the key stands no more.
    pub(crate) async fn prove(&self, own: &Own, lease: i64, created: i64) -> Result<Option<Duration>> {
        for _ in 0..PROOFS {
            let Some(kept) = self.0.link.keep_alive(lease).await? else { return Ok(None) };
            let compare = vec![created_at(&own.key, created)];
            let txn = TxnRequest { compare, success: writes_nothing(own), ..TxnRequest::default() };
            let done = self.0.link.txn(txn).await?;
            if !done.succeeded {
                return Ok(None);
            }
            if counts(kept.term, done.term) {
                return Ok(Some(kept.ttl));
            }
        }
        Err(unproved())
    }

    /// Notes what was granted.
    pub(crate) fn granted(
        &self,
        on: &Stating<'_>,
        created: i64,
        ttl: Duration,
        short: bool,
        value: Value,
    ) -> Result<Grant> {
        let Stating { claim, keys, own, asked, seen } = on;
        let Shared { link, holds, wakes, .. } = &*self.0;
        // What has stood in line since before may be older than what was seen, and yet in order.
        let back = if short { link.revision() < link.highest() } else { created <= *seen };
        let Some(token) = token(created).filter(|_| !back) else {
            return Err(Fail::new(
                StoreErrorKind::Protocol,
                format!("its revision went back to {created} from {seen}: it was restored from a copy"),
            )
            .help("tokens would fall: stop who uses them, or restore with --bump-revision")
            .unknown());
        };
        let until = asked.after(ttl);
        let granted = Granted { created, since: *asked, until, short, value };
        holds.note(claim.id, |hold| hold.granted = Some(granted));
        wakes.forget(&keys.line, claim.id);
        wakes.holds(&own.key, claim.id);
        wakes.start(link);
        Ok(Grant { token, tokens: 1, ttl })
    }

    /// The grant again, with what is left of it.
    async fn repeat(&self, on: &Stating<'_>, lease: i64, created: i64) -> Result<Standing> {
        let Stating { claim, own, asked, .. } = on;
        let Shared { holds, .. } = &*self.0;
        let known = holds.granted(claim.id).map(|granted| (granted.created, granted.until.since(*asked)));
        let (created, ttl) = match known {
            // Beyond that only somebody else can have prolonged it.
            Some((created, left)) if !left.is_zero() => (created, left),
            _ => match self.remains(own, lease, created).await? {
                Some(left) => (created, if lease == own.place { left.min(SHORT_GRANT) } else { left }),
                None => return Ok(stands(State::Spent, Watch::Turn(claim.id))),
            },
        };
        let Some(token) = token(created) else { return Err(Fail::garbled("a revision that is no token")) };
        let grant = Grant { token, tokens: 1, ttl };
        Ok(stands(State::Granted(grant), Watch::Hold(claim.id)))
    }

    /// What is left of a lease that somebody else made or prolonged, rounded down. `None` when that is nothing.
    pub(crate) async fn remains(&self, own: &Own, lease: i64, created: i64) -> Result<Option<Duration>> {
        for _ in 0..PROOFS {
            let Some(left) = self.0.link.left(lease).await? else { return Ok(None) };
            let compare = vec![created_at(&own.key, created)];
            let txn = TxnRequest { compare, success: writes_nothing(own), ..TxnRequest::default() };
            let done = self.0.link.txn(txn).await?;
            if !done.succeeded || left.left == 0 {
                return Ok(None);
            }
            if counts(Some(left.term), done.term) {
                return Ok(Some(Duration::from_secs(left.left)));
            }
        }
        Err(unproved())
    }

    /// Takes a place back that should not have been taken.
    async fn withdraw(&self, on: &Stating<'_>) -> Result<()> {
        self.0.link.revoke(on.own.place).await?;
        self.0.holds.forget(on.claim.id);
        Ok(())
    }

    /// What shuts the name for the longest time.
    pub(crate) async fn closure(&self, view: &View) -> Result<Option<Closure>> {
        let lefts = self.lefts(view.shut.iter().map(|shut| shut.lease).collect()).await?;
        Ok(view.closure(|lease| lefts.get(&lease).copied()))
    }

    /// The leases of what would be left behind, of a claim that holds nothing.
    pub(crate) async fn revoke_after(&self, own: &Own, id: ClaimId) -> Result<()> {
        let Shared { link, holds, .. } = &*self.0;
        if holds.get(id).is_some_and(|hold| hold.after) {
            for lease in [own.after_place, own.after, own.least] {
                link.revoke(lease).await?;
            }
            holds.note(id, |hold| hold.after = false);
        }
        Ok(())
    }

    /// Whatever leases a claim may have left, revoked.
    pub(crate) async fn revoke(&self, own: &Own, id: ClaimId) {
        let Shared { link, holds, .. } = &*self.0;
        let (lease, place) = holds.get(id).map_or((true, true), |hold| (hold.lease, hold.place));
        holds.forget(id);
        if fault!("etcd_lease_stays") {
            return;
        }
        let lease = async { if lease { link.revoke(own.lease).await } else { Ok(()) } };
        let place = async { if place { link.revoke(own.place).await } else { Ok(()) } };
        // They have no keys any more, so that nobody waits for them; and they end by themselves.
        let _ = tokio::join!(lease, place);
    }
}

/// A step that goes the way of those that write, and writes nothing: it takes away what is never there.
pub(crate) fn writes_nothing(own: &Own) -> Vec<RequestOp> {
    vec![takes(&[&own.spent[..], b"/"].concat())]
}

/// One leader followed the other.
pub(crate) fn unproved() -> Fail {
    Fail::new(StoreErrorKind::Unavailable, "the leader changed each time it was asked").unknown()
}

/// What follows from a step.
pub(crate) enum Next {
    /// It stands here.
    Stands(Standing),
    /// It is judged anew, by this or by what is read then.
    Again(Option<View>),
}
