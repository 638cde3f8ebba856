//! Counting tests by what the runners themselves say at the end.

use std::fmt;
use std::ops::AddAssign;

/// How many tests passed, failed and were skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    /// Sums up every summary in what runners printed: `test result: ..` of cargo test, `Summary [..] ..` of
    /// nextest.
    pub(crate) fn of(output: &str) -> Self {
        let mut sum = Self::default();
        for line in output.lines() {
            let line = plain(line);
            // At the very start of the line: nextest quotes what a failed test said, and that ends with such a
            // line of its own, indented.
            if let Some((_, counts)) = line.strip_prefix("test result: ").and_then(|l| l.split_once(". ")) {
                sum.add_counts(counts);
            } else if line.trim_start().starts_with("Summary [")
                && let Some((_, counts)) = line.split_once(" run: ")
            {
                sum.add_counts(counts);
            }
        }
        sum
    }

    /// Adds `3 passed; 0 failed; 1 ignored` or `3 passed (1 slow), 1 failed, 1 timed out, 2 skipped`.
    fn add_counts(&mut self, counts: &str) {
        for count in counts.split([',', ';']) {
            let mut words = count.split_whitespace();
            let Some(number) = words.next().and_then(|word| word.parse::<u64>().ok()) else { continue };
            match (words.next(), words.next()) {
                (Some("passed"), _) => self.passed += number,
                (Some("failed"), _) | (Some("timed"), Some("out")) | (Some("exec"), Some("failed")) => {
                    self.failed += number;
                }
                (Some("ignored" | "skipped"), _) => self.skipped += number,
                _ => {}
            }
        }
    }

    /// How many ran.
    pub(crate) fn ran(self) -> u64 {
        self.passed + self.failed
    }
}

/// The tests that say themselves that they could not run, with the reason: `name: reason`.
///
/// They pass, so the runner has to be told to show what passing tests say; then each of their lines
/// `skipped: reason` stands below one that names the test.
pub(crate) fn skipped(output: &str) -> Vec<String> {
    let mut test = String::new();
    let mut skipped = Vec::new();
    for line in output.lines() {
        let line = plain(line);
        let line = line.trim();
        let quoted = line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----"));
        if line.starts_with("PASS [") {
            line.rsplit(' ').next().unwrap_or_default().clone_into(&mut test);
        } else if let Some(name) = quoted {
            name.clone_into(&mut test);
        } else if let Some(reason) = line.strip_prefix("skipped: ") {
            skipped.push(format!("{test}: {reason}"));
        }
    }
    skipped.sort();
    skipped.dedup();
    skipped
}

/// The line without the colours that a runner may put in although nobody watches.
pub(crate) fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        if char == '\u{1b}' {
            chars.find(char::is_ascii_alphabetic);
        } else {
            text.push(char);
        }
    }
    text
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        let Self { passed, failed, skipped } = other;
        self.passed += passed;
        self.failed += failed;
        self.skipped += skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, skipped } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_runners_are_understood_and_summed_up() {
        let cargo = "running 3 tests\ntest result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; \
                     finished in 0.00s\ntest result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out";
        assert_eq!(Tally::of(cargo), Tally { passed: 4, failed: 2, skipped: 1 });
        let nextest = "    test result: FAILED. 0 passed; 1 failed; 0 ignored\n     Summary [   0.003s] 5 tests run: 2 passed (1 slow), 1 failed, 1 timed out, 1 exec failed, \
                       6 skipped";
        assert_eq!(Tally::of(nextest), Tally { passed: 2, failed: 3, skipped: 6 });
        assert_eq!(Tally::of("     Summary [   0.010s] 1 test run: 1 passed, 0 skipped").passed, 1);
        assert_eq!(Tally::of("3 passed in prose").ran(), 0);
    }

    #[test]
    fn colours_do_not_matter() {
        let coloured = "\u{1b}[32;1m     Summary\u{1b}[0m [   0.1s] \u{1b}[1m2\u{1b}[0m tests run: \
                        \u{1b}[1m2\u{1b}[0m \u{1b}[32;1mpassed\u{1b}[0m, \u{1b}[1m0\u{1b}[0m skipped";
        assert_eq!(Tally::of(coloured), Tally { passed: 2, failed: 0, skipped: 0 });
    }

    #[test]
    fn a_test_that_says_it_could_not_run_is_heard() {
        let nextest = "        PASS [   0.005s] (1/2) x::y a\n        PASS [   0.005s] (2/2) x::y m::b\n  \
                       stderr ---\n\n    skipped: no strace\n";
        assert_eq!(skipped(nextest), ["m::b: no strace"]);
        let cargo = "test a ... ok\n\nsuccesses:\n\n---- m::b stdout ----\nskipped: no strace\n";
        assert_eq!(skipped(cargo), ["m::b: no strace"]);
        assert_eq!(skipped("7 skipped"), [""; 0]);
    }
}
