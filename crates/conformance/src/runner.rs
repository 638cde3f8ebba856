//! Runs the cases as tests of their own, and lists what was skipped and why.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use leasehold_core::Capabilities;
use libtest_mimic::{Arguments, Failed, Trial};

use crate::bench::{Bench, Factory};
use crate::cases::{self, Case};
use crate::need::Offer;
use crate::watched::OpenCalls;
use crate::{Check, Failure, LINES, Subject};

/// After this a case counts as hung, unless it was told to go on for many rounds, each of which may take the
/// second. It bounds what a broken store costs, and measures nothing.
const DEADLINE: Duration = Duration::from_secs(120);
const DEADLINE_OF_ROUND: Duration = Duration::from_secs(20);

/// The suite for one store.
pub struct Suite {
    name: String,
    /// What stands before the names of its cases, where a program has several suites.
    prefix: String,
    factory: Factory,
    broken: Vec<(&'static str, &'static str)>,
    /// The only case, and where the others are.
    only: Option<(&'static str, &'static str)>,
    /// Why there is nothing to test.
    missing: Option<String>,
    /// Whether it is one test where each test is a program of its own.
    as_one: bool,
}

/// What a suite is called that is one test.
const WHOLE: &str = "the_whole_suite";

impl Suite {
    /// The suite for the store of this name.
    #[must_use]
    pub fn new(name: &str, subject: impl Subject) -> Self {
        let (name, factory) = (name.to_owned(), Factory::new(subject));
        let (prefix, broken) = (String::new(), Vec::new());
        Self { name, prefix, factory, broken, only: None, missing: None, as_one: false }
    }

    /// Puts this and `::` before the names of its cases: a program that has several suites tells them apart so.
    #[must_use]
    pub fn called(mut self, prefix: &str) -> Self {
        self.prefix = format!("{prefix}::");
        self
    }

    /// A tenth of the random operations, unless told how many: for one more way to a store that another suite of the
    /// same tests looks at in full.
    #[must_use]
    pub fn a_tenth(mut self) -> Self {
        self.factory.share = 10;
        self
    }

    /// Under nextest, where each test is a program of its own, all its cases are one test: for a store that takes longer
    /// to start than most cases do to run.
    #[must_use]
    pub fn as_one(mut self) -> Self {
        self.as_one = true;
        self
    }

    /// There is nothing to test, if there is a reason: it is printed instead.
    #[must_use]
    pub fn unless(mut self, missing: Option<String>) -> Self {
        self.missing = missing;
        self
    }

    /// Corrects what the store says it can do, for a server that is known to be broken. It chooses the cases, and
    /// what they ask for.
    #[must_use]
    pub fn really(mut self, really: impl Fn(Capabilities) -> Capabilities + Send + Sync + 'static) -> Self {
        self.factory.really = Arc::new(really);
        self
    }

    /// Skips a case, for a reason that is printed with it.
    #[must_use]
    pub fn known_broken(mut self, case: &'static str, why: &'static str) -> Self {
        self.broken.push((case, why));
        self
    }

    /// Only this case, for a reason that is printed: another suite of the same store has all of them.
    #[must_use]
    pub fn only(mut self, case: &'static str, why: &'static str) -> Self {
        self.only = Some((case, why));
        self
    }

    /// Runs what the arguments of the program ask for: what `cargo test` and nextest pass, or `--skipped` to
    /// print what is skipped and why.
    #[must_use]
    pub fn main(self) -> ExitCode {
        Self::all([self])
    }

    /// Runs several suites in one program; see [`called`](Self::called).
    #[must_use]
    pub fn all(suites: impl IntoIterator<Item = Self>) -> ExitCode {
        let skipped_only = std::env::args().any(|argument| argument == "--skipped");
        let mut arguments = if skipped_only { Arguments::default() } else { Arguments::from_args() };
        let (mut trials, mut tables) = (Vec::new(), String::new());
        let (mut waits, mut of_several) = (false, false);
        let apart = std::env::var_os("NEXTEST").is_some();
        // A store that no case was asked of is not even probed: under nextest each case is a program of its own.
        for suite in suites.into_iter().filter(|suite| suite.is_asked(&arguments)) {
            if let Some(why) = suite.missing.clone() {
                tables.extend([format!("{}: is not tested, {why}\n", suite.name)]);
                trials.push(skipped(&suite.trial_name("every_case"), why));
                continue;
            }
            if suite.as_one && apart {
                trials.push(suite.whole());
                continue;
            }
            match probe(&suite.factory) {
                Ok(offer) => {
                    let skips = suite.skips(&offer);
                    tables.push_str(&match suite.only {
                        Some((case, why)) => format!("{}: {case} alone, {why}\n", suite.name),
                        None => table(&suite.name, &skips),
                    });
                    // Cases that wait for real time do so together.
                    waits |= offer.clock.is_none();
                    of_several |= offer.of_several;
                    trials.extend(skips.into_iter().map(|(case, why)| suite.trial(case, why)));
                }
                // Every case would fail for this reason, and says so itself.
                Err(failure) => trials.extend(suite.fail_all(&failure)),
            }
        }
        if skipped_only {
            print!("{tables}");
            return ExitCode::SUCCESS;
        }
        if waits {
            // .. but where each has several servers, so that all of these get to answer in time.
            arguments.test_threads.get_or_insert(if of_several { 4 } else { 16 });
        }
        // One case of many under nextest: the table would be printed for each.
        let quiet = arguments.list || arguments.exact;
        let conclusion = libtest_mimic::run(&arguments, trials);
        if !quiet {
            eprint!("{tables}");
        }
        conclusion.exit_code()
    }

