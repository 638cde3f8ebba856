//! The judge: what was seen in a campaign, held to what is promised under its fault.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use leasehold_conformance::{Check, ClaimKey, Happened, Record, Report, Violation, check_history, ensure};
use leasehold_core::BootTime;

use super::fault::{Blow, Fault, Harm};
use super::fence::Books;
use super::stage::{Stroke, Struck};
use super::{RECOVERY, TTL};

/// Where the store has forgotten it, or is another, the holder is told within two thirds of a ttl: at the next
/// renewal, which comes after one third and may take a quarter.
fn told_after(ttl: Duration) -> Duration {
    ttl * 2 / 3
}

/// What threads of a machine that has other work to do may be late by.
const LATE: Duration = Duration::from_millis(100);

/// What was seen.
#[derive(Debug)]
pub struct Fought {
    fault: &'static Fault,
    seed: u64,
    strokes: Vec<Stroke>,
    report: Report,
    /// Claims whose holder believed on: after their end, or long after the store forgot them.
    believed: Vec<(ClaimKey, Duration)>,
    /// Who came in beside others when no fault explains it, or beside whom others believed on for too long.
    unexplained: Vec<ClaimKey>,
    /// Leases that were lost.
    lost: u64,
    endangered: u64,
    /// Grants, renewals and releases while the fault struck.
    meanwhile: Meanwhile,
    books: Books,
    recovered: Vec<Option<Duration>>,
    left: Vec<String>,
    /// By how much who watched missed his own time at the most.
    pub starved: Duration,
}

/// What went on while the fault struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Meanwhile {
    grants: u64,
    renewals: u64,
    releases: u64,
    lost: u64,
}

/// A lease, as its records tell of it.
#[derive(Debug, Clone, Copy)]
struct Held {
    from: BootTime,
    until: BootTime,
    /// When its holder gave it back, or was told that it is lost.
    ended: Option<BootTime>,
    lost: bool,
}

impl Fought {
    pub(super) fn new(
        fault: &'static Fault,
        seed: u64,
        struck: Struck,
        history: Vec<Record>,
        books: Books,
        recovered: Vec<Option<Duration>>,
        left: Vec<String>,
    ) -> Self {
        let Struck { strokes, wakes, endangered, starved } = struck;
        let report = check_history(&history);
        let held = leases(&history);
        let mut believed = believed_after_end(&held);
        if fault.forgets {
            believed.extend(believed_what_is_gone(&held, &strokes, told_after(fault.ttl)));
        }
        // What a server does wrong as it wakes excuses nothing that came before.
        let excused = if fault.revokes() { &wakes } else { &strokes };
        let unexplained = unexplained(&report.violations, &held, excused, told_after(fault.ttl));
        let lost = held.values().filter(|held| held.lost).count() as u64;
        let meanwhile = meanwhile(&history, &strokes);
        Self {
            fault,
            seed,
            strokes,
            report,
            believed,
            unexplained,
            lost,
            endangered,
            meanwhile,
            books,
            recovered,
            left,
            starved,
        }
    }

    /// Whether nothing was broken that no delay of this machine can explain.
    pub(super) fn is_safe(&self) -> bool {
        self.violations().is_empty() && self.books.lost == 0
    }

    /// Whether who watched did not get to run in time.
    pub(super) fn was_starved(&self) -> bool {
        self.starved > TTL / 8
    }

    /// What must not happen under this fault, and did.
    fn violations(&self) -> Vec<&Violation> {
        let counts = |violation: &&Violation| match violation {
            Violation::Overlap { .. } => self.fault.exclusion,
            _ => true,
        };
        self.report.violations.iter().filter(counts).collect()
    }

    fn overlaps(&self) -> usize {
        let overlap = |violation: &&Violation| matches!(violation, Violation::Overlap { .. });
        self.report.violations.iter().filter(overlap).count()
    }

