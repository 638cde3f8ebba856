//! What becomes of claims that nobody asks for any more, although the session that carries them lives on.
//!
//! A session is kept alive by its process, not by whoever wants its claims: a lease that is not renewed, and the place of a
//! future that nobody polls, would stand for as long as the process. So the process takes them away itself, once their time
//! is up.

use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::{ClaimId, TOMBSTONE_LIFE, fault};
use tokio::time::sleep;

use crate::fail::Result;
use crate::holds::Hold;
use crate::node::is_of;
use crate::store::{Shared, ZooKeeperStore};

/// So often it is looked.
const PAUSE: Duration = Duration::from_millis(250);

impl ZooKeeperStore {
    /// Looks after the claims of this process from now on.
    pub(crate) fn watch_over(&self) {
        let watch = |shared: Weak<Shared>| async move {
            loop {
                sleep(PAUSE).await;
                let Some(shared) = shared.upgrade() else { return };
                Self(shared).take_lapsed().await;
            }
        };
        self.0.lapses.get_or_init(|| tokio::spawn(watch(Arc::downgrade(&self.0))).abort_handle());
    }

    async fn take_lapsed(&self) {
        if fault!("zookeeper_nothing_lapses") {
            return;
        }
        for (id, hold) in self.0.holds.lapsed(self.0.clock.now()) {
            // What cannot be taken away now is tried again.
            drop(self.take_one(id, hold).await);
        }
    }

    async fn take_one(&self, id: ClaimId, hold: Hold) -> Result<()> {
        let Hold { session, node, granted, sent, line, .. } = hold;
        if !session.has_ended() {
            if let Some(node) = &node {
                self.take_away(&session, &node.path).await?;
            } else if sent {
                // Its answer was lost: it is found by its id, by a server that is not behind.
                self.stands(&session, self.0.paths.root()).await?;
                for node in self.children(&session, &line).await? {
                    if is_of(&node, id) {
                        self.take_away(&session, &format!("{line}/{node}")).await?;
                    }
                }
            }
        }
        if granted.is_some() {
            self.0.holds.end(id, self.0.clock.now(), session.life + TOMBSTONE_LIFE);
        }
        self.0.holds.lapse_done(id);
        self.0.sessions.forget(id);
        Ok(())
    }
}
