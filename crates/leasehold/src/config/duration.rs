//! Durations as people write them: `90s`, `1h30m`, `PT2M`, and never a bare number.

use std::time::Duration;

use leasehold_core::{Code, ConfigError};
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

/// The units, from the longest: a duration names each at most once, and in this order.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
/// Longer than this nobody means.
const MOST: Duration = Duration::from_secs(100 * 366 * 86_400);
/// How small numbers are said.
const WORDS: [&str; 13] = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
];

/// Parses `250ms`, `90s`, `2m`, `1h30m`, `1d` or the ISO 8601 form `PT2M`. `0` needs no unit.
///
/// Bare numbers are refused: flock means seconds by them and Redis milliseconds, and a guess would be wrong for
/// half of all people.
///
/// # Errors
///
/// Says what to write instead.
pub fn parse_duration(text: &str) -> Result<Duration, ConfigError> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if let Some(positive) = text.strip_prefix('-') {
        let missing = positive.starts_with(|c: char| c == '-' || c.is_ascii_alphabetic());
        return Err(if missing {
            wrong("the duration is missing").help("write one such as 90s, 2m or 1h30m")
        } else {
            wrong("a duration cannot be negative")
        });
    }
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_digit()) {
        return Err(wrong(bare(text)));
    }
    let parsed = match text.strip_prefix(['P', 'p']) {
        Some(iso) => parse_iso(iso),
        None => parse_units(text, &UNITS),
    };
    match parsed {
        Some(duration) if duration <= MOST => Ok(duration),
        Some(_) => Err(wrong("that is over a hundred years")),
        None => {
            Err(wrong("not a duration").help("write one such as 250ms, 90s, 2m, 1h30m or 1d, without blanks"))
        }
    }
}

fn wrong(message: impl Into<String>) -> ConfigError {
    ConfigError::new(message).code(Code::DURATION)
}

/// What is said to a number without a unit.
fn bare(digits: &str) -> String {
    let word = digits.parse::<usize>().ok().and_then(|number| WORDS.get(number)).copied().unwrap_or(digits);
    format!("{word} what? write {digits}s, {digits}m or {digits}h")
}

/// The days and the time of `P..`, already without its `P`.
fn parse_iso(text: &str) -> Option<Duration> {
    let text = text.to_ascii_lowercase();
    let (days, time) = text.split_once('t').map_or((text.as_str(), None), |(days, time)| (days, Some(time)));
    let days = if days.is_empty() { Duration::ZERO } else { parse_units(days, &UNITS[..1])? };
    match time {
        None if text.is_empty() => None,
        None => Some(days),
        Some(time) => days.checked_add(parse_units(time, &UNITS[1..4])?),
    }
}

/// Numbers with units, longest unit first. Only the last number may have a fraction.
fn parse_units(text: &str, units: &[(&str, u64)]) -> Option<Duration> {
    let (mut rest, mut units) = (text, units);
    let mut sum = Duration::ZERO;
    let mut fraction_seen = false;
    while !rest.is_empty() {
        if fraction_seen {
            return None;
        }
        let number_ends = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(number_ends);
        let unit_ends = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_ends);
        let at = units.iter().position(|(name, _)| *name == unit)?;
        let millis = units[at].1;
        units = &units[at + 1..];
        rest = after;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        fraction_seen = number.contains('.');
        if whole.is_empty() || (fraction_seen && fraction.is_empty()) || fraction.len() > 9 {
            return None;
        }
        let whole = whole.parse::<u64>().ok()?.checked_mul(millis)?;
        sum = sum.checked_add(Duration::from_millis(whole))?;
        if fraction_seen {
            let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
            let nanos = u128::from(fraction.parse::<u64>().ok()?) * u128::from(millis) * 1_000_000 / scale;
            sum = sum.checked_add(Duration::from_nanos(u64::try_from(nanos).ok()?))?;
        }
    }
    if text.is_empty() { None } else { Some(sum) }
}

/// A duration in the words that [`parse_duration`] takes, to the millisecond: `1h30m`, `250ms`, `0`.
#[must_use]
pub fn exact(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (unit, millis) in UNITS {
        if rest >= millis {
            text.push_str(&format!("{}{unit}", rest / millis));
            rest %= millis;
        }
    }
    if text.is_empty() { "0".to_owned() } else { text }
}

/// A duration as it stands in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Written(pub(super) Duration);

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WrittenVisitor)
    }
}

struct WrittenVisitor;

impl Visitor<'_> for WrittenVisitor {
    type Value = Written;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(r#"a duration in quotes, such as "2m""#)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Written, E> {
        parse_duration(text).map(Written).map_err(|error| {
            let help = error.help.map_or_else(String::new, |help| format!("; {help}"));
            E::custom(format!("{text:?}: {}{help}", error.message))
        })
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Written, E> {
        Err(E::custom(if number < 0 {
            "a duration cannot be negative".to_owned()
        } else {
            format!("{} (in quotes)", bare(&number.to_string()))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_come_back_as_they_were_written() {
        for (text, millis) in [
            ("250ms", 250),
            ("90s", 90_000),
            ("2m", 120_000),
            ("1h30m", 5_400_000),
            ("1d", 86_400_000),
            ("1.5h", 5_400_000),
            ("0.25s", 250),
            ("PT2M", 120_000),
            ("P1DT0.5S", 86_400_500),
            ("P1D", 86_400_000),
            ("0", 0),
            ("0s", 0),
        ] {
            let parsed = parse_duration(text).unwrap();
            assert_eq!(parsed, Duration::from_millis(millis), "{text}");
            assert_eq!(parse_duration(&exact(parsed)).unwrap(), parsed, "{text}");
        }
        assert_eq!(exact(Duration::from_millis(5_400_250)), "1h30m250ms");
    }

    #[test]
    fn guesses_are_refused() {
        for bad in [
            "",
            "s",
            "2",
            "2x",
            "2 m",
            "1m1h",
            "1m1m",
            "-3s",
            "1.5h2m",
            "1.h",
            ".5s",
            "P",
            "PT",
            "P2M",
            "1e3s",
            "∞",
            "forever",
            "99999999999999999999s",
            "40000d",
            "200000d",
        ] {
            assert!(parse_duration(bad).is_err(), "{bad:?}");
        }
        assert_eq!(parse_duration("2").unwrap_err().message, "two what? write 2s, 2m or 2h");
        assert_eq!(parse_duration("30").unwrap_err().message, "30 what? write 30s, 30m or 30h");
        assert_eq!(parse_duration("-3s").unwrap_err().message, "a duration cannot be negative");
        assert_eq!(parse_duration("--grace").unwrap_err().message, "the duration is missing");
    }
}
