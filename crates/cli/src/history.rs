//! What happened to a name so far, in the few numbers that messages need.
//!
//! A store keeps the last thousand records of a name. Where five hosts skip each minute, the last good run has gone
//! out of them within hours; so each record carries the history up to the one before it, in ages rather than in
//! moments, since hosts' clocks differ.

use std::time::Duration;

use leasehold::{Record, RecordId, RecordKind};
use serde_json::{Value, json};

use crate::human::millis;

/// How many of the newest records are looked at. Records whose writers did not see each other are found among
/// them, so that none is forgotten: it would take this many at the same moment.
pub(crate) const WINDOW: usize = 32;
/// Of how many good runs the median is taken.
const GOOD: usize = 9;
/// How many runs are shown.
const RECENT: usize = 5;
/// More hosts than this are not counted apart.
const MOST_HOSTS: usize = 64;

/// A run, as it is shown among the recent ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Past {
    pub(crate) outcome: String,
    pub(crate) code: Option<u64>,
    pub(crate) ms: u64,
    pub(crate) host: String,
}

impl Past {
    pub(crate) fn ok(&self) -> bool {
        self.outcome == "ok"
    }

    /// How it ended, as people read it: `failed`, `lost`, `not started`, `at-most`.
    pub(crate) fn words(&self) -> String {
        // Written as the flag that did it.
        if self.outcome == "at_most" { "at-most".to_owned() } else { self.outcome.replace('_', " ") }
    }
}

/// A run that ended well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Good {
    /// How long ago it ended.
    pub(crate) ago: Duration,
    pub(crate) host: String,
    pub(crate) ms: u64,
}

/// What happened to a name so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct History {
    upto: RecordId,
    /// How long ago it was first heard of.
    pub(crate) first_ago: Option<Duration>,
    pub(crate) ok: Option<Good>,
    /// How often it was skipped since the last good run, and by whom.
    pub(crate) skips: u64,
    pub(crate) hosts: Vec<String>,
    /// How long the last good runs took, in milliseconds, the newest first.
    good: Vec<u64>,
    /// The newest first.
    pub(crate) recent: Vec<Past>,
}

impl History {
    /// From the newest records of a name, oldest first.
    pub(crate) fn of(records: &[(RecordId, Record)]) -> Self {
        let texts = records.iter().map(|(id, record)| {
            (*id, record, serde_json::from_str::<Value>(&record.text).unwrap_or(Value::Null))
        });
        let texts: Vec<_> = texts.collect();
        let carried =
            texts.iter().rev().find_map(|(_, record, text)| Self::read(&text["so_far"], record.age));
        let mut history = carried.unwrap_or_default();
        for (id, record, text) in texts.iter().filter(|(id, ..)| *id > history.upto).collect::<Vec<_>>() {
            history.note(record.kind, text, record.age);
            history.upto = *id;
        }
        // Where ages are told in whole seconds, what each record carries falls behind by up to one.
        history.first_ago = history.first_ago.max(records.first().map(|(_, oldest)| oldest.age));
        history
    }

    /// One thing more that happened, so long ago.
    fn note(&mut self, kind: RecordKind, text: &Value, ago: Duration) {
        let host = text["host"].as_str().unwrap_or("?").to_owned();
        self.first_ago.get_or_insert(ago);
        match kind {
            RecordKind::Run => {
                let ms = text["ms"].as_u64().unwrap_or(0);
                let outcome = text["outcome"].as_str().unwrap_or("?").to_owned();
                let past = Past { outcome, code: text["exit_code"].as_u64(), ms, host: host.clone() };
                if past.ok() {
                    self.ok = Some(Good { ago, host, ms });
                    self.skips = 0;
                    self.hosts.clear();
                    self.good.insert(0, ms);
                    self.good.truncate(GOOD);
                }
                self.recent.insert(0, past);
                self.recent.truncate(RECENT);
            }
            RecordKind::Skip => {
                self.skips += 1;
                if self.hosts.len() < MOST_HOSTS && !self.hosts.contains(&host) {
                    self.hosts.push(host);
                }
            }
            _ => {}
        }
    }

    /// How long a good run takes: the median of the last ones.
    pub(crate) fn usual(&self) -> Option<Duration> {
        let mut good = self.good.clone();
        good.sort_unstable();
        good.get(good.len().saturating_sub(1) / 2).copied().map(Duration::from_millis)
    }

    /// For how long nobody has finished well.
    pub(crate) fn without_good_run(&self) -> Option<Duration> {
        self.ok.as_ref().map(|good| good.ago).or(self.first_ago)
    }

