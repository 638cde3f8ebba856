//! Many runs of one store, each history checked, and a count of what was put to the test.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold_conformance::{Check, Failure};

use super::drive::{self, Ran};
use super::history::{History, histories};
use super::model::{Kind, Step};
use super::record::{Records, Told};
use super::scene::{Scene, Site};
use super::wgl::{Verdict, search};

/// How many states a search may look at. What needs more counts as a failure.
const MOST_STATES: usize = 1_000_000;

/// What was put to the test.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Traffic {
    /// What names could be.
    pub offered: BTreeSet<Kind>,
    /// Whether its leases change their share.
    pub changeable: bool,
    /// Runs.
    pub runs: u64,
    /// Histories: one for each name of each run.
    pub histories: u64,
    /// Operations in all of them.
    pub operations: u64,
    /// Leases that somebody got.
    pub grants: u64,
    /// .. of these, while another of the name was held or waited for.
    pub contended: u64,
    /// Tries that were told "taken".
    pub busy: u64,
    /// Acquires that were dropped, timed out, or failed.
    pub gave_up: u64,
    /// Looks of a holder who still held.
    pub looks: u64,
    /// Holders who were told that it is lost.
    pub lost: u64,
    /// Leases that were left to run out, those of dead hosts among them.
    pub left: u64,
    /// Readers who became writers, and the other way round.
    pub changes: u64,
    /// Hosts that died.
    pub deaths: u64,
    /// Hosts that were cut off for a while.
    pub cuts: u64,
    /// Requests and replies that were lost, late or refused.
    pub mishaps: u64,
    /// Time that was passed over.
    pub passed: Duration,
    /// Leases of each kind.
    pub of_each: BTreeMap<Kind, u64>,
    /// What was done once, and said to be done already.
    pub done: (u64, u64),
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, histories, operations, grants, contended, busy, gave_up, looks, .. } = self;
        let Self { lost, left, changes, deaths, cuts, mishaps, passed, of_each, done, .. } = self;
        write!(
            f,
            "{runs} runs, {histories} histories linearizable: {operations} operations, {grants} grants ({contended} \
             contended), {busy} told busy, {gave_up} given up, {looks} looks, {changes} changes, {lost} lost, {left} \
             left; {deaths} hosts died, {cuts} cut off, {mishaps} mishaps, {passed:.0?} passed over; \
             leases of each kind {of_each:?}; {} done once, {} already",
            done.0, done.1,
        )
    }
}

impl Traffic {
    fn add(&mut self, ran: &Ran, histories: &[History]) {
        let Ran { records, offered, changes, cuts, mishaps, passed } = ran;
        let Records { kinds: _, events, deaths } = records;
        let count =
            |wanted: fn(&Told) -> bool| events.iter().filter(|event| wanted(&event.told)).count() as u64;
        self.offered.extend(offered);
        self.changeable |= changes;
        self.runs += 1;
        self.histories += histories.len() as u64;
        self.operations += histories.iter().map(|history| history.operations.len() as u64).sum::<u64>();
        self.grants += count(|told| matches!(told, Told::Granted(..)));
        self.contended += histories.iter().map(contended).sum::<u64>();
        self.busy += count(|told| *told == Told::Busy);
        self.gave_up += count(|told| *told == Told::GaveUp);
        self.looks += count(|told| matches!(told, Told::Holds(..)));
        self.lost += count(|told| matches!(told, Told::Lost | Told::ReleasedTooLate));
        self.left += count(|told| *told == Told::Left);
        self.changes += count(|told| matches!(told, Told::Changed(..)));
        self.deaths += deaths.len() as u64;
        self.cuts += cuts;
        self.mishaps += mishaps;
        self.passed += *passed;
        for History { kind, operations, .. } in histories {
            let grants = operations.iter().filter(|operation| matches!(operation.step, Step::Granted { .. }));
            *self.of_each.entry(*kind).or_default() += grants.count() as u64;
        }
        self.done.0 += count(|told| *told == Told::Finished);
        self.done.1 += count(|told| *told == Told::AlreadyDone);
    }
}

/// Grants that were under way while another lease of the name was, or while somebody else asked for one.
fn contended(history: &History) -> u64 {
    let granted = |step: Step| matches!(step, Step::Granted { .. });
    let grants = history.operations.iter().filter(|operation| granted(operation.step));
    let meets = |one: &&super::wgl::Operation| {
        history.operations.iter().any(|other| {
            let counts = granted(other.step) || matches!(other.step, Step::Ended { .. });
            counts && other != *one && other.from <= one.to && one.from <= other.to
        })
    };
    grants.filter(meets).count() as u64
}

