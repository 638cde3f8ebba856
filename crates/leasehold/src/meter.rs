//! What happens to locks as counters and histograms, through the facade `metrics`.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use leasehold_core::{Effect, Error, LockName, LostReason, Op, Scheme};
use metrics::{Label, Unit};

use crate::event::{self, Event, Observer};

/// Puts a name into one of a few classes.
type Classify = dyn Fn(&LockName) -> Cow<'static, str> + Send + Sync;

/// An [`Observer`] that counts, through the facade [`metrics`]: whichever exporter the program has installed shows it.
/// Needs the feature `metrics`.
///
/// | metric | kind | labels | tells |
/// |---|---|---|---|
/// | `leasehold_acquire_total` | counter | `store`, `outcome`: `granted`, `busy`, `timed_out`, `failed` | acquires that were answered |
/// | `leasehold_acquire_wait_seconds` | histogram | `store`, `outcome` | how long they waited |
/// | `leasehold_hold_seconds` | histogram | `store` | how long leases were held that were given back |
/// | `leasehold_release_total` | counter | `store`, `outcome`: `acknowledged`, `handed_on`, `unanswered` | leases given back; an unanswered one is tried again |
/// | `leasehold_renew_total` | counter | `store`, `outcome`: `kept`, `failed` | renewals; `failed` ones are tried again |
/// | `leasehold_renew_left_seconds` | histogram | `store` | how much was left when a renewal was answered: what to put an alarm on, since it shrinks long before anything is lost |
/// | `leasehold_endangered_total` | counter | `store` | leases whose holder was warned |
/// | `leasehold_lost_total` | counter | `store`, `reason`: `expired`, `broken`, `superseded`, `store_forgot`, `held_too_long`, `other` | leases that were lost |
/// | `leasehold_stuck_total` | counter | `store`, `kind`: `itself`, `circle` | waits that only the program itself can end |
/// | `leasehold_open_run_total` | counter | `store` | work that was done without a lease, since the store was down |
/// | `leasehold_store_request_seconds` | histogram | `store`, `op`: `claim`, `wait`, `renew`, `release`, `inspect`, `list`, `ledger` ..; `outcome`: `done`, `failed`, `unknown` | how long the store took |
///
/// # No names
///
/// Each label takes one of a few values, however many locks there are: a lock for each order would be a time series for
/// each order. Where that is too coarse, [`classes`](Self::classes) puts names into classes of your own, as the label
/// `class`.
///
/// ```
/// use std::sync::Arc;
/// use leasehold::{Leasehold, Metrics, Scheme};
///
/// let metrics = Metrics::new(Scheme::Memory).classes(|name| match name.as_str().split_once(':') {
///     Some(("order", _)) => "order".into(),
///     _ => "other".into(),
/// });
/// let client = Leasehold::builder().observer(Arc::new(metrics)).memory();
/// ```
pub struct Metrics {
    scheme: &'static str,
    classify: Option<Box<Classify>>,
}

impl Metrics {
    /// For a client of this kind of store. Several clients may share one.
    #[must_use]
    pub fn new(scheme: Scheme) -> Self {
        metrics::describe_counter!("leasehold_acquire_total", "acquires that were answered");
        describe("leasehold_acquire_wait_seconds", "how long acquires waited");
        describe("leasehold_hold_seconds", "how long leases were held that were given back");
        metrics::describe_counter!("leasehold_release_total", "leases given back");
        metrics::describe_counter!("leasehold_renew_total", "renewals");
        describe("leasehold_renew_left_seconds", "how much was left when a renewal was answered");
        metrics::describe_counter!("leasehold_endangered_total", "leases whose holder was warned");
        metrics::describe_counter!("leasehold_lost_total", "leases that were lost");
        metrics::describe_counter!("leasehold_stuck_total", "waits that only the program itself can end");
        metrics::describe_counter!("leasehold_open_run_total", "work that was done without a lease");
        describe("leasehold_store_request_seconds", "how long the store took");
        Self { scheme: scheme.as_str(), classify: None }
    }

    /// Adds the label `class`, which is what this gives for the name of the lock. Defaults to no such label. It must
    /// give one of a few values, and return at once: it is called on the thread that renews.
    #[must_use]
    pub fn classes(
        mut self,
        classify: impl Fn(&LockName) -> Cow<'static, str> + Send + Sync + 'static,
    ) -> Self {
        self.classify = Some(Box::new(classify));
        self
    }