    fn trial_name(&self, case: &str) -> String {
        format!("{}{case}", self.prefix)
    }

    /// Whether any of its cases may be among those that the arguments ask for.
    fn is_asked(&self, arguments: &Arguments) -> bool {
        let Some(filter) = &arguments.filter else { return true };
        let names =
            self.cases().map(|case| case.name).chain(["every_case", WHOLE]).map(|case| self.trial_name(case));
        names.into_iter().any(|name| if arguments.exact { name == *filter } else { name.contains(filter) })
    }

    fn trial(&self, case: &'static Case, why: Option<&'static str>) -> Trial {
        let name = self.trial_name(case.name);
        let factory = self.factory.clone();
        match why {
            Some(why) => skipped(&name, why.to_owned()).with_ignored_flag(true),
            None => Trial::test(name, move || run(case, factory).map_err(Failed::from)),
        }
    }

    /// All its cases, one after the other, as one test.
    fn whole(self) -> Trial {
        let name = self.trial_name(WHOLE);
        Trial::test(name, move || {
            let skips = self.skips(&probe(&self.factory)?);
            eprint!("{}", table(&self.name, &skips));
            let cases = skips.into_iter().filter(|(_, why)| why.is_none());
            let failures: Vec<String> = cases
                .filter_map(|(case, _)| {
                    let failure = run(case, self.factory.clone()).err()?;
                    Some(format!("{}: {failure}", case.name))
                })
                .collect();
            if failures.is_empty() { Ok(()) } else { Err(failures.join("\n\n").into()) }
        })
    }

    fn skips(&self, offer: &Offer) -> Vec<(&'static Case, Option<&'static str>)> {
        let why = |case: &Case| {
            let broken = self.broken.iter().find(|(name, _)| *name == case.name).map(|(_, why)| *why);
            broken.or_else(|| case.needs.iter().find_map(|need| need.unmet(offer)))
        };
        self.cases().map(|case| (case, why(case))).collect()
    }

    fn cases(&self) -> impl Iterator<Item = &'static Case> {
        let only = self.only.map(|(only, _)| only);
        cases::all().filter(move |case| only.is_none_or(|only| only == case.name))
    }

    fn fail_all(&self, failure: &Failure) -> impl Iterator<Item = Trial> {
        self.cases().map(move |case| {
            let failure = failure.to_string();
            Trial::test(self.trial_name(case.name), move || Err(Failed::from(failure)))
        })
    }
}

impl std::fmt::Debug for Suite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, prefix, factory: _, broken, only, missing, as_one } = self;
        f.debug_struct("Suite")
            .field("name", name)
            .field("prefix", prefix)
            .field("broken", broken)
            .field("only", only)
            .field("missing", missing)
            .field("as_one", as_one)
            .finish_non_exhaustive()
    }
}

/// A test that only says why it is none.
fn skipped(name: &str, why: String) -> Trial {
    Trial::test(name, move || {
        eprintln!("skipped: {why}");
        Ok(())
    })
}

/// What the store offers, asked of one that is thrown away.
fn probe(factory: &Factory) -> Check<Offer> {
    let factory = factory.clone();
    let probing =
        move |calls: OpenCalls| block_on(async move { Ok(Bench::set_up(&factory, &calls).await?.offer) });
    on_own_thread("probe", deadline(), probing)
}

fn run(case: &'static Case, factory: Factory) -> Check {
    on_own_thread(case.name, deadline(), move |calls| {
        block_on(async move {
            let bench = Bench::set_up(&factory, &calls).await?;
            (case.run)(&bench).await
        })
    })
}

fn block_on<T>(future: impl Future<Output = Check<T>>) -> Check<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future)
}

fn deadline() -> Duration {
    let rounds = u32::try_from(crate::seed::rounds(1)).unwrap_or(u32::MAX);
    DEADLINE.max(DEADLINE_OF_ROUND.saturating_mul(rounds))
}