/// Checks all that happened in a run.
///
/// # Errors
///
/// The history that no order explains.
pub fn check(records: &Records, histories: &[History]) -> Check {
    for (name, History { kind, operations, broken }) in histories.iter().enumerate() {
        let why = match search(*kind, operations, MOST_STATES) {
            _ if !broken.is_empty() => broken.join("\n"),
            Verdict::Allowed(_) => continue,
            Verdict::GaveUp(states) => format!("no order was found among {states} states"),
            Verdict::Forbidden { longest, stuck } => {
                let list = |places: &[usize]| -> String {
                    places.iter().map(|at| format!("  {:?}\n", operations[*at])).collect()
                };
                format!(
                    "no order explains it; the longest beginning is\n{}which none of these can follow\n{}",
                    list(&longest),
                    list(&stuck)
                )
            }
        };
        return Err(Failure::new(format!("name {name}, {kind:?}: {why}\n{}", drive::story(records))));
    }
    Ok(())
}

/// One run of this seed, checked.
///
/// # Errors
///
/// As [`check`], and a run that could not be.
pub async fn one(site: &impl Site, seed: u64) -> Check<(Ran, Vec<History>)> {
    let scene: Scene = site.open(seed).await?;
    let ran = drive::run(&scene, seed).await;
    scene.close().await?;
    let ran = ran?;
    let found = histories(&ran.records, scene.ttl, scene.lingers);
    check(&ran.records, &found)?;
    Ok((ran, found))
}

/// So many histories, or the run that `LEASEHOLD_SEED` names.
///
/// # Errors
///
/// The first run that failed, with its seed.
pub fn prove(site: &impl Site, histories: u64) -> Check<Traffic> {
    let told = |variable| std::env::var(variable).ok().and_then(|text: String| text.parse::<u64>().ok());
    let seed = told("LEASEHOLD_SEED");
    let usual = if seed.is_some() { 1 } else { histories.div_ceil(drive::NAMES as u64) };
    prove_from(site, seed.unwrap_or(1), told("LEASEHOLD_ROUNDS").unwrap_or(usual))
}

/// So many runs, the first from this seed.
///
/// # Errors
///
/// The first run that failed, with its seed.
pub fn prove_from(site: &impl Site, first: u64, runs: u64) -> Check<Traffic> {
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let all = Mutex::new((Traffic::default(), None));
    let worker = || -> Check {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        while !stop.load(Ordering::SeqCst) {
            let number = next.fetch_add(1, Ordering::SeqCst);
            if number >= runs {
                break;
            }
            let seed = first.wrapping_add(number);
            let done = runtime.block_on(one(site, seed));
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            match done {
                Ok((ran, histories)) => all.0.add(&ran, &histories),
                Err(failure) => {
                    let failure = failure.during(format!("{}, LEASEHOLD_SEED={seed}", site.name()));
                    all.1.get_or_insert(failure);
                    stop.store(true, Ordering::SeqCst);
                }
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..site.at_once()).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            worker.join().map_err(|_| Failure::new("a worker panicked"))??;
        }
        Ok::<(), Failure>(())
    })?;
    let (traffic, failure) = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    match failure {
        Some(failure) => Err(failure),
        None => Ok(traffic),
    }
}

impl Traffic {
    /// The verdict: so much must have happened for it to be worth something.
    ///
    /// # Errors
    ///
    /// When too little happened.
    pub fn judge(&self, faults: bool) -> Check {
        let Self { runs, grants, contended, busy, gave_up, looks, lost, left, changes, changeable, .. } =
            *self;
        let each = |kind: &Kind| self.of_each.get(kind).is_some_and(|many| *many >= runs / 4);
        let has = |kind| self.offered.contains(&kind);
        let changed = changes >= runs / 8 || !has(Kind::ReadWrite) || !changeable;
        let done = self.done.0 >= runs / 10 && self.done.1 >= runs / 20;
        let enough = self.offered.iter().all(each) && changed && (done || !has(Kind::Once));
        let enough =
            enough && grants >= runs * 4 && contended >= runs * 2 && looks >= runs && gave_up >= runs / 2;
        let enough = enough && busy >= runs / 2 && left >= runs / 4;
        // Of few runs in real time it may be that none has such a moment.
        let lost = runs < 200 || lost >= runs / 20;
        let faults = !faults || (lost && self.deaths >= runs / 4 && self.mishaps >= runs * 4);
        leasehold_conformance::ensure!(enough && faults, "too little happened: {self}");
        Ok(())
    }
}
