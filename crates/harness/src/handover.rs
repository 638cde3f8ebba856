//! How long it takes from a release to the next process, read out of a history.

use std::time::Duration;

use leasehold_conformance::{Happened, Record};

/// The times from the moment before a release is asked for to the moment after the next process has the lease,
/// shortest first. Tenures that follow each other in one process say nothing about waking another.
#[must_use]
pub fn handovers(history: &[Record]) -> Vec<Duration> {
    let mut history: Vec<&Record> = history.iter().collect();
    history.sort_by_key(|record| record.at);
    let mut released: Option<&Record> = None;
    let mut times = Vec::new();
    for record in history {
        match record.what {
            Happened::ReleaseCalled => released = Some(record),
            Happened::Granted { .. } => {
                if let Some(before) = released.take().filter(|before| before.process != record.process) {
                    times.push(record.at.since(before.at));
                }
            }
            _ => {}
        }
    }
    times.sort();
    times
}

/// The value below which this share of all lies; zero where there is none.
#[must_use]
pub fn quantile(sorted: &[Duration], share: f64) -> Duration {
    let last = sorted.len().saturating_sub(1);
    // An index: no sign and no fraction is lost that matters.
    let index = (last as f64 * share).round() as usize;
    sorted.get(index).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use leasehold::BootTime;
    use leasehold_core::Token;

    use super::*;

    #[test]
    fn only_changes_of_process_count() {
        let record = |at, process, what| Record { at: BootTime::from_nanos(at), process, claim: 1, what };
        let granted = |token| Happened::Granted {
            token: Token::new(token).unwrap(),
            valid_until: BootTime::from_nanos(u64::MAX),
        };
        let history = [
            record(1, 1, granted(1)),
            record(10, 1, Happened::ReleaseCalled),
            record(15, 2, granted(2)),
            record(20, 2, Happened::ReleaseCalled),
            record(21, 2, granted(3)),
            record(30, 2, Happened::ReleaseCalled),
            record(50, 1, granted(4)),
        ];
        let times = handovers(&history);
        assert_eq!(times, [Duration::from_nanos(5), Duration::from_nanos(20)]);
        assert_eq!(quantile(&times, 0.5), Duration::from_nanos(20));
        assert_eq!(quantile(&[], 0.5), Duration::ZERO);
    }
}
