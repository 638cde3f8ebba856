//! How one lock is taken: what the rules and `[run]` say of a name.

use std::time::Duration;

use super::choice::{Descendants, OnBusy, OnFail, OnLost, OnceAfter, StoreDown, Wait};
use super::file::{File, Rule, Terms};
use super::{Config, Origin, Setting};

/// How long a store keeps a lease without a renewal unless something else was said.
pub const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// What the files say of one name; `None` where they say nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockSettings {
    /// How long the lease outlives this machine.
    pub ttl: Option<Setting<Duration>>,
    /// How long to wait in the line.
    pub wait: Option<Setting<Wait>>,
    /// Whether to keep strict order.
    pub fair: Option<Setting<bool>>,
    /// The time between the warning and the end of what runs under the lease.
    pub grace: Option<Setting<Duration>>,
    /// What to do when it is busy.
    pub busy: Option<Setting<OnBusy>>,
    /// What to do when the store cannot be reached.
    pub store_down: Option<Setting<StoreDown>>,
    /// What others may read.
    pub note: Option<Setting<String>>,
    /// For how long others are kept out, counted from the start of what runs under the lease.
    pub at_least: Option<Setting<Duration>>,
    /// The period in which it runs once, or any text.
    pub once: Option<Setting<String>>,
    /// When the mark of the period is made.
    pub once_after: Option<Setting<OnceAfter>>,
    /// For how long that mark stands.
    pub once_keep: Option<Setting<Duration>>,
    /// The time zone of the periods.
    pub tz: Option<Setting<String>>,
    /// After how long without a good end somebody is told.
    pub overdue: Option<Setting<Duration>>,
    /// What a command that failed leaves behind.
    pub on_fail: Option<Setting<OnFail>>,
    /// Whether the output of a command that ends well is thrown away.
    pub only_errors: Option<Setting<bool>>,
    /// What to do with what runs under the lease when that is lost.
    pub on_lost: Option<Setting<OnLost>>,
    /// What to do with what it leaves behind.
    pub descendants: Option<Setting<Descendants>>,
    /// How long it may take.
    pub at_most: Option<Setting<Duration>>,
}

impl Config {
    /// What the files say of this name, as it is typed (before the namespace).
    #[must_use]
    pub fn lock(&self, name: &str) -> LockSettings {
        self.settings(Some(name))
    }

    /// What the files say of all names: `[run]`.
    #[must_use]
    pub fn defaults(&self) -> LockSettings {
        self.settings(None)
    }

    fn settings(&self, name: Option<&str>) -> LockSettings {
        let mut layers: Vec<(Terms, &File, String)> = Vec::new();
        if let Some(name) = name {
            for (file, rule) in self.rules_for(name) {
                layers.push((rule.terms(), file, format!("[[lock]] {:?}", rule.pattern.as_str())));
            }
        }
        layers.extend(self.files.iter().map(|file| (file.contents.run.clone(), file, "[run]".to_owned())));
        let mut settings = LockSettings::default();
        for (terms, file, table) in layers {
            settings
                .fill(terms, &|key| Origin::File { path: file.path.clone(), key: format!("{table} {key}") });
        }
        settings
    }

    /// The rules for a name, the strongest first.
    pub(super) fn rules_for<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a File, &'a Rule)> {
        self.files.iter().flat_map(move |file| {
            let matching = file.contents.rules.iter().rev().filter(move |rule| rule.pattern.matches(name));
            matching.map(move |rule| (file, rule))
        })
    }
}

impl LockSettings {
    /// Takes from a weaker layer what no stronger one said.
    fn fill(&mut self, weaker: Terms, origin: &dyn Fn(&str) -> Origin) {
        fn take<T>(slot: &mut Option<Setting<T>>, value: Option<T>, origin: impl FnOnce() -> Origin) {
            if slot.is_none() {
                *slot = value.map(|value| Setting { value, origin: origin() });
            }
        }
        let Terms {
            ttl,
            wait,
            fair,
            grace,
            busy,
            store_down,
            note,
            at_least,
            once,
            once_after,
            once_keep,
            tz,
            overdue,
            on_fail,
            only_errors,
            on_lost,
            descendants,
            at_most,
        } = weaker;
        take(&mut self.ttl, ttl.map(|ttl| ttl.0), || origin("ttl"));
        take(&mut self.wait, wait, || origin("wait"));
        take(&mut self.fair, fair, || origin("fair"));
        take(&mut self.grace, grace.map(|grace| grace.0), || origin("grace"));
        take(&mut self.busy, busy, || origin("busy"));
        take(&mut self.store_down, store_down, || origin("store_down"));
        take(&mut self.note, note, || origin("note"));
        take(&mut self.at_least, at_least.map(|at_least| at_least.0), || origin("at_least"));
        take(&mut self.once, once, || origin("once"));
        take(&mut self.once_after, once_after, || origin("once_after"));
        take(&mut self.once_keep, once_keep.map(|once_keep| once_keep.0), || origin("once_keep"));
        take(&mut self.tz, tz, || origin("tz"));
        take(&mut self.overdue, overdue.map(|overdue| overdue.0), || origin("overdue"));
        take(&mut self.on_fail, on_fail, || origin("on_fail"));
        take(&mut self.only_errors, only_errors, || origin("only_errors"));
        take(&mut self.on_lost, on_lost, || origin("on_lost"));
        take(&mut self.descendants, descendants, || origin("descendants"));
        take(&mut self.at_most, at_most.map(|most| most.0), || origin("at_most"));
    }
}
