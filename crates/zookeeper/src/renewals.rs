//! How a lease is prolonged: a write proves that its node stands, and since when the session surely lives.

use std::time::Duration;

use leasehold_core::{
    BootTime, Op, Renew, Renewal, Result as StoreResult, StoreErrorKind, TOMBSTONE_LIFE, Tenure, Verdict,
    admit, fault,
};
use zookeeper_client::{CreateMode, Error, MultiWriteError};

use crate::fail::{Fail, Result};
use crate::holds::{Granted, Hold, Node};
use crate::line::token;
use crate::node::moved;
use crate::session::Session;
use crate::store::ZooKeeperStore;
use crate::value::Value;

/// So often a lease is taken over anew that went on meanwhile.
const ROUNDS: usize = 8;

impl ZooKeeperStore {
    pub(crate) async fn renew_one(&self, renew: &Renew) -> StoreResult<Renewal> {
        let Renew { claim, .. } = renew;
        let renewed = self.prolong(renew).await.map_err(self.failed(Op::Renew, Some(&claim.name)))?;
        match renewed {
            Some(ttl) => Ok(Renewal::Kept { ttl, server_time: None }),
            None => Ok(Renewal::Lost),
        }
    }

    /// For how long it then holds. `None` when it holds nothing.
    async fn prolong(&self, renew: &Renew) -> Result<Option<Duration>> {
        let Renew { claim, tenure } = renew;
        let asked = self.0.clock.now();
        let (session, node, granted) = match self.0.holds.get(claim.id) {
            Some(Hold { session, node: Some(node), granted: Some(granted), .. }) => (session, node, granted),
            // Who waits holds nothing.
            Some(_) => return Ok(None),
            None => return self.take_over(renew, asked, None).await,
        };
        if node.token != tenure.token {
            return Ok(None);
        }
        if session.has_ended() {
            return self.lost_unless_elsewhere(renew, asked, &session).await;
        }
        let told = granted.tenure == tenure.count && granted.note == tenure.note;
        let stands = if fault!("zookeeper_renewed_by_reading") {
            session.ask(session.client().check_stat(&node.path)).await?.is_some()
        } else if told {
            self.stands(&session, &node.path).await?
        } else {
            // What its node tells of is written anew, which proves as much.
            let Tenure { count, token: _, note } = tenure;
            let token = Some(node.token);
            let value = Value { tenure: *count, token, note: note.clone(), ..Value::of(claim) };
            self.write(&session, &node, &value).await?
        };
        if !stands && !fault!("zookeeper_renews_what_is_gone") {
            return self.lost_unless_elsewhere(renew, asked, &session).await;
        }
        // By the clock at which the write was sent, or a little before.
        let ttl = session.lives(asked, asked);
        if ttl.is_zero() {
            return Err(out_of_time());
        }
        let (tenure, note) = (tenure.count, tenure.note.clone());
        let kept = self.0.holds.grant(claim.id, Granted { until: asked.after(ttl), tenure, note });
        Ok(kept.then_some(ttl))
    }

    async fn write(&self, session: &Session, node: &Node, value: &Value) -> Result<bool> {
        match session.try_ask(session.client().set_data(&node.path, &value.to_bytes(), None)).await? {
            Ok(_) => Ok(true),
            Err(Error::NoNode) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// What this process held has gone from where it was: with its session, or because another process renewed it, as a
    /// guard does while its run is stopped.
    async fn lost_unless_elsewhere(
        &self,
        renew: &Renew,
        asked: BootTime,
        old: &Session,
    ) -> Result<Option<Duration>> {
        let Renew { claim, .. } = renew;
        let taken = self.take_over(renew, asked, Some(old.number())).await?;
        if taken.is_none() {
            self.0.holds.end(claim.id, self.0.clock.now(), claim.ttl + TOMBSTONE_LIFE);
        }
        Ok(taken)
    }

    /// Renews a claim that another session carries: in one step its node gives way to one of ours, in the same place. The
    /// name is never free in between, and the token stays. `never` is a session whose node is not taken: what it carries
    /// ends with it.
    async fn take_over(
        &self,
        renew: &Renew,
        asked: BootTime,
        never: Option<i64>,
    ) -> Result<Option<Duration>> {
        let Renew { claim, tenure } = renew;
        let session = self.0.sessions.of(claim.id, claim.ttl).await?;
        let line = self.0.paths.line(&claim.name);
        for _ in 0..ROUNDS {
            let view = self.look_surely(&session, &claim.name).await?;
            let Some(place) = view.place_of(claim.id) else { return Ok(None) };
            let member = &view.members[place];
            if admit(&view.shares(place), member.share) != Verdict::Admit {
                return Ok(None);
            }
            let path = format!("{line}/{}", member.node);
            let Some((data, stat)) = session.read(&path).await? else { continue };
            let Some(value) = Value::parse(&data) else { return Ok(None) };
            let first = match value.token {
                Some(token) => token,
                None => token(stat.czxid)?,
            };
            if first != tenure.token || never == Some(stat.ephemeral_owner) {
                return Ok(None);
            }
            let Some(next) = moved(&member.node) else { return Ok(None) };
            let next = format!("{line}/{next}");
            let (count, note) = (tenure.count, tenure.note.clone());
            let value = Value { tenure: count, token: Some(first), note: note.clone(), ..value };
            let sent = self.0.clock.now();
            let mut step = session.client().new_multi_writer();
            step.add_delete(&path, None)?;
            let ephemeral = CreateMode::Ephemeral.with_acls(session.acls());
            step.add_create(&next, &value.to_bytes(), &ephemeral)?;
            match session.try_ask(step.commit()).await? {
                Ok(_) => {}
                // It went on meanwhile, or has gone.
                Err(MultiWriteError::OperationFailed { source: Error::NoNode, .. }) => continue,
                Err(
                    MultiWriteError::OperationFailed { source, .. }
                    | MultiWriteError::RequestFailed { source },
                ) => return Err(source.into()),
            }
            let ttl = session.lives(sent, asked);
            if ttl.is_zero() {
                return Err(out_of_time());
            }
            let node = Node { path: next, token: first };
            let granted = Granted { until: asked.after(ttl), tenure: count, note };
            let hold = Hold::new(session.clone(), line, member.share, asked);
            let hold = Hold { node: Some(node), granted: Some(granted), sent: true, ..hold };
            self.0.holds.note(claim.id, hold);
            self.watch_over();
            return Ok(Some(ttl));
        }
        Err(Fail::new(StoreErrorKind::Unavailable, "the line moved each time it was looked at").unknown())
    }
}

fn out_of_time() -> Fail {
    Fail::new(StoreErrorKind::Unavailable, "the session may have run out meanwhile").unknown()
}
