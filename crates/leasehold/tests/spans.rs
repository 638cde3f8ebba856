//! The spans of `tracing`: around acquires, leases and work, in the task that asks.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::Leasehold;
use leasehold::sim::Sim;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

/// Each span by its number: its name, its fields, whether it has ended.
#[derive(Debug, Clone, Default)]
struct Spans(Arc<Mutex<Vec<Seen>>>);

#[derive(Debug, Clone, Default)]
struct Seen {
    name: &'static str,
    fields: BTreeMap<&'static str, String>,
    entered: usize,
    open: usize,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

impl Spans {
    fn change<T>(&self, id: &Id, change: impl FnOnce(&mut Seen) -> T) -> T {
        let index = usize::try_from(id.into_u64()).unwrap() - 1;
        change(&mut self.0.lock().unwrap()[index])
    }

    fn named(&self, name: &str) -> Vec<Seen> {
        self.0.lock().unwrap().iter().filter(|seen| seen.name == name).cloned().collect()
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span()
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut seen = Seen { name: attributes.metadata().name(), open: 1, ..Seen::default() };
        attributes.record(&mut seen);
        let mut spans = self.0.lock().unwrap();
        spans.push(seen);
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        self.change(id, |seen| values.record(seen));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &tracing::Event<'_>) {}

    fn enter(&self, id: &Id) {
        self.change(id, |seen| seen.entered += 1);
    }

    fn exit(&self, _: &Id) {}

    fn clone_span(&self, id: &Id) -> Id {
        self.change(id, |seen| seen.open += 1);
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        self.change(&id, |seen| {
            seen.open -= 1;
            seen.open == 0
        })
    }
}

fn fields(seen: &Seen) -> Vec<(&'static str, &str)> {
    seen.fields.iter().map(|(key, value)| (*key, value.as_str())).collect()
}

#[tokio::test]
async fn acquires_leases_and_work_have_spans_that_say_how_they_ended() {
    let spans = Spans::default();
    let _scope = tracing::subscriber::set_default(spans.clone());
    let client = Leasehold::memory();
    let lock = client.lock("x").ttl(Duration::from_secs(20));
    let token = lock.run(async |lease| lease.token()).await.unwrap().to_string();
    let held = lock.acquire().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert!(lock.acquire_within(Duration::from_millis(5)).await.is_err());
    let acquires = spans.named("leasehold.acquire");
    let ended: Vec<_> = acquires.iter().map(|seen| (seen.fields["outcome"].as_str(), seen.open)).collect();
    assert_eq!(ended, [("granted", 0), ("granted", 0), ("busy", 0), ("timed_out", 0)]);
    let first =
        [("name", "x"), ("outcome", "granted"), ("store", "memory"), ("token", &token), ("ttl_ms", "20000")];
    assert_eq!(fields(&acquires[0]), first);
    assert_eq!(acquires[3].fields["wait_ms"], "5");
    let runs = spans.named("leasehold.run");
    assert_eq!((runs.len(), fields(&runs[0]), runs[0].open), (1, vec![("name", "x"), ("token", &*token)], 0));
    assert!(runs[0].entered > 0, "the work is inside");

    let leases = spans.named("leasehold.lease");
    assert_eq!((leases.len(), leases[0].fields["ended"].as_str(), leases[0].open), (2, "released", 0));
    assert_eq!((leases[1].fields.contains_key("ended"), leases[1].open), (false, 1), "it is held");
    drop(held);
    assert_eq!(spans.named("leasehold.lease")[1].fields["ended"], "dropped");
}

#[tokio::test]
async fn a_lost_lease_says_so_in_its_span() {
    let spans = Spans::default();
    let _scope = tracing::subscriber::set_default(spans.clone());
    let sim = Sim::new();
    let lease = sim.client().lock("x").acquire().await.unwrap();
    sim.expire(&lease).await;
    drop(lease);
    assert_eq!(spans.named("leasehold.lease")[0].fields["ended"], "lost");
}
