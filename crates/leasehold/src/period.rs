//! The periods in which something is done once, and which slot of one this host's wall clock is in: one law for
//! `run --once` and for [`Leasehold::once_per`](crate::Leasehold::once_per), whose marks are the same.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use leasehold_core::{Code, ConfigError};

use crate::config::{exact, parse_duration};

/// How long the mark of a free text stands: nobody can tell when its period ends.
const KEEP_TEXT: Duration = Duration::from_secs(30 * DAY);
const DAY: u64 = 86_400;
/// A longer text is a mistake, such as a whole file.
const MOST_BYTES: usize = 200;
/// The shortest period: cron and people count in seconds at best.
const LEAST: Duration = Duration::from_secs(1);
/// Units that people write and durations do not have.
const MISSPELT: [&str; 20] = [
    "sec", "secs", "second", "seconds", "min", "mins", "minute", "minutes", "hr", "hrs", "hour", "hours",
    "day", "days", "w", "wk", "week", "weeks", "month", "months",
];

/// In what something is done once.
///
/// ```
/// use leasehold::{Clock, Period, Zone};
///
/// let period: Period = "daily".parse()?;
/// let (clock, zone): (Clock, Zone) = (Clock::system(), "Europe/Berlin".parse()?);
/// println!("today is the slot {}", period.slot(clock.wall_micros(), &zone));
/// # Ok::<(), leasehold::ConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Period {
    /// Each hour of a zone's clock.
    Hourly,
    /// Each day of a zone's calendar.
    Daily,
    /// Each week, from Monday on (ISO 8601).
    Weekly,
    /// Each month.
    Monthly,
    /// Of this length, counted from 1970.
    Every(Duration),
    /// Whatever this text stands for.
    Text(String),
}

impl FromStr for Period {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let wrong = |message: &str, help: &str| ConfigError::new(message).code(Code::VALUE).help(help);
        match text {
            "hourly" => return Ok(Self::Hourly),
            "daily" => return Ok(Self::Daily),
            "weekly" => return Ok(Self::Weekly),
            "monthly" => return Ok(Self::Monthly),
            _ => {}
        }
        if let Ok(length) = parse_duration(text) {
            if length < LEAST {
                return Err(wrong("a period lasts at least 1s", "write one such as 15m"));
            }
            return Ok(Self::Every(length));
        }
        if text.trim().is_empty() {
            return Err(wrong("it is empty", "write a period or a text; is a variable of the script unset?"));
        }
        if text.len() > MOST_BYTES || text.chars().any(char::is_control) {
            return Err(wrong("it must be one line of at most 200 bytes", "write one such as order-10017"));
        }
        // A slip would be a text like any other, and the job would run once in thirty days.
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
        let letters = text.chars().all(|c| c.is_ascii_alphabetic());
        let slip = (letters && text.to_ascii_lowercase().ends_with("ly"))
            || (unit != text && MISSPELT.contains(&unit.to_ascii_lowercase().as_str()))
            || (letters && MISSPELT.contains(&text.to_ascii_lowercase().as_str()));
        if slip {
            return Err(wrong(
                "not a period",
                "write hourly, daily, weekly, monthly, a duration such as 15m, or a text of your own",
            ));
        }
        Ok(Self::Text(text.to_owned()))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hourly => f.write_str("hourly"),
            Self::Daily => f.write_str("daily"),
            Self::Weekly => f.write_str("weekly"),
            Self::Monthly => f.write_str("monthly"),
            Self::Every(length) => f.write_str(&exact(*length)),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl Period {
    /// The slot that a wall clock is in, as the key of its mark.
    ///
    /// By the clock of the host that asks, not by the store's: cron fires by it. A host that is half a minute
    /// ahead and one that is half a minute behind both read 02:00 when they fire, and so agree.
    ///
    /// `wall_micros` are microseconds since 1970, as [`Clock::wall_micros`](crate::Clock::wall_micros) tells them.
    #[must_use]
    pub fn slot(&self, wall_micros: u64, zone: &Zone) -> String {
        let zone = &zone.rules;
        let millis = i64::try_from(wall_micros / 1000).unwrap_or(i64::MAX);
        let now = |millis| Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX);
        let in_zone = |format: &str| now(millis).to_zoned_datetime(zone.clone()).strftime(format).to_string();
        match self {
            // An hour that the clocks repeat in autumn is two hours, so its offset belongs to it.
            Self::Hourly if *zone == TimeZone::UTC => in_zone("%Y-%m-%dT%H"),
            Self::Hourly => in_zone("%Y-%m-%dT%H%:z"),
            Self::Daily => in_zone("%Y-%m-%d"),
            Self::Weekly => in_zone("%G-W%V"),
            Self::Monthly => in_zone("%Y-%m"),
            Self::Every(length) => {
                let length = i64::try_from(length.as_millis()).unwrap_or(i64::MAX).max(1);
                now(millis - millis.rem_euclid(length)).to_string()
            }
            Self::Text(text) => text.clone(),
        }
    }