    /// The verdict.
    ///
    /// # Errors
    ///
    /// The first promise that was broken.
    pub fn judge(&self) -> Check {
        let violations = self.violations();
        ensure!(violations.is_empty(), "{} of {self}", told(&violations));
        ensure!(self.books.lost == 0, "writes that were accepted are lost, or came out of order: {self}");
        ensure!(self.believed.is_empty(), "not told in time: {:?} of {self}", self.believed);
        if self.fault.revokes() || matches!(self.fault.blow, Blow::FailOver { .. } | Blow::Ring(_)) {
            let Self { unexplained, .. } = self;
            ensure!(unexplained.is_empty(), "no failover explains the overlaps of {unexplained:?}: {self}");
        }
        let late = self.recovered.iter().position(Option::is_none);
        ensure!(
            late.is_none(),
            "client {late:?} got nothing within {RECOVERY} ttl after the last fault: {self}"
        );
        ensure!(self.left.is_empty(), "nobody is there, and {:?} are held: {self}", self.left);
        if self.fault.blow == Blow::Fill {
            let Meanwhile { renewals, releases, grants: _, lost } = self.meanwhile;
            ensure!(lost == 0, "a lease was lost while the server was full: {self}");
            ensure!(
                renewals > 0 && releases > 0,
                "no renewals or releases while the server was full: {self}"
            );
        }
        if self.fault.exclusion && !matches!(self.fault.blow, Blow::StepBack) {
            ensure!(
                self.books.lost_open == 0,
                "{} writes under the lock alone are lost: {self}",
                self.books.lost_open
            );
        }
        Ok(())
    }

    /// Whether so much happened that the verdict is worth something.
    ///
    /// # Errors
    ///
    /// When it did not.
    pub fn is_worth_it(&self) -> Check {
        let strokes = self.strokes.len() as u64;
        let enough = strokes > 0 && self.report.grants >= 5 * strokes && self.report.contended >= strokes;
        ensure!(enough, "too little happened: {self}");
        let is_felt = matches!(
            self.fault.blow,
            Blow::Split(_) | Blow::Elected(_, Harm::Freeze | Harm::AllStopped | Harm::Revoke)
        );
        let was_felt = !is_felt || self.endangered + self.lost > 0;
        ensure!(was_felt, "nobody noticed what befell them: {self}");
        Ok(())
    }
}

fn told(violations: &[&Violation]) -> String {
    violations.iter().take(5).map(|violation| format!("{violation:?}")).collect::<Vec<_>>().join(", ")
}

fn leases(history: &[Record]) -> HashMap<ClaimKey, Held> {
    let mut ordered: Vec<&Record> = history.iter().collect();
    ordered.sort_by_key(|record| record.at);
    let mut held: HashMap<ClaimKey, Held> = HashMap::new();
    for record in ordered {
        let key = (record.process, record.claim);
        match (&record.what, held.get_mut(&key)) {
            (Happened::Granted { valid_until, .. }, _) => {
                held.insert(key, Held { from: record.at, until: *valid_until, ended: None, lost: false });
            }
            (Happened::Renewed { valid_until }, Some(lease)) => lease.until = *valid_until,
            (Happened::ReleaseCalled, Some(lease)) => lease.ended = Some(record.at),
            (Happened::Lost, Some(lease)) => (lease.ended, lease.lost) = (Some(record.at), true),
            _ => {}
        }
    }
    held
}

/// Those who were told nothing at the end of validity: each ends by then, or is told so right after it.
fn believed_after_end(held: &HashMap<ClaimKey, Held>) -> Vec<(ClaimKey, Duration)> {
    let late = held.iter().filter_map(|(key, lease)| {
        let over = lease.ended.map(|ended| ended.since(lease.until))?;
        (over > LATE).then_some((*key, over))
    });
    late.collect()
}

/// Those who believed for too long in what the store had forgotten.
fn believed_what_is_gone(
    held: &HashMap<ClaimKey, Held>,
    strokes: &[Stroke],
    told: Duration,
) -> Vec<(ClaimKey, Duration)> {
    let mut found = Vec::new();
    for (key, lease) in held {
        let end = lease.ended.unwrap_or(lease.until).min(lease.until);
        for Stroke { from, to } in strokes {
            // One that was granted while it struck may be of before or of after.
            if lease.from < *from && end > to.after(told + LATE) {
                found.push((*key, end.since(*to)));
            }
        }
    }
    found
}

/// Those who came in beside others, other than while another server took over and the others were not told yet.
fn unexplained(
    violations: &[Violation],
    held: &HashMap<ClaimKey, Held>,
    strokes: &[Stroke],
    told: Duration,
) -> Vec<ClaimKey> {
    let explains = |stroke: &Stroke, key: &ClaimKey, others: &[ClaimKey]| {
        let told = stroke.to.after(told + LATE);
        let within = |lease: &Held| (stroke.from..=told).contains(&lease.from);
        let over = |lease: &Held| lease.ended.unwrap_or(lease.until).min(lease.until) <= told;
        held.get(key).is_some_and(within) && others.iter().all(|other| held.get(other).is_some_and(over))
    };
    let bad = violations.iter().filter_map(|violation| match violation {
        Violation::Overlap { key, others } => {
            (!strokes.iter().any(|stroke| explains(stroke, key, others))).then_some(*key)
        }
        _ => None,
    });
    bad.collect()
}

