//! What the tests of the engine share: a listener, and a wait for conditions.

use std::sync::Mutex;
use std::time::Duration;

use leasehold::{Clock, Event, Observer};

pub(crate) const TTL: Duration = Duration::from_millis(600);

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Waits until `done`, for at most 20 ttl.
pub(crate) async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let clock = Clock::system();
    let deadline = clock.now().after(TTL * 20);
    while !done().await {
        assert!(clock.now() < deadline, "not within 20 ttl: {what}");
        tokio::time::sleep(ms(2)).await;
    }
}

#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<Vec<Event>>);

impl Observer for Log {
    fn on(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Log {
    pub(crate) fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.0.lock().unwrap().iter().filter(|event| wanted(event)).count()
    }
}