    /// How long a mark stands unless told otherwise: two periods, so that it is there while any host, however
    /// late its cron, still asks for the slot.
    #[must_use]
    pub fn keep(&self) -> Duration {
        let period = match self {
            Self::Hourly => Duration::from_secs(3600),
            Self::Daily => Duration::from_secs(DAY),
            Self::Weekly => Duration::from_secs(7 * DAY),
            Self::Monthly => Duration::from_secs(31 * DAY),
            Self::Every(length) => *length,
            Self::Text(_) => return KEEP_TEXT,
        };
        period.saturating_mul(2)
    }
}

/// A time zone, by its name: `UTC`, `Europe/Berlin`. Its rules are the system's if it has them, as cron goes by those,
/// else the ones built in. Defaults to UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    name: String,
    rules: TimeZone,
}

impl Default for Zone {
    fn default() -> Self {
        Self { name: "UTC".to_owned(), rules: TimeZone::UTC }
    }
}

impl FromStr for Zone {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, ConfigError> {
        if name == "UTC" {
            return Ok(Self::default());
        }
        let rules = TimeZone::get(name).map_err(|_| {
            ConfigError::new(format!("no time zone {name:?} is known"))
                .code(Code::VALUE)
                .help("write one such as UTC or Europe/Berlin")
        })?;
        Ok(Self { name: name.to_owned(), rules })
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::Clock;

    use super::*;

    fn at(time: &str) -> u64 {
        let time: Timestamp = time.parse().unwrap();
        u64::try_from(time.as_microsecond()).unwrap()
    }

    fn slot(period: &str, time: &str, zone_name: &str) -> String {
        period.parse::<Period>().unwrap().slot(at(time), &zone_name.parse().unwrap())
    }

    #[test]
    fn check_19_hosts_whose_clocks_differ_agree_when_each_fires_by_its_own() {
        let utc = Zone::default();
        for (period, fires, expected) in [
            ("daily", "2026-01-03T02:00:00Z", "2026-01-03"),
            ("hourly", "2026-01-03T02:00:00Z", "2026-01-03T02"),
            ("1m", "2026-01-03T02:07:00Z", "2026-01-03T02:07:00Z"),
        ] {
            let period: Period = period.parse().unwrap();
            for offset in [-25_i64, -8, -3, 0, 3, 8, 25] {
                let clock = Clock::frozen();
                clock.step_wall(offset * 1_000_000);
                // Cron fires when this very clock reads the time: earlier or later than on other hosts.
                let wait = at(fires) - clock.wall_micros();
                clock.advance(Duration::from_micros(wait));
                assert_eq!(period.slot(clock.wall_micros(), &utc), expected, "{offset}");
                // And late by what cron and the start of a process take.
                clock.advance(Duration::from_millis(1900));
                assert_eq!(period.slot(clock.wall_micros(), &utc), expected, "{offset}");
            }
        }
    }

    #[test]
    fn slots_start_where_people_say_they_do() {
        assert_eq!(slot("daily", "2025-06-03T23:59:59.999Z", "UTC"), "2025-06-03");
        assert_eq!(slot("weekly", "2024-12-30T00:00:00Z", "UTC"), "2025-W01");
        assert_eq!(slot("weekly", "2024-12-29T23:59:59Z", "UTC"), "2024-W52");
        assert_eq!(slot("monthly", "2025-06-30T23:00:00Z", "UTC"), "2025-06");
        assert_eq!(slot("15m", "2025-06-03T02:29:59Z", "UTC"), "2025-06-03T02:15:00Z");
        assert_eq!(slot("order-10017", "2025-06-03T02:29:59Z", "UTC"), "order-10017");
        assert_eq!(slot("2025-W23", "2025-06-03T02:29:59Z", "UTC"), "2025-W23");
    }

    #[test]
    fn a_zone_moves_the_day_and_an_hour_that_comes_twice_is_two() {
        assert_eq!(slot("daily", "2025-06-03T22:30:00Z", "Europe/Berlin"), "2025-06-04");
        assert_eq!(slot("monthly", "2025-06-30T22:30:00Z", "Europe/Berlin"), "2025-07");
        let summer = slot("hourly", "2025-10-26T00:30:00Z", "Europe/Berlin");
        let winter = slot("hourly", "2025-10-26T01:30:00Z", "Europe/Berlin");
        assert_eq!((summer.as_str(), winter.as_str()), ("2025-10-26T02+02:00", "2025-10-26T02+01:00"));
        assert!("Mars/Olympus".parse::<Zone>().is_err());
    }

    #[test]
    fn what_is_almost_a_period_is_refused() {
        for slip in
            ["Daily", "dayly", "yearly", "15min", "2 hours", "day", "1w", "", " ", "0", "10ms", "a\nb"]
        {
            assert!(slip.parse::<Period>().is_err(), "{slip:?}");
        }
        for text in ["2025", "order-10017", "2025-06-03", "batch 7"] {
            assert_eq!(text.parse::<Period>().unwrap(), Period::Text(text.to_owned()));
        }
        for (text, days) in [("daily", 2), ("weekly", 14), ("order-10017", 30), ("12h", 1)] {
            assert_eq!(text.parse::<Period>().unwrap().keep(), Duration::from_secs(days * DAY), "{text}");
            assert_eq!(text.parse::<Period>().unwrap().to_string(), text);
        }
    }
}
