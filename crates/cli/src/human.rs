//! Durations, times, paths and command lines as people read them.

use std::ffi::OsStr;
use std::time::Duration;

use jiff::Timestamp;

/// A measured duration: `0.4s`, `12s`, `3m12s`, `29h05m`, `5d03h`.
pub(crate) fn rough(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        // Down, not up: 9.96 s is not yet `10.0s`.
        0..10 => format!("{}.{}s", seconds, duration.subsec_millis() / 100),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..360_000 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// A duration as a clock shows it: `0:14`, `3:12`, `2:10:00`.
pub(crate) fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds % 3600 / 60, seconds % 60);
    if hours == 0 { format!("{minutes}:{seconds:02}") } else { format!("{hours}:{minutes:02}:{seconds:02}") }
}

/// Whole milliseconds, for programs.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A moment as RFC 3339 in UTC, to the millisecond; `None` outside of what a calendar holds.
pub(crate) fn utc(micros: u64) -> Option<String> {
    let millis = i64::try_from(micros / 1000).ok()?;
    Timestamp::from_millisecond(millis).ok().map(|time| time.to_string())
}

/// The same for people, to the second.
pub(crate) fn utc_seconds(micros: u64) -> Option<String> {
    let seconds = i64::try_from(micros / 1_000_000).ok()?;
    Timestamp::from_second(seconds).ok().map(|time| time.strftime("%Y-%m-%d %H:%M:%SZ").to_string())
}

/// A store as people call it: a file by its path, with `~` for their home.
pub(crate) fn store(url: &str) -> String {
    let Some(path) = url.strip_prefix("sqlite:") else { return url.to_owned() };
    let home = std::env::var("HOME").ok().filter(|home| home.len() > 1);
    match home.and_then(|home| path.strip_prefix(&home)?.strip_prefix('/').map(str::to_owned)) {
        Some(rest) => format!("~/{rest}"),
        None => path.to_owned(),
    }
}

/// A word of a command line, so that a shell reads it back as it is.
pub(crate) fn quoted(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,^".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into_owned();
    }
    shell_text(&text)
}

/// A text as a word of a shell, which evaluates nothing in it, whatever it is.
pub(crate) fn shell_text(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A whole command line, without the passwords of URLs in it: it ends up in mails and logs.
pub(crate) fn command_line<'a>(words: impl IntoIterator<Item = &'a OsStr>) -> String {
    let shown = |word: &OsStr| quoted(without_password(&word.to_string_lossy()).as_ref());
    words.into_iter().map(shown).collect::<Vec<_>>().join(" ")
}

/// The text with `***` for what stands between `://user:` and `@`.
fn without_password(text: &str) -> String {
    let parts = || {
        let (scheme, rest) = text.split_once("://")?;
        let (login, place) = rest.rsplit_once('@')?;
        let (user, _) = login.split_once(':')?;
        Some(format!("{scheme}://{user}:***@{place}"))
    };
    parts().unwrap_or_else(|| text.to_owned())
}

/// Text of others, for one line of a terminal: nothing in it can move the cursor.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// `1st`, `2nd`, `3rd`, `4th`.
pub(crate) fn ordinal(number: u32) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_numbers_with_units() {
        let cases = [(0.96, "0.9s"), (9.99, "9.9s"), (59.9, "59s"), (192.0, "3m12s"), (104_700.0, "29h05m")];
        for (seconds, text) in cases {
            assert_eq!(rough(Duration::from_secs_f64(seconds)), text);
        }
        assert_eq!(rough(Duration::from_secs(443_000)), "5d03h");
        assert_eq!(clock(Duration::from_secs(14)), "0:14");
        assert_eq!(clock(Duration::from_secs(7800)), "2:10:00");
        assert_eq!([1, 2, 3, 11, 21].map(ordinal), ["1st", "2nd", "3rd", "11th", "21st"]);
        assert_eq!(utc(1_748_916_000_412_345).unwrap(), "2025-06-03T02:00:00.412Z");
    }

    #[test]
    fn no_command_line_shows_the_password_of_a_url() {
        let words = ["--store", "rediss://me:hun:t@er2@h/0", "--store=redis://:hunter2@h", "a:b@c"];
        let shown = command_line(words.map(OsStr::new));
        assert_eq!(shown, "--store 'rediss://me:***@h/0' '--store=redis://:***@h' a:b@c");
    }

    #[test]
    fn a_shell_reads_words_back() {
        assert_eq!(command_line(["a b", "", "it's", "--x=1"].map(OsStr::new)), r"'a b' '' 'it'\''s' --x=1");
    }
}
