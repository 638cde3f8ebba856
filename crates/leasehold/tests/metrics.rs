//! What is counted, and that no label takes more than a few values.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::sim::{Mishap, Sim};
use leasehold::{Metrics, Op, Scheme};
use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

/// Metrics by their name and labels: how often, and the sum of what was recorded.
#[derive(Debug, Clone, Default)]
struct Recording(Arc<Mutex<BTreeMap<String, (u64, f64)>>>);

struct Cell(Recording, String);

impl Cell {
    fn new(recording: &Recording, key: &Key) -> Arc<Self> {
        let mut labels: Vec<_> =
            key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        labels.sort();
        Arc::new(Self(recording.clone(), format!("{}{{{}}}", key.name(), labels.join(","))))
    }

    fn add(&self, count: u64, sum: f64) {
        let mut all = self.0.0.lock().unwrap();
        let cell = all.entry(self.1.clone()).or_default();
        *cell = (cell.0 + count, cell.1 + sum);
    }
}

impl CounterFn for Cell {
    fn increment(&self, by: u64) {
        self.add(by, 0.0);
    }

    fn absolute(&self, _: u64) {
        unreachable!("nothing is set");
    }
}

impl HistogramFn for Cell {
    fn record(&self, value: f64) {
        self.add(1, value);
    }
}

impl Recorder for Recording {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.0.lock().unwrap().insert(format!("described {}", name.as_str()), (0, 0.0));
    }

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        assert_eq!(unit, Some(Unit::Seconds));
        self.0.lock().unwrap().insert(format!("described {}", name.as_str()), (0, 0.0));
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Cell::new(self, key))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        unreachable!("there is none")
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Cell::new(self, key))
    }
}

#[tokio::test]
async fn everything_is_counted_under_labels_of_few_values() {
    let recording = Recording::default();
    metrics::set_global_recorder(recording.clone()).unwrap();
    let sim = Sim::new();
    let plain = Arc::new(Metrics::new(Scheme::Memory));
    let client = sim.host_with("a", |builder| builder.observer(plain.clone()));
    let classes = Metrics::new(Scheme::Memory).classes(|name| match name.as_str().split_once(':') {
        Some(("order", _)) => "order".into(),
        _ => "other".into(),
    });
    let classy = sim.host_with("b", |builder| builder.observer(Arc::new(classes)));

    for order in 0..50 {
        let lease = classy.lock(format!("order:{order}")).acquire().await.unwrap();
        lease.release().await.unwrap();
    }
    let held = client.lock("x").ttl(Duration::from_secs(30)).acquire().await.unwrap();
    assert!(client.lock("x").try_acquire().await.unwrap().is_none());
    assert!(sim.until(client.lock("x").acquire_within(Duration::from_secs(2))).await.is_err());
    sim.advance(Duration::from_secs(8)).await;
    sim.wire(&client).next(Op::Renew, Mishap::Refused, 1);
    sim.advance(Duration::from_secs(18)).await;
    held.release().await.unwrap();
    sim.wire(&client).next(Op::Claim, Mishap::Refused, 1000);
    assert!(sim.until(client.lock("x").acquire()).await.is_err());
    sim.mend(&client).await;
    let lost = client.lock("x").ttl(Duration::from_secs(30)).acquire().await.unwrap();
    sim.wire(&client).next(Op::Renew, Mishap::ReplyLost, 1000);
    sim.advance(Duration::from_secs(31)).await;
    assert!(lost.check().is_err());

    let all = recording.0.lock().unwrap();
    let of = |metric: &str| all.get(metric).copied().unwrap_or_else(|| panic!("no {metric}: {all:#?}"));
    assert_eq!(of("leasehold_acquire_total{class=order,outcome=granted,store=memory}").0, 50);
    assert_eq!(of("leasehold_acquire_total{outcome=granted,store=memory}").0, 2);
    assert_eq!(of("leasehold_acquire_total{outcome=busy,store=memory}").0, 1);
    assert_eq!(of("leasehold_acquire_total{outcome=timed_out,store=memory}").0, 1);
    assert_eq!(of("leasehold_acquire_total{outcome=failed,store=memory}").0, 1);
    let waited = of("leasehold_acquire_wait_seconds{outcome=timed_out,store=memory}");
    assert_eq!(waited, (1, 2.0));
    assert_eq!(of("leasehold_hold_seconds{store=memory}"), (1, 28.0));
    assert_eq!(of("leasehold_release_total{outcome=acknowledged,store=memory}").0, 1);
    let kept = of("leasehold_renew_total{outcome=kept,store=memory}").0;
    assert!((2..=3).contains(&kept), "{kept}");
    let left = of("leasehold_renew_left_seconds{store=memory}");
    assert!(left.0 == kept && (15.0..20.0).contains(&(left.1 / kept as f64)), "{left:?}");
    assert!(of("leasehold_renew_total{outcome=failed,store=memory}").0 > 2);
    assert_eq!(of("leasehold_endangered_total{store=memory}").0, 1);
    assert_eq!(of("leasehold_lost_total{reason=expired,store=memory}").0, 1);
    of("leasehold_store_request_seconds{op=claim,outcome=failed,store=memory}");
    of("leasehold_store_request_seconds{op=renew,outcome=unknown,store=memory}");
    of("leasehold_store_request_seconds{class=order,op=release,outcome=done,store=memory}");

    // The table in the documentation is the list of what there is.
    let page = include_str!("../src/meter.rs");
    for key in all.keys() {
        let name = key.strip_prefix("described ").unwrap_or(key).split('{').next().unwrap();
        assert!(page.contains(&format!("/// | `{name}` |")), "{name} is not in the table");
        assert!(all.contains_key(&format!("described {name}")), "{name} has no description");
        assert!(!key.contains("order:") && !key.contains("=x"), "a name in a label: {key}");
    }
}