/// Runs on a thread of its own, which is left behind when it hangs: also a store that blocks its thread must
/// not hang the suite.
fn on_own_thread<T: Send + 'static>(
    name: &str,
    deadline: Duration,
    work: impl FnOnce(OpenCalls) -> Check<T> + Send + 'static,
) -> Check<T> {
    let calls = OpenCalls::default();
    let (done, end) = sync_channel(1);
    let at_work = {
        let calls = calls.clone();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            // The other end is gone when the case has already counted as hung.
            drop(done.send(work(calls)));
        })?
    };
    match end.recv_timeout(deadline) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => {
            Err(Failure::new(format!("hung for {deadline:?}, {}", calls.tell())))
        }
        Err(RecvTimeoutError::Disconnected) => match at_work.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => Err(Failure::new("ended without an answer")),
        },
    }
}

/// What is skipped and why, and which lines of the contract are therefore not looked at.
fn table(name: &str, skips: &[(&'static Case, Option<&'static str>)]) -> String {
    let mut table = String::new();
    let skipped: Vec<_> = skips.iter().filter_map(|(case, why)| Some((case.name, (*why)?))).collect();
    let ran = skips.len() - skipped.len();
    let mut say = |what: String| table.extend([what.as_str(), "\n"]);
    say(format!("{name}: {ran} cases apply, {} are skipped", skipped.len()));
    for (case, why) in &skipped {
        say(format!("  {case}: {why}"));
    }
    for line in 1..=LINES {
        let mut cases = skips.iter().filter(|(case, _)| case.line() == Some(line));
        if cases.all(|(_, why)| why.is_some()) {
            say(format!("  line {line} of the contract is not looked at"));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use leasehold_core::{MemoryStore, Store};

    use super::*;
    use crate::Fixture;
    use crate::watched::Watched;

    #[test]
    fn a_case_that_hangs_fails_and_says_where() {
        let hangs = |calls: OpenCalls| {
            block_on(async move {
                let store = Watched { inner: Arc::new(MemoryStore::new()), calls };
                let name = leasehold_core::LockName::parse("nobody")?;
                let cursor = store.inspect(&name).await?.cursor;
                Ok(store.changed(&name, &cursor).await?)
            })
        };
        let failure = on_own_thread("hangs", Duration::from_millis(200), hangs).unwrap_err();
        assert_eq!(failure.to_string(), "hung for 200ms, in changed(\"nobody\")");
        let blocks = |_: OpenCalls| loop {
            std::thread::park();
        };
        let failure = on_own_thread::<()>("blocks", Duration::from_millis(200), blocks).unwrap_err();
        assert_eq!(failure.to_string(), "hung for 200ms, in no call to the store");
    }

    #[test]
    fn only_the_suites_whose_cases_are_asked_for_are_looked_at() {
        let suite = |prefix: &str| {
            let suite = Suite::new("memory", || async { Ok(Fixture::new(MemoryStore::new())) });
            if prefix.is_empty() { suite } else { suite.called(prefix) }
        };
        let asked = |prefix: &str, filter: &str, exact: bool| {
            let arguments = Arguments { filter: Some(filter.to_owned()), exact, ..Arguments::default() };
            suite(prefix).is_asked(&arguments)
        };
        let case = "c15_looking_leaves_no_trace";
        assert!(suite("tls").is_asked(&Arguments::default()));
        assert!(asked("", case, true) && !asked("tls", case, true) && asked("tls", case, false));
        assert!(asked("tls", &format!("tls::{case}"), true) && !asked("", &format!("tls::{case}"), true));
        assert!(!asked("tls", "tlsx::", false) && asked("tls", "tls::", false));
        let whole = suite("tls").as_one().whole();
        assert!(asked("tls", whole.name(), true) && !asked("", whole.name(), true), "{}", whole.name());
    }

    #[test]
    fn no_store_dodges_without_a_word() {
        let suite = Suite::new("meek", || async { Ok(Fixture::new(MemoryStore::new())) })
            .really(|told| Capabilities { closing: false, ..told })
            .known_broken("c15_looking_leaves_no_trace", "it writes when it is read");
        let offer = probe(&suite.factory).unwrap();
        let table = table(&suite.name, &suite.skips(&offer));
        for told in [
            "  c13_a_shut_name_lets_nobody_in: it cannot keep a name shut",
            "  c15_looking_leaves_no_trace: it writes when it is read",
            "  close_gives_nothing_back: its subject gives no second client",
            "  line 13 of the contract is not looked at",
        ] {
            assert!(table.lines().any(|line| line == told), "{told:?} is not in\n{table}");
        }
        assert!(!table.contains("line 14"), "{table}");
    }
}
