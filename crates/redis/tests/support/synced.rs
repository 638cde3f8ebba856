//! A store whose servers go by the clock of a test, over each way to them.

use std::sync::Arc;

use leasehold_core::Clock;
use leasehold_harness::servers::synced::Synced;
use leasehold_redis::RedisStore;

use super::host::Host;
use super::ways::Way;

/// The store in this server, or in this cluster.
pub(crate) fn synced(host: &Arc<Host>, way: Way, clock: &Clock) -> Synced {
    let store = RedisStore::open_with(&host.url(way).parse().unwrap(), clock.clone()).unwrap();
    let synced = Synced::new(Arc::new(store), host.clocks().unwrap(), clock, host.clone());
    if way == Way::Cluster { synced.apart() } else { synced }
}