    /// As a record carries it.
    pub(crate) fn carried(&self) -> Value {
        let Self { upto, first_ago, ok, skips, hosts, good, recent } = self;
        let ok = ok.as_ref().map(|Good { ago, host, ms }| json!([millis(*ago), host, ms]));
        let recent = recent.iter().map(|Past { outcome, code, ms, host }| json!([outcome, code, ms, host]));
        json!({
            "upto": upto.0, "first_ago_ms": first_ago.map(millis), "ok": ok, "skips": skips, "hosts": hosts,
            "good_ms": good, "recent": recent.collect::<Vec<_>>(),
        })
    }

    /// What a record of this age carries; `None` where it carries nothing that we know.
    fn read(value: &Value, age: Duration) -> Option<Self> {
        let aged = |value: &Value| Some(Duration::from_millis(value.as_u64()?) + age);
        let texts = |value: &Value| -> Vec<String> {
            value
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|text| Some(text.as_str()?.to_owned()))
                .collect()
        };
        let past = |value: &Value| {
            Some(Past {
                outcome: value[0].as_str()?.to_owned(),
                code: value[1].as_u64(),
                ms: value[2].as_u64()?,
                host: value[3].as_str()?.to_owned(),
            })
        };
        let ok = &value["ok"];
        Some(Self {
            upto: RecordId(value["upto"].as_u64()?),
            first_ago: aged(&value["first_ago_ms"]),
            ok: aged(&ok[0])
                .and_then(|ago| Some(Good { ago, host: ok[1].as_str()?.to_owned(), ms: ok[2].as_u64()? })),
            skips: value["skips"].as_u64().unwrap_or(0),
            hosts: texts(&value["hosts"]),
            good: value["good_ms"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect(),
            recent: value["recent"].as_array().into_iter().flatten().filter_map(past).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use leasehold::LockName;

    use super::*;

    fn record(id: u64, kind: RecordKind, text: &Value, age: u64) -> (RecordId, Record) {
        let name = LockName::parse("demo").unwrap();
        let age = Duration::from_secs(age);
        (RecordId(id), Record { kind, name, by: String::new(), text: text.to_string(), age })
    }

    fn run(host: &str, outcome: &str, ms: u64, so_far: &History) -> Value {
        json!({"host": host, "outcome": outcome, "ms": ms, "exit_code": 0, "so_far": so_far.carried()})
    }

    #[test]
    fn what_left_the_store_is_carried_on_and_ages() {
        let one = run("a", "ok", 4000, &History::default());
        let seen = History::of(&[record(1, RecordKind::Run, &one, 10)]);
        assert_eq!(seen.ok, Some(Good { ago: Duration::from_secs(10), host: "a".to_owned(), ms: 4000 }));
        // The first is gone from the store; the second was written 10 s after it, 90 s ago.
        let two = json!({"host": "b", "so_far": seen.carried()});
        let later = History::of(&[record(2, RecordKind::Skip, &two, 90)]);
        assert_eq!(later.without_good_run(), Some(Duration::from_secs(100)));
        assert_eq!((later.skips, later.hosts.as_slice()), (1, &["b".to_owned()][..]));
        assert_eq!(later.usual(), Some(Duration::from_secs(4)));
    }

    #[test]
    fn a_record_whose_next_writer_did_not_see_it_is_not_forgotten() {
        let unseen = History::default().carried();
        let ok = json!({"host": "a", "outcome": "ok", "ms": 5, "so_far": unseen});
        let skip = json!({"host": "b", "so_far": unseen});
        let both = [record(7, RecordKind::Run, &ok, 3), record(8, RecordKind::Skip, &skip, 3)];
        let history = History::of(&both);
        assert_eq!(history.ok.as_ref().map(|good| good.ms), Some(5));
        assert_eq!(history.skips, 1);
    }

    #[test]
    fn only_good_runs_count_as_usual_and_none_is_none() {
        let mut records = Vec::new();
        let mut history = History::default();
        for (id, (outcome, ms)) in (1..).zip([("ok", 10), ("failed", 1), ("ok", 30), ("ok", 20)]) {
            records.push(record(id, RecordKind::Run, &run("a", outcome, ms, &history), 100 - id));
            history = History::of(&records);
        }
        assert_eq!(history.usual(), Some(Duration::from_millis(20)));
        assert_eq!(history.recent.len(), 4);
        assert_eq!(History::default().usual(), None);
        let foreign = [record(9, RecordKind::Run, &json!("what is this"), 5)];
        assert_eq!(History::of(&foreign).without_good_run(), Some(Duration::from_secs(5)));
    }
}
