//! What `bench` has measured, for people and for programs.

use std::time::Duration;

use leasehold::config::exact;
use serde_json::{Value, json};

use crate::human::{self, millis};

/// What was measured with so many at once.
#[derive(Debug, Default)]
pub(crate) struct Row {
    pub(crate) at_once: usize,
    /// For how long locks were taken and given back, and how long each took.
    pub(crate) spent: Duration,
    pub(crate) acquire: Vec<Duration>,
    pub(crate) release: Vec<Duration>,
    /// The same of the store's own cheapest means, if it has any: each a whole pair.
    pub(crate) raw_spent: Duration,
    pub(crate) raw: Vec<Duration>,
    pub(crate) raw_what: Option<&'static str>,
}

/// Half, nearly all, and all of some took at most so long.
#[derive(Debug, PartialEq, Eq)]
struct Spread {
    p50: Duration,
    p99: Duration,
    max: Duration,
}

impl Spread {
    fn of(took: &[Duration]) -> Self {
        let mut took = took.to_vec();
        took.sort_unstable();
        let at = |percent: usize| {
            took.get(took.len() * percent / 100).or(took.last()).copied().unwrap_or_default()
        };
        Self { p50: at(50), p99: at(99), max: took.last().copied().unwrap_or_default() }
    }

    fn text(&self) -> String {
        let ms = |duration: Duration| format!("{:.2}", duration.as_secs_f64() * 1000.0);
        format!("{} / {} / {}", ms(self.p50), ms(self.p99), ms(self.max))
    }

    fn json(&self) -> Value {
        let us = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        json!({"p50_us": us(self.p50), "p99_us": us(self.p99), "max_us": us(self.max)})
    }
}

impl Row {
    fn rate(count: usize, spent: Duration) -> f64 {
        if spent.is_zero() { 0.0 } else { count as f64 / spent.as_secs_f64() }
    }

    fn pairs_per_s(&self) -> f64 {
        Self::rate(self.acquire.len(), self.spent)
    }

    fn raw_per_s(&self) -> Option<f64> {
        self.raw_what.map(|_| Self::rate(self.raw.len(), self.raw_spent))
    }

    /// How much of what the store can do at all.
    fn of_raw(&self) -> Option<f64> {
        self.raw_per_s().filter(|raw| *raw > 0.0).map(|raw| self.pairs_per_s() / raw)
    }
}

/// A table: what we do, and what the store can do at all.
pub(crate) fn text(store: &str, lasting: Duration, rows: &[Row], interrupted: bool) -> String {
    let early = if interrupted { ", interrupted" } else { "" };
    let mut text =
        format!("{} · {}{early} · times in ms: p50 / p99 / max\n", human::store(store), exact(lasting));
    let mut pairs = 0;
    for row in rows {
        let who = if row.at_once == 1 { "1 client".to_owned() } else { format!("{} clients", row.at_once) };
        text.push_str(&format!(
            "{who:13}{:>9} acquire+release/s   acquire {}   release {}\n",
            grouped(row.pairs_per_s()),
            Spread::of(&row.acquire).text(),
            Spread::of(&row.release).text(),
        ));
        if let (Some(raw), Some(what)) = (row.raw_per_s(), row.raw_what) {
            let share = row.of_raw().map_or_else(|| "-".to_owned(), |share| format!("{share:.2}"));
            text.push_str(&format!(
                "  raw limit  {:>9} of {what}/s: {}   ratio {share}\n",
                grouped(raw),
                Spread::of(&row.raw).text(),
            ));
        }
        pairs += row.acquire.len() + row.raw.len();
    }
    text.push_str(&format!("{} locks taken and given back in all\n", grouped(pairs as f64)));
    text
}

/// The same as one object: every key always there.
pub(crate) fn object(store: &str, lasting: Duration, rows: &[Row], interrupted: bool) -> String {
    let each = |row: &Row| {
        json!({
            "clients": row.at_once,
            "pairs": row.acquire.len(),
            "pairs_per_s": rounded(row.pairs_per_s()),
            "acquire": Spread::of(&row.acquire).json(),
            "release": Spread::of(&row.release).json(),
            "raw": row.raw_per_s().map(|raw| json!({
                "what": row.raw_what, "pairs": row.raw.len(), "pairs_per_s": rounded(raw),
                "pair": Spread::of(&row.raw).json(),
            })),
            "of_raw": row.of_raw().map(|share| (share * 1000.0).round() / 1000.0),
        })
    };
    let value = json!({
        "v": 1, "store": store, "for_ms": millis(lasting), "interrupted": interrupted,
        "rows": rows.iter().map(each).collect::<Vec<_>>(),
    });
    format!("{value}\n")
}

fn rounded(rate: f64) -> f64 {
    (rate * 10.0).round() / 10.0
}

/// Thousands apart: `31,204`.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_time_that_was_spent_on_them() {
        let ms = Duration::from_millis;
        let row = Row {
            at_once: 2,
            spent: ms(2000),
            acquire: (1..=100).map(ms).collect(),
            release: vec![ms(1); 100],
            raw_spent: ms(500),
            raw: vec![ms(1); 100],
            raw_what: Some("SET and DEL"),
        };
        assert_eq!(Spread::of(&row.acquire), Spread { p50: ms(51), p99: ms(100), max: ms(100) });
        let value: Value = serde_json::from_str(&object("redis://h", ms(2500), &[row], false)).unwrap();
        assert_eq!(value["rows"][0]["pairs_per_s"], 50.0);
        assert_eq!(value["rows"][0]["of_raw"], 0.25);
        let none: Value = serde_json::from_str(&object("memory:", ms(1), &[Row::default()], true)).unwrap();
        assert_eq!((&none["rows"][0]["raw"], &none["rows"][0]["of_raw"]), (&Value::Null, &Value::Null));
        assert_eq!(["7", "1,234", "12,345,678"], [7.2, 1234.0, 12_345_678.0].map(grouped)[..]);
    }
}
