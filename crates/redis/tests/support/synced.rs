//! A store whose server goes by the clock of a test, over each way to the server.

use std::sync::Arc;

use leasehold_core::Clock;
use leasehold_harness::servers::clock::ToldClock;
use leasehold_harness::servers::synced::Synced;
use leasehold_redis::RedisStore;

use super::server::Server;
use super::ways::Way;

/// The store in this server.
pub(crate) fn synced(server: &Arc<Server>, way: Way, clock: &Clock) -> Synced {
    let store = RedisStore::open_with(&way.url(server).parse().unwrap(), clock.clone()).unwrap();
    let told = ToldClock::of(server.running()).unwrap();
    Synced::new(Arc::new(store), told, clock, server.clone())
}
