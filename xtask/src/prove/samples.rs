//! Durations, and what is told of them: not the mean, which one slow run bends.

use std::fmt;
use std::time::Duration;

/// Durations of one kind.
#[derive(Debug, Clone, Default)]
pub(super) struct Samples(Vec<Duration>);

impl Samples {
    pub(super) fn add(&mut self, sample: Duration) {
        let at = self.0.partition_point(|one| *one <= sample);
        self.0.insert(at, sample);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The sample that so many percent are not above.
    fn percent(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().unwrap_or_default()
    }

    pub(super) fn median(&self) -> Duration {
        self.percent(50)
    }
}

impl fmt::Display for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [least, median, p90, most] = [0, 50, 90, 100].map(|percent| milliseconds(self.percent(percent)));
        write!(f, "min {least}   median {median}   p90 {p90}   max {most} ms")
    }
}

/// Milliseconds as the tables show them.
pub(super) fn milliseconds(duration: Duration) -> String {
    format!("{:.2}", duration.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_sorted_samples() {
        let mut samples = Samples::default();
        assert_eq!(samples.median(), Duration::ZERO);
        for millis in [5, 1, 4, 2, 3] {
            samples.add(Duration::from_millis(millis));
        }
        assert_eq!(samples.len(), 5);
        assert_eq!(samples.median(), Duration::from_millis(3));
        assert_eq!(samples.to_string(), "min 1.00   median 3.00   p90 5.00   max 5.00 ms");
    }
}
