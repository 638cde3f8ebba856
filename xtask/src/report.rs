//! What stands at the end: minutes for each part, what did not run, and how many tests passed.

use std::time::Duration;

use crate::tally::Tally;

/// Nobody waits longer than this for tests; what does not fit belongs into `cargo xtask prove`.
const BUDGET: Duration = Duration::from_secs(35 * 60);

/// What all the parts came to.
#[derive(Debug, Default)]
pub(crate) struct Report {
    times: Vec<(&'static str, Duration)>,
    failed: Vec<&'static str>,
    not_run: Vec<(&'static str, String)>,
    tally: Tally,
}

impl Report {
    pub(crate) fn add(&mut self, part: &'static str, took: Duration, failed: bool, tally: Tally) {
        self.times.push((part, took));
        self.failed.extend(failed.then_some(part));
        self.tally += tally;
    }

    pub(crate) fn not_run(&mut self, part: &'static str, reasons: Vec<String>) {
        self.not_run.extend(reasons.into_iter().map(|reason| (part, reason)));
    }

    fn sum(&self) -> Duration {
        self.times.iter().map(|(_, took)| *took).sum()
    }

    /// Whether all is well. With `strict`, what did not run is not well.
    pub(crate) fn is_good(&self, strict: bool) -> bool {
        self.failed.is_empty() && self.sum() <= BUDGET && (self.not_run.is_empty() || !strict)
    }

    /// The closing lines; the very last tells the number of tests.
    pub(crate) fn text(&self, strict: bool) -> String {
        let minutes = |took: Duration| took.as_secs_f64() / 60.0;
        let mut lines = vec![String::new(), format!("{:<12} {:>7}", "part", "minutes")];
        for (part, took) in &self.times {
            let mark = if self.failed.contains(part) { "   FAILED" } else { "" };
            lines.push(format!("{part:<12} {:>7.2}{mark}", minutes(*took)));
        }
        let (sum, budget) = (minutes(self.sum()), minutes(BUDGET));
        let over = if self.sum() > BUDGET { "   OVER THE BUDGET" } else { "" };
        lines.push(format!("{:<12} {sum:>7.2} of {budget:.0}{over}", "sum"));
        if !self.not_run.is_empty() {
            let grave = if strict { " (a failure, since --strict)" } else { "" };
            lines.push(format!("\nNOT RUN{grave}"));
            lines.extend(self.not_run.iter().map(|(part, reason)| format!("  {part}: {reason}")));
        }
        lines.push(format!("\n{}", self.tally));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_run_fails_only_strictly_and_the_budget_always() {
        let mut report = Report::default();
        report.add("unit", Duration::from_secs(90), false, Tally { passed: 3, failed: 0, skipped: 1 });
        assert!(report.is_good(true));
        report.not_run("servers", vec!["no apt here".to_owned()]);
        assert!(report.is_good(false) && !report.is_good(true));
        let text = report.text(true);
        assert!(text.contains("unit            1.50"), "{text}");
        assert_eq!(text.lines().last(), Some("3 passed, 0 failed, 1 skipped"));
        report.add("slow", BUDGET, false, Tally::default());
        assert!(!report.is_good(false));
        assert!(report.text(false).contains("OVER THE BUDGET"));
    }
}