fn meanwhile(history: &[Record], strokes: &[Stroke]) -> Meanwhile {
    let mut seen = Meanwhile::default();
    for record in history {
        if !strokes.iter().any(|stroke| (stroke.from..=stroke.to).contains(&record.at)) {
            continue;
        }
        match record.what {
            Happened::Granted { .. } => seen.grants += 1,
            Happened::Renewed { .. } => seen.renewals += 1,
            Happened::Released => seen.releases += 1,
            Happened::Lost => seen.lost += 1,
            _ => {}
        }
    }
    seen
}

impl fmt::Display for Fought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            fault,
            seed,
            strokes,
            report,
            believed: _,
            unexplained: _,
            lost,
            endangered,
            meanwhile,
            ..
        } = self;
        let Self { books, recovered, left: _, starved, .. } = self;
        let Books { accepted, refused, lost: gone, lost_open } = books;
        let slowest =
            recovered.iter().map(|wait| wait.unwrap_or(fault.ttl * RECOVERY)).max().unwrap_or_default();
        write!(
            f,
            "{:<16} {:>3} times, {:>5} grants ({:>5} contended), {:>4} renewals, {:>3} endangered, {:>3} lost; \
             meanwhile {} granted, {} renewed, {} released; {} overlaps ({}); {} tokens compared; \
             fenced writes: {accepted} accepted, {refused} refused, {gone} lost; unfenced: {lost_open} lost; \
             all well again after {:.2} ttl; watcher late by {starved:.0?}; seed {seed}",
            fault.name,
            strokes.len(),
            report.grants,
            report.contended,
            report.renewals,
            endangered,
            lost,
            meanwhile.grants,
            meanwhile.renewals,
            meanwhile.releases,
            self.overlaps(),
            if fault.exclusion {
                "none is promised"
            } else if fault.revokes() {
                "the server's fault"
            } else {
                "none is not promised"
            },
            report.tokens_compared,
            slowest.as_secs_f64() / fault.ttl.as_secs_f64(),
        )
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::{LockName, Share, Token, Turn};

    use super::*;

    const MS: u64 = 1_000_000;

    /// A campaign in which all went well, in milliseconds: two clients take turns, a stroke at 1,000.
    struct Told(Vec<Record>);

    impl Told {
        fn tell(&mut self, at: u64, process: u32, claim: u64, what: Happened) {
            self.0.push(Record { at: BootTime::from_nanos(at * MS), process, claim, what });
        }

        fn asks(&mut self, at: u64, process: u32, claim: u64) {
            let name = LockName::parse("x").unwrap();
            let asked = Happened::Asked { name, attempt: 1, turn: Turn::Any, share: Share::EXCLUSIVE };
            self.tell(at, process, claim, asked);
        }

        fn gets(&mut self, at: u64, process: u32, claim: u64, token: u64, until: u64) {
            let (token, valid_until) = (Token::new(token).unwrap(), BootTime::from_nanos(until * MS));
            self.tell(at, process, claim, Happened::Granted { token, valid_until });
        }
    }

    fn good() -> Told {
        good_from(0)
    }

    fn good_from(start: u64) -> Told {
        let mut told = Told(Vec::new());
        for turn in 0..10_u64 {
            let (at, process) = (start + turn * 300, u32::try_from(turn % 2).unwrap());
            told.asks(at.saturating_sub(100), process, turn + 1);
            told.gets(at + 1, process, turn + 1, turn + 2, at + 900);
            told.tell(at + 290, process, turn + 1, Happened::ReleaseCalled);
            told.tell(at + 291, process, turn + 1, Happened::Released);
        }
        told
    }

    fn judged(fault: &str, told: &Told, books: Books, recovered: Option<Duration>) -> Check {
        let at = |at: u64| BootTime::from_nanos(at * MS);
        let strokes = vec![Stroke { from: at(1000), to: at(1010) }];
        let wakes = vec![Stroke { from: at(1010), to: at(1010) }];
        let struck = Struck { strokes, wakes, ..Struck::default() };
        let fault = Fault::named(fault).unwrap();
        Fought::new(fault, 1, struck, told.0.clone(), books, vec![recovered], Vec::new()).judge()
    }

    fn judge(fault: &str, told: &Told) -> Check {
        judged(fault, told, Books::default(), Some(TTL))
    }

    #[test]
    fn what_went_well_is_good_under_every_fault() {
        for fault in Fault::all().filter(|fault| fault.blow != Blow::Fill) {
            judge(fault.name, &good()).unwrap();
        }
        assert!(judge("full", &good()).is_err(), "no renewal was seen while it was full");
    }

    #[test]
    fn an_overlap_counts_where_exclusion_is_promised() {
        let mut told = good();
        told.asks(3100, 7, 1);
        told.gets(3110, 7, 1, 50, 4000);
        told.asks(3120, 8, 1);
        told.gets(3130, 8, 1, 51, 4000);
        assert!(judge("stopped", &told).unwrap_err().to_string().contains("Overlap"));
        judge("flushed", &told).unwrap();
    }

    #[test]
    fn a_failover_explains_an_overlap_while_it_lasts_and_until_the_old_holder_is_told() {
        let overlap = |old_until: u64| {
            let mut told = Told(Vec::new());
            told.asks(900, 7, 1);
            told.gets(905, 7, 1, 1, old_until);
            told.asks(1000, 8, 1);
            told.gets(1005, 8, 1, 2, 1500);
            judge("failover_behind", &told)
        };
        overlap(1700).unwrap();
        assert!(overlap(1900).unwrap_err().to_string().contains("no failover explains"));
        let mut told = good();
        told.asks(3100, 7, 1);
        told.gets(3110, 7, 1, 50, 3200);
        told.asks(3120, 8, 1);
        told.gets(3130, 8, 1, 51, 4000);
        assert!(judge("failover_behind", &told).unwrap_err().to_string().contains("no failover explains"));
    }

    #[test]
    fn a_leader_that_wakes_explains_an_overlap_and_one_that_sleeps_does_not() {
        let overlap = |old: u64, at: u64| {
            let mut told = Told(Vec::new());
            told.asks(old - 10, 7, 1);
            told.gets(old, 7, 1, 1, at + 500);
            told.asks(at - 10, 8, 1);
            told.gets(at, 8, 1, 2, at + 1500);
            judge("etcd_leader_stopped", &told)
        };
        // It sleeps from 1000 on and wakes at 1010.
        overlap(900, 1015).unwrap();
        for at in [1005, 3000] {
            let failure = overlap(900, at).unwrap_err().to_string();
            assert!(failure.contains("no failover explains"), "{at}: {failure}");
        }
    }

    #[test]
    fn a_falling_token_counts_everywhere() {
        let mut told = good();
        told.asks(3100, 7, 1);
        told.gets(3110, 7, 1, 3, 4000);
        for fault in ["stopped", "flushed", "clock_forward"] {
            assert!(judge(fault, &told).unwrap_err().to_string().contains("TokenOrder"), "{fault}");
        }
    }

    #[test]
    fn a_lost_write_counts_where_tokens_are_checked_and_an_open_one_where_exclusion_is_promised() {
        let lost = Books { lost: 1, ..Books::default() };
        assert!(judged("flushed", &good(), lost, Some(TTL)).is_err());
        let open = Books { lost_open: 1, ..Books::default() };
        judged("flushed", &good(), open, Some(TTL)).unwrap();
        assert!(judged("cut", &good(), open, Some(TTL)).is_err());
    }

    #[test]
    fn whoever_gets_nothing_afterwards_is_missed() {
        assert!(judged("cut", &good(), Books::default(), None).is_err());
    }

    #[test]
    fn believing_in_what_is_gone_or_over_counts() {
        // Granted before the stroke of a store that forgets, and renewed after it as if nothing had happened.
        let mut told = good_from(10_000);
        told.asks(900, 7, 1);
        told.gets(910, 7, 1, 1, 1800);
        let until = BootTime::from_nanos(2200 * MS);
        told.tell(1240, 7, 1, Happened::Renewed { valid_until: until });
        let failure = judge("flushed", &told).unwrap_err().to_string();
        assert!(failure.contains("not told in time"), "{failure}");
        judge("cut", &told).unwrap();
        // And told long after its end.
        told.tell(2400, 7, 1, Happened::Lost);
        assert!(judge("cut", &told).unwrap_err().to_string().contains("not told in time"));
    }
}
