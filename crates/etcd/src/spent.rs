//! The leases under which it is remembered that an id was granted, or has ended: a few for all claims of a process.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::{BootTime, Clock};
use tokio::sync::Mutex;

use crate::client::{Leased, seconds};
use crate::fail::Result;
use crate::link::Link;

/// Nothing is remembered for less.
const LEAST: u64 = 16;

/// One lease for each span of time, made anew once what is left of it is less than the span. A lease of its own for each
/// mark would double what the cluster has to do for a lock.
#[derive(Debug, Default)]
pub(crate) struct Spent {
    leases: Mutex<BTreeMap<u64, (i64, BootTime)>>,
}

impl Spent {
    /// A lease that lives on for at least `life`.
    pub(crate) async fn lease(&self, link: &Link, clock: &Clock, life: Duration) -> Result<i64> {
        let span = u64::try_from(seconds(life)).unwrap_or(LEAST).max(LEAST).next_power_of_two();
        // Whoever else wants one waits for the same.
        let mut leases = self.leases.lock().await;
        let now = clock.now();
        if let Some((id, until)) = leases.get(&span)
            && *until > now
        {
            return Ok(*id);
        }
        let Leased { id, ttl: granted, .. } = link.grant(0, Duration::from_secs(2 * span)).await?;
        leases.insert(span, (id, now.after(granted.saturating_sub(Duration::from_secs(span)))));
        Ok(id)
    }

    /// One of them is gone: whoever wants one gets another.
    pub(crate) async fn forget(&self) {
        self.leases.lock().await.clear();
    }
}
