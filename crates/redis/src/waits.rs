//! Waits: for a push, for the moment when something in the way may run out, or by looking again.

use std::time::Duration;

use leasehold_core::{ClaimId, LockName, Ruling, Watch};

use crate::fail;
use crate::keys::Keys;
use crate::line::Looked;
use crate::store::{RedisStore, Shared};

/// How often those look again whom nobody pushes: watchers of a name, and holders.
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl RedisStore {
    /// Waits for the pushes of one claim, and looks when something in the way may have run out.
    pub(crate) async fn await_turn(
        &self,
        name: &LockName,
        keys: &Keys,
        id: ClaimId,
        claimed: Option<u64>,
    ) -> fail::Result<()> {
        let Shared { wakes, clock, .. } = &*self.0;
        let registered = wakes.pushes(id).filter(|pushes| Some(pushes.claimed) == claimed);
        let known = registered.is_some();
        let mut pushes = match registered {
            Some(pushes) => pushes,
            None => {
                // Asked by another client, or long ago: whoever is pushed is whoever claimed last.
                wakes.expect(id, clock.now(), None);
                match wakes.pushes(id) {
                    Some(pushes) => pushes,
                    None => return Ok(()),
                }
            }
        };
        let mut until = pushes.until.filter(|_| known);
        loop {
            if until.is_none() {
                let looked = self.look(name, keys).await?;
                if looked.broken {
                    until = Some(self.after(looked.next_lapse().unwrap_or(LOOK_EVERY)));
                } else {
                    match looked.line.rule(looked.at.boot, Watch::Turn(id)) {
                        Ruling::Ready if looked.foreign.is_none() || !stands(&looked, id) => return Ok(()),
                        Ruling::NotBefore(lapse) => until = Some(self.after(lapse.since(looked.at.boot))),
                        Ruling::Ready | Ruling::NotYet => {}
                    }
                }
            }
            let deaf = !known || !wakes.hears_of(id);
            tokio::select! {
                () = pushes.next() => return Ok(()),
                () = async {
                    match until {
                        Some(until) => clock.sleep_until(until).await,
                        None => std::future::pending().await,
                    }
                } => {}
                () = tokio::time::sleep(LOOK_EVERY), if deaf || until.is_none() => {}
            }
            until = None;
        }
    }

    /// Looks again and again: nobody tells of everything that moves.
    pub(crate) async fn await_change(
        &self,
        name: &LockName,
        keys: &Keys,
        over: impl Fn(&Looked) -> bool,
        id: Option<ClaimId>,
    ) -> fail::Result<()> {
        let Shared { wakes, clock, .. } = &*self.0;
        if let Some(id) = id.filter(|id| wakes.pushes(*id).is_none()) {
            wakes.expect(id, clock.now(), None);
        }
        let mut pushes = id.and_then(|id| wakes.pushes(id));
        loop {
            let looked = self.look(name, keys).await?;
            if over(&looked) {
                return Ok(());
            }
            let lapse = looked.next_lapse().map(|left| self.after(left));
            tokio::select! {
                () = async {
                    match &mut pushes {
                        Some(pushes) => pushes.next().await,
                        None => std::future::pending().await,
                    }
                } => return Ok(()),
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = async {
                    match lapse {
                        Some(lapse) => clock.sleep_until(lapse).await,
                        None => std::future::pending().await,
                    }
                } => {}
            }
        }
    }
}

/// Whether this claim stands in the line.
fn stands(looked: &Looked, id: ClaimId) -> bool {
    looked.line.members.iter().any(|member| member.id == id && member.until > looked.at.boot)
}
