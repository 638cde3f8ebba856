//! How a lease is prolonged: a write proves that its node stands, and since when the session surely lives.

use std::time::Duration;

use leasehold_core::{
    Op, Renew, Renewal, Result as StoreResult, StoreErrorKind, TOMBSTONE_LIFE, Tenure, fault,
};
use zookeeper_client::Error;

use crate::fail::{Fail, Result};
use crate::holds::{Granted, Hold, Node};
use crate::store::ZooKeeperStore;
use crate::value::Value;

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
            None => return self.of_another(renew).await,
        };
        if node.token != tenure.token {
            return Ok(None);
        }
        let lost = || {
            self.0.holds.end(claim.id, self.0.clock.now(), claim.ttl + TOMBSTONE_LIFE);
            Ok(None)
        };
        if session.has_ended() {
            return lost();
        }
        let told = granted.tenure == tenure.count && granted.note == tenure.note;
        let stands = if fault!("zookeeper_renewed_by_reading") {
            session.ask(session.client().check_stat(&node.path)).await?.is_some()
        } else if told {
            self.stands(&session, &node.path).await?
        } else {
            // What its node tells of is written anew, which proves as much.
            let Tenure { count, token: _, note } = tenure;
            let value = Value { tenure: *count, note: note.clone(), ..Value::of(claim) };
            self.write(&session, &node, &value).await?
        };
        if !stands && !fault!("zookeeper_renews_what_is_gone") {
            return lost();
        }
        // By the clock at which the write was sent, or a little before.
        let ttl = session.lives(asked, asked);
        if ttl.is_zero() {
            return Err(
                Fail::new(StoreErrorKind::Unavailable, "the session may have run out meanwhile").unknown()
            );
        }
        let (tenure, note) = (tenure.count, tenure.note.clone());
        let kept = self.0.holds.grant(claim.id, Granted { until: asked.after(ttl), tenure, note });
        Ok(kept.then_some(ttl))
    }

    async fn write(&self, session: &crate::session::Session, node: &Node, value: &Value) -> Result<bool> {
        match session.try_ask(session.client().set_data(&node.path, &value.to_bytes(), None)).await? {
            Ok(_) => Ok(true),
            Err(Error::NoNode) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// A claim that this process did not state: it lives on with a session of somebody else, and by that alone.
    async fn of_another(&self, renew: &Renew) -> Result<Option<Duration>> {
        let session = self.0.sessions.any().await?;
        let view = self.look_anew(&session, &renew.claim.name).await?;
        if view.place_of(renew.claim.id).is_none() {
            return Ok(None);
        }
        Err(Fail::new(
            StoreErrorKind::Protocol,
            "the session of another client carries it, which alone can prolong it",
        )
        .help("renew a lease where it was acquired"))
    }
}
