//! Tests through nextest or cargo test, chosen by targets, which both understand alike.

use crate::Result;
use crate::command::Line;
use crate::context::{Context, Session};
use crate::workspace::{Package, Workspace};

/// The packages whose tests start processes.
pub(crate) const PROCESS: &[&str] = &["leasehold-cli", "leasehold-harness"];
/// The name of the test targets that hold a store to the contract.
pub(crate) const CONFORMANCE: &str = "conformance";

/// How the tests of a part are run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Manner {
    /// How many at once; `None` for as many as the runner likes.
    pub(crate) threads: Option<usize>,
}

impl Context {
    /// The runner's own words over these packages. What passing tests say is shown: some say that they could not
    /// run, and why.
    fn tests(&self, packages: &[&str], targets: &[String], manner: Manner) -> Line {
        let (words, mut last) = if self.nextest {
            ("nextest run --success-output immediate --failure-output final", Vec::new())
        } else {
            // Options of the tests themselves stand behind `--` there.
            ("test", vec!["--".to_owned(), "--show-output".to_owned()])
        };
        if let Some(threads) = self.threads.or(manner.threads) {
            last.extend(["--test-threads".to_owned(), threads.to_string()]);
        }
        let line =
            Line::cargo(words).args(packages.iter().copied()).args(["--all-features", "--no-fail-fast"]);
        line.args(targets.iter().cloned()).args(last)
    }
}

/// The part to which a test target belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    Unit,
    Conformance,
    Process,
}

/// Which part runs the test target `name` of `package`.
pub(crate) fn home(package: &str, name: &str) -> Home {
    if name == CONFORMANCE {
        Home::Conformance
    } else if PROCESS.contains(&package) {
        Home::Process
    } else {
        Home::Unit
    }
}

/// A test target: its package and its name.
type TestTarget = (String, String);

/// All test targets of the workspace.
fn targets(workspace: &Workspace) -> Vec<TestTarget> {
    let of = |package: &Package| -> Vec<TestTarget> {
        // One that is not tested by default is for whoever asks for it by its name.
        let tested = package.targets("test").filter(|target| target.test);
        tested.map(|target| (package.name.clone(), target.name.clone())).collect()
    };
    workspace.members().flat_map(of).collect()
}

/// Splits the targets of a part: the names that are its alone, and the targets whose name another part has too.
fn split(all: &[TestTarget], part: Home) -> (Vec<String>, Vec<TestTarget>) {
    let (mine, theirs): (Vec<_>, Vec<_>) =
        all.iter().partition(|(package, name)| home(package, name) == part);
    let is_shared = |name: &String| theirs.iter().any(|(_, other)| other == name);
    let (shared, own): (Vec<_>, Vec<_>) = mine.into_iter().partition(|(_, name)| is_shared(name));
    let mut own: Vec<String> = own.into_iter().map(|(_, name)| name.clone()).collect();
    own.sort();
    own.dedup();
    (own, shared.into_iter().cloned().collect())
}

/// Runs all test targets of a part.
pub(crate) fn run(session: &mut Session<'_>, part: Home, also: &[&str], manner: Manner) -> Result<()> {
    let context = session.context;
    let (own, shared) = split(&targets(&context.workspace), part);
    let mut lines = Vec::new();
    let words = also.iter().map(|word| (*word).to_owned());
    let words: Vec<String> =
        words.chain(own.into_iter().flat_map(|name| ["--test".to_owned(), name])).collect();
    if !words.is_empty() {
        // The whole workspace at once: features are then the same in every part, and nothing is built twice.
        lines.push(context.tests(&["--workspace"], &words, manner));
    }
    // In the whole workspace such a name would choose the other part's target as well.
    for (package, name) in shared {
        lines.push(context.tests(&["-p", &package], &["--test".to_owned(), name], manner));
    }
    if lines.is_empty() {
        session.not_run.push("there is no such test target".to_owned());
        return Ok(());
    }
    // Any of them may start a server: a store's tests its own.
    let folder = context.tools().folder();
    for line in &lines {
        session.must(&line.clone().path(folder))?;
    }
    if session.problems.is_empty() && session.tally.ran() == 0 {
        session.problems.push("the runner ran no test at all".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_target_has_one_home() {
        assert_eq!(home("leasehold-sqlite", "conformance"), Home::Conformance);
        assert_eq!(home("leasehold-sqlite", "two_processes"), Home::Unit);
        assert_eq!(home("leasehold-cli", "run"), Home::Process);
    }

    #[test]
    fn a_name_that_two_parts_have_is_chosen_by_package() {
        let target = |package: &str, name: &str| (package.to_owned(), name.to_owned());
        let all = [target("leasehold", "run"), target("leasehold", "line"), target("leasehold-cli", "run")];
        assert_eq!(split(&all, Home::Unit), (vec!["line".to_owned()], vec![target("leasehold", "run")]));
        assert_eq!(split(&all, Home::Process), (vec![], vec![target("leasehold-cli", "run")]));
    }
}
