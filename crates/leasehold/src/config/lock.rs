//! How one lock is taken: what the rules and `[run]` say of a name.

use std::time::Duration;

use super::choice::{OnBusy, StoreDown, Wait};
use super::file::{File, Rule, Terms};
use super::{Config, Origin, Setting};

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
        let Terms { ttl, wait, fair, grace, busy, store_down, note } = weaker;
        take(&mut self.ttl, ttl.map(|ttl| ttl.0), || origin("ttl"));
        take(&mut self.wait, wait, || origin("wait"));
        take(&mut self.fair, fair, || origin("fair"));
        take(&mut self.grace, grace.map(|grace| grace.0), || origin("grace"));
        take(&mut self.busy, busy, || origin("busy"));
        take(&mut self.store_down, store_down, || origin("store_down"));
        take(&mut self.note, note, || origin("note"));
    }
}
