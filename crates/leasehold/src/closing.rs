//! What a closed client still owes to those who hold leases: nobody renews for them any more, and they hear of it, at
//! once that the end is near, and at the end that it is there.

use std::rc::Rc;

use leasehold_core::{LostReason, fault};

use crate::engine::Engine;
use crate::event::Event;
use crate::watchdog;

/// Returns once the last lease that was held at the close has run out.
pub(crate) async fn run_out(engine: &Rc<Engine>) {
    if fault!("closes_in_silence") {
        return;
    }
    for (hold, _) in engine.watchdog.holds() {
        if hold.endanger() {
            let (name, token, remaining) = (hold.name.clone(), hold.token(), hold.remaining());
            engine.emit(&Event::Endangered { name, token, remaining });
        }
    }
    while let Some(end) = engine.watchdog.holds().iter().map(|(hold, _)| hold.until()).min() {
        engine.clock.sleep_until(end).await;
        let now = engine.clock.now();
        for (hold, _) in engine.watchdog.holds() {
            if now >= hold.until() {
                watchdog::lose(engine, hold.id, LostReason::Expired);
            }
        }
    }
}
