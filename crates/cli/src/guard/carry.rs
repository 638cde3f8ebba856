//! The lease while `run` is stopped by Ctrl-Z: the guard renews it, with a client of its own for that time only.

use std::path::PathBuf;
use std::time::Duration;

use leasehold::config::{Config, Overrides};
use leasehold::{Lease, LeaseTicket, Leasehold};
use tokio::runtime::Runtime;

use super::link::Carry;

/// How long giving it back may take.
const CLOSING: Duration = Duration::from_secs(1);

/// A lease that the guard has.
pub(super) struct Carried {
    runtime: Runtime,
    client: Leasehold,
    lease: Lease,
}

impl Carried {
    /// Takes it over, if that is done in this time.
    pub(super) fn take(carry: Carry, most: Duration) -> Option<Self> {
        let Carry { store, config, name, ticket } = carry;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().ok()?;
        let take = async {
            let ticket = LeaseTicket::from_bytes(ticket.as_bytes()).ok()?;
            let config = config.map(PathBuf::from);
            // Read once more rather than sent: whatever names the store may hold a password.
            let config = Config::load(Overrides { store, config, ..Overrides::default() }).ok()?;
            let choice = config.store(Some(&name)).ok()?;
            let client = Leasehold::builder().timeout(choice.timeout.value).open(choice.url).await.ok()?;
            let lease = client.resume(ticket).await.ok()?;
            Some((client, lease))
        };
        let (client, lease) = runtime.block_on(async { tokio::time::timeout(most, take).await.ok() })??;
        Some(Self { runtime, client, lease })
    }

    /// For how long it still holds.
    pub(super) fn remaining(&self) -> Duration {
        self.lease.remaining()
    }

    /// Lets go of it, for `run` to take it back.
    pub(super) fn keep(self) {
        let Self { runtime, client, lease } = self;
        lease.keep();
        let _ = runtime.block_on(async { tokio::time::timeout(CLOSING, client.close()).await });
    }

    /// Gives it back to the store: nothing is left that it protects.
    pub(super) fn release(self) {
        let Self { runtime, client, lease } = self;
        let _ = runtime.block_on(async {
            let _ = tokio::time::timeout(CLOSING, lease.release()).await;
            tokio::time::timeout(CLOSING, client.close()).await
        });
    }
}
