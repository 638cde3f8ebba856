//! What is done when the store may have forgotten: all leases are asked for at once, and their holders warned.

use std::rc::Rc;
use std::sync::Arc;

use leasehold_core::{BootTime, Doubt, fault};

use super::Watchdog;
use crate::engine::Engine;
use crate::event::Event;
use crate::hold::Hold;

/// Asks whenever there is reason to, until the engine ends.
pub(crate) async fn doubts(engine: Rc<Engine>) {
    loop {
        let doubt = engine.store.doubt().await;
        if fault!("doubts_nothing") {
            continue;
        }
        let now = engine.clock.now();
        let warned = engine.watchdog.ask_at_once(now, doubt == Doubt::Replaced);
        for hold in warned {
            let (name, token, remaining) = (hold.name.clone(), hold.token(), hold.remaining());
            engine.emit(&Event::Endangered { name, token, remaining });
        }
    }
}

impl Watchdog {
    /// Has every lease renewed now, and warns its holder if told to. Gives those who were warned.
    ///
    /// Where renewals fail already they are tried again at a pace of their own, which a doubt that each of these tries
    /// brings up anew must not quicken.
    fn ask_at_once(&self, now: BootTime, warn: bool) -> Vec<Arc<Hold>> {
        let mut inner = self.inner.borrow_mut();
        let mut warned = Vec::new();
        let mut due = Vec::new();
        for (id, entry) in inner.entries.iter_mut().filter(|(_, entry)| entry.look_at.is_some()) {
            if warn && entry.hold.endanger() {
                warned.push(entry.hold.clone());
            }
            entry.doubted = true;
            if entry.tenancy.failures == 0 {
                entry.renew_at = now;
                due.push(*id);
            }
        }
        for id in due {
            inner.schedule(id, Some(now));
        }
        self.moved.notify_one();
        warned
    }
}