    fn labels<const N: usize>(
        &self,
        name: Option<&LockName>,
        more: [(&'static str, &'static str); N],
    ) -> Vec<Label> {
        let mut labels = vec![Label::from_static_parts("store", self.scheme)];
        labels.extend(more.map(|(key, value)| Label::from_static_parts(key, value)));
        if let (Some(classify), Some(name)) = (&self.classify, name) {
            labels.push(Label::new("class", classify(name)));
        }
        labels
    }

    fn count<const N: usize>(
        &self,
        metric: &'static str,
        name: &LockName,
        more: [(&'static str, &'static str); N],
    ) {
        metrics::counter!(metric, self.labels(Some(name), more)).increment(1);
    }

    fn took<const N: usize>(
        &self,
        metric: &'static str,
        name: Option<&LockName>,
        more: [(&'static str, &'static str); N],
        time: Duration,
    ) {
        metrics::histogram!(metric, self.labels(name, more)).record(time);
    }

    fn acquire(&self, name: &LockName, outcome: &'static str, waited: Duration) {
        self.count("leasehold_acquire_total", name, [("outcome", outcome)]);
        self.took("leasehold_acquire_wait_seconds", Some(name), [("outcome", outcome)], waited);
    }
}

fn describe(histogram: &'static str, what: &'static str) {
    metrics::describe_histogram!(histogram, Unit::Seconds, what);
}

impl Observer for Metrics {
    fn on(&self, event: &Event) {
        match event {
            Event::Waiting { .. } | Event::Reshaped { .. } => {}
            Event::WaitsForItself { name, .. } => {
                self.count("leasehold_stuck_total", name, [("kind", "itself")]);
            }
            Event::Deadlock { circle } => {
                if let Some(stuck) = circle.first() {
                    self.count("leasehold_stuck_total", &stuck.waits_for, [("kind", "circle")]);
                }
            }
            Event::WithoutStore { name, .. } => self.count("leasehold_open_run_total", name, []),
            Event::Acquired { name, waited, .. } => self.acquire(name, "granted", *waited),
            Event::NotAcquired { name, waited, error } => self.acquire(name, event::outcome(error), *waited),
            Event::Renewed { name, left, .. } => {
                self.count("leasehold_renew_total", name, [("outcome", "kept")]);
                self.took("leasehold_renew_left_seconds", Some(name), [], *left);
            }
            Event::RenewalFailed { name, .. } => {
                self.count("leasehold_renew_total", name, [("outcome", "failed")]);
            }
            Event::Endangered { name, .. } => self.count("leasehold_endangered_total", name, []),
            Event::Lost { name, reason, .. } => {
                self.count("leasehold_lost_total", name, [("reason", reason_word(*reason))]);
            }
            Event::Released { name, held, handed_on, .. } => {
                let outcome = if *handed_on { "handed_on" } else { "acknowledged" };
                self.count("leasehold_release_total", name, [("outcome", outcome)]);
                self.took("leasehold_hold_seconds", Some(name), [], *held);
            }
            Event::ReleaseFailed { name, .. } => {
                self.count("leasehold_release_total", name, [("outcome", "unanswered")]);
            }
            Event::Asked { op, name, took, error } => {
                let outcome = match error {
                    None => "done",
                    Some(error) if unknown(error) => "unknown",
                    Some(_) => "failed",
                };
                let more = [("op", op_word(*op)), ("outcome", outcome)];
                self.took("leasehold_store_request_seconds", name.as_ref(), more, *took);
            }
        }
    }
}

fn unknown(error: &Error) -> bool {
    matches!(error, Error::Store(error) if error.effect == Effect::Unknown)
}

fn op_word(op: Op) -> &'static str {
    match op {
        Op::Open => "open",
        Op::Claim => "claim",
        Op::Wait => "wait",
        Op::Renew => "renew",
        Op::Release => "release",
        Op::Inspect => "inspect",
        Op::List => "list",
        Op::Ledger => "ledger",
        Op::Close => "close",
        _ => "other",
    }
}

fn reason_word(reason: LostReason) -> &'static str {
    match reason {
        LostReason::Expired => "expired",
        LostReason::Broken => "broken",
        LostReason::Superseded => "superseded",
        LostReason::StoreForgot => "store_forgot",
        LostReason::HeldTooLong => "held_too_long",
        // What was given back or forked was not lost by mishap.
        _ => "other",
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("store", &self.scheme).finish_non_exhaustive()
    }
}
