//! The part `faults`: each planted fault is caught by the test that must catch it.
//!
//! The tables are read as text, so that this program builds although the crate that holds them may not.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use crate::Result;
use crate::command::{Ended, Line};
use crate::context::{Context, Outcome, Session};
use crate::source;
use crate::tally::{self, Tally};

/// Which faults a build with `--cfg leasehold_faults` holds.
const PLANTED: &str = "crates/core/src/fault.rs";
/// Which test must catch which.
const CATCHES: &str = "crates/conformance/src/faults.rs";
/// What picks one: a normal build never reads it, so its name is not in there.
const VARIABLE: &str = "LEASEHOLD_FAULT";
/// Fewer would prove little.
const AT_LEAST: usize = 10;
/// A fault may well make a test wait for ever, and that counts as caught.
const DEADLINE: Duration = Duration::from_secs(180);

/// For the second build of most crates.
const BUILD_DEADLINE: Duration = Duration::from_secs(1800);

/// A row of the table: with this fault, these tests must fail.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Catch {
    fault: String,
    package: String,
    /// A test target, or `lib` for unit tests.
    target: String,
    /// A part of the names of the tests.
    filter: String,
}

pub(super) fn run(session: &mut Session<'_>) -> Result<()> {
    let root = session.context.root();
    let Ok(table) = std::fs::read_to_string(root.join(CATCHES)) else {
        session.not_run.push(format!("{CATCHES} does not exist"));
        return Ok(());
    };
    let planted = planted(&std::fs::read_to_string(root.join(PLANTED))?);
    let catches = catches(&table)?;
    session.problems.extend(disagreements(&planted, &catches));
    prove_normal_build(session)?;
    let Some(bundle) = Bundle::build(session, &catches)? else { return Ok(()) };
    let tests: Vec<_> = catches.iter().map(Catch::test).collect::<BTreeSet<_>>().into_iter().collect();
    let mut sound = BTreeSet::new();
    for (test, outcome) in tests.iter().zip(observe(session, &bundle, &tests)?) {
        if must_pass(session, test, &outcome) {
            sound.insert(test.clone());
        }
    }
    // A test that fails anyway catches nothing.
    let catches: Vec<_> = catches.into_iter().filter(|catch| sound.contains(&catch.test())).collect();
    for (catch, outcome) in catches.iter().zip(observe(session, &bundle, &catches)?) {
        must_fail(session, catch, &outcome);
    }
    prove_search(session)?;
    if session.problems.is_empty() {
        session.notes.push(format!("{} faults, each caught by its test", catches.len()));
    }
    Ok(())
}

/// The names in the table of planted faults: the first text of each row of `planted!`.
fn planted(source: &str) -> BTreeSet<String> {
    let after = source.split_once("= planted! {").map_or("", |(_, table)| table);
    let table = after.split_once("\n};").map_or("", |(table, _)| table);
    source::texts(table).into_iter().step_by(2).map(str::to_owned).collect()
}

/// The rows of the table of catches: every four texts from where the first constant is given its value.
fn catches(source: &str) -> Result<Vec<Catch>> {
    let code = source::shipped(source);
    let is_table = |at: &usize| code[..*at].lines().next_back().is_some_and(|line| line.starts_with("pub"));
    let start = code.match_indices("&[\n").map(|(at, _)| at).find(is_table);
    let start = start.ok_or_else(|| format!("{CATCHES}: no table was found in it"))?;
    let end = code[start..].find("\n];").map_or(code.len(), |end| start + end);
    let texts = source::texts(&source[start..end]);
    if !texts.len().is_multiple_of(4) {
        return Err(format!("{CATCHES}: a row is not four texts: fault, package, test target, filter").into());
    }
    let row = |row: &[&str]| {
        let [fault, package, target, filter] =
            row.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>().try_into().ok()?;
        Some(Catch { fault, package, target, filter })
    };
    Ok(texts.chunks(4).filter_map(row).collect())
}

/// Where the two tables do not fit together.
fn disagreements(planted: &BTreeSet<String>, catches: &[Catch]) -> Vec<String> {
    let mut problems = Vec::new();
    let caught: BTreeSet<String> = catches.iter().map(|catch| catch.fault.clone()).collect();
    if caught.len() < AT_LEAST {
        problems.push(format!("{CATCHES}: {} faults, {AT_LEAST} are the least", caught.len()));
    }
    let loose = planted.difference(&caught);
    problems.extend(
        loose.map(|fault| format!("{fault} is planted ({PLANTED}), and no test must catch it ({CATCHES})")),
    );
    let unknown = caught.difference(planted);
    problems.extend(unknown.map(|fault| format!("{CATCHES}: {fault} is not planted ({PLANTED})")));
    problems
}

impl Catch {
    /// Its tests, with no fault picked.
    fn test(&self) -> Self {
        Self { fault: String::new(), ..self.clone() }
    }

    /// The line that runs its tests, with this fault picked, if one.
    fn line(&self, context: &Context) -> Line {
        let Self { fault: _, package, target, filter } = self;
        let more: [&str; 4] = if context.nextest {
            ["--success-output", "immediate", "--", filter]
        } else {
            ["--no-fail-fast", "--", filter, "--show-output"]
        };
        self.picked(with_faults(context, &chosen(package, target), &more), context)
    }

    fn picked(&self, line: Line, context: &Context) -> Line {
        let line = line.deadline(DEADLINE).path(context.tools().folder());
        if self.fault.is_empty() { line } else { line.env(VARIABLE, &self.fault) }
    }
}

/// All tests that catch anything, built once with all faults in them.
struct Bundle {
    /// The options by which nextest runs them without asking cargo again, which took longer than most of them do.
    known: Option<[String; 4]>,
}

impl Bundle {
    /// Builds them by themselves: what does not build would else be told once for each test. None if it failed.
    fn build(session: &mut Session<'_>, catches: &[Catch]) -> Result<Option<Self>> {
        let context = session.context;
        let targets: BTreeSet<_> = catches.iter().map(|catch| (&catch.package, &catch.target)).collect();
        if !context.nextest {
            for (package, target) in targets {
                let line = with_faults(context, &chosen(package, target), &["--no-run"]);
                if !session.must(&line.deadline(BUILD_DEADLINE))? {
                    return Ok(None);
                }
            }
            return Ok(Some(Self { known: None }));
        }
        let all = targets.iter().flat_map(|(package, target)| chosen(package, target));
        let all: Vec<_> = all.collect::<BTreeSet<_>>().into_iter().collect();
        let line = with_faults(context, &all, &["--no-run"]).deadline(BUILD_DEADLINE);
        if !session.must(&line)? {
            return Ok(None);
        }
        let list = Line::cargo("nextest list --list-type binaries-only --message-format json --all-features");
        let list = in_faults(list.args(all.concat()), context).deadline(BUILD_DEADLINE);
        let metadata = Line::cargo("metadata --format-version 1 --all-features");
        let metadata = in_faults(metadata, context).deadline(BUILD_DEADLINE);
        let (binaries, cargo) =
            (session.keep(&list, "binaries.json")?, session.keep(&metadata, "cargo.json")?);
        let (Some(binaries), Some(cargo)) = (binaries, cargo) else { return Ok(None) };
        Ok(Some(Self {
            known: Some(["--binaries-metadata".to_owned(), binaries, "--cargo-metadata".to_owned(), cargo]),
        }))
    }

    /// The line that runs a catch.
    fn line(&self, catch: &Catch, context: &Context) -> Line {
        let Some(known) = &self.known else { return catch.line(context) };
        let Catch { fault: _, package, target, filter } = catch;
        let target = if target == "lib" { "kind(=lib)".to_owned() } else { format!("binary(={target})") };
        let line = Line::cargo("nextest run --profile faults --success-output immediate").args(known.clone());
        let which = format!("package(={package}) and {target} and test(~{filter})");
        catch.picked(line.args(["-E".to_owned(), which]), context)
    }
}

/// How many are run at once: they wait more than they work.
const AT_ONCE: usize = 3;

fn observe(session: &mut Session<'_>, bundle: &Bundle, catches: &[Catch]) -> Result<Vec<Outcome>> {
    let lines: Vec<_> = catches.iter().map(|catch| bundle.line(catch, session.context)).collect();
    session.observe_all(&lines, AT_ONCE)
}

/// The options by which cargo chooses a test target.
fn chosen(package: &str, target: &str) -> [Vec<String>; 2] {
    let target =
        if target == "lib" { vec!["--lib".to_owned()] } else { vec!["--test".to_owned(), target.to_owned()] };
    [vec!["-p".to_owned(), package.to_owned()], target]
}

/// The line that runs test targets in a build with all faults in it.
fn with_faults(context: &Context, chosen: &[Vec<String>], more: &[&str]) -> Line {
    // Its profile ends what hangs after half a minute, and the first failure is enough.
    let runner = if context.nextest { "nextest run --profile faults" } else { "test" };
    let line = Line::cargo(runner).args(chosen.iter().flatten().cloned()).args(["--all-features"]);
    in_faults(line.args(more.iter().copied()), context)
}

/// The same line, for the build with all faults in it.
fn in_faults(line: Line, context: &Context) -> Line {
    let line = line.env("CARGO_TARGET_DIR", context.target().join("faults").to_string_lossy());
    let flags = std::env::var("RUSTFLAGS").map(|flags| flags + " ").unwrap_or_default();
    line.env("RUSTFLAGS", format!("{flags}--cfg leasehold_faults"))
}

/// With no fault picked the tests pass, and are there at all.
fn must_pass(session: &mut Session<'_>, catch: &Catch, outcome: &Outcome) -> bool {
    let line = catch.line(session.context);
    let tally = Tally::of(&outcome.output);
    if outcome.ended != Ended::Well {
        session.fail(&line, "it fails with no fault picked\n", &outcome.output);
        return false;
    }
    if tally.passed == 0 {
        session.fail(&line, "it runs no test at all\n", &outcome.output);
    }
    // It would not fail with the fault either, and that says nothing about the test.
    let skipped = tally::skipped(&outcome.output);
    let sound = tally.passed > 0 && skipped.is_empty();
    session.not_run.extend(skipped);
    sound
}

/// With the fault picked they fail: as tests, not as a build.
fn must_fail(session: &mut Session<'_>, catch: &Catch, outcome: &Outcome) {
    let line = catch.line(session.context);
    let caught = match outcome.ended {
        Ended::Well => false,
        Ended::Badly => Tally::of(&outcome.output).failed > 0,
        Ended::Late => true,
    };
    if !caught {
        // That the tests pass is all there is to see, unless they did not even run.
        let output = if outcome.ended == Ended::Well { "" } else { &outcome.output };
        session.fail(&line, &format!("the fault {} is not caught\n", catch.fault), output);
    }
}

/// A normal build of the command holds no fault: the variable that would pick one is not in it.
fn prove_normal_build(session: &mut Session<'_>) -> Result<()> {
    let line = Line::cargo("build --workspace --all-features --bins");
    if !session.must(&line)? {
        return Ok(());
    }
    let context = session.context;
    for profile in ["debug", "release"] {
        for package in context.workspace.members().filter(|package| package.name != "xtask") {
            for bin in package.targets("bin") {
                let path = context.target().join(profile).join(&bin.name);
                if path.is_file() && holds_variable(&path)? {
                    let path = context.workspace.short(&path).display();
                    session.problems.push(format!("{path}: a normal build names {VARIABLE}"));
                }
            }
        }
    }
    Ok(())
}

/// The search for the variable bites: it does find it in the build that holds the faults.
fn prove_search(session: &mut Session<'_>) -> Result<()> {
    let folder = session.context.target().join("faults").join("debug").join("deps");
    for entry in std::fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_none() && path.is_file() && holds_variable(&path)? {
            return Ok(());
        }
    }
    session.problems.push(format!("{VARIABLE} is not found even where it must be, in {}", folder.display()));
    Ok(())
}

fn holds_variable(binary: &Path) -> Result<bool> {
    let bytes = std::fs::read(binary)?;
    let needle = VARIABLE.as_bytes();
    Ok(bytes.windows(needle.len()).any(|window| window == needle))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catch(words: [&str; 4]) -> Catch {
        let [fault, package, target, filter] = words.map(str::to_owned);
        Catch { fault, package, target, filter }
    }

    #[test]
    fn the_tables_are_read() {
        let source =
            "pub const PLANTED: X = planted! {\n    \"one\": \"breaks a\",\n    \"two\": \"breaks b\",\n};\n";
        assert_eq!(planted(source), ["one", "two"].map(str::to_owned).into());
        let source = "//! \"No\" row.\npub const CAUGHT: &[(&str, &str, &str, &str)] = &[\n    // \"a comment\"\n    \
                      (\"one\", \"p\", \"conformance\", \"c01\"),\n    (\"two\", \"p\", \"lib\", \"f\"),\n];\n\
                      #[cfg(test)]\nmod tests {\n    const X: &str = \"y\";\n}\n";
        let expected = [catch(["one", "p", "conformance", "c01"]), catch(["two", "p", "lib", "f"])];
        assert_eq!(catches(source).unwrap(), expected);
        assert!(catches("pub const X: &[&str] = &[\n    \"one\",\n];").is_err());
        assert!(catches("//! Nothing.").is_err());
    }

    #[test]
    fn a_fault_that_nobody_catches_is_a_problem() {
        let names: Vec<String> = (0..AT_LEAST).map(|number| format!("f{number}")).collect();
        let catches: Vec<Catch> = names.iter().map(|name| catch([name, "p", "t", "f"])).collect();
        let planted: BTreeSet<String> = names.iter().cloned().collect();
        assert_eq!(disagreements(&planted, &catches), [""; 0]);
        assert_eq!(disagreements(&planted, &catches[1..]).len(), 2);
        let more: BTreeSet<String> = names.iter().skip(1).cloned().chain(["new".to_owned()]).collect();
        assert_eq!(disagreements(&more, &catches).len(), 2);
    }

    #[test]
    fn the_variable_is_found_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let binary = folder.path().join("x");
        std::fs::write(&binary, format!("\0\u{1}{VARIABLE}\0")).unwrap();
        assert!(holds_variable(&binary).unwrap());
        std::fs::write(&binary, "LEASEHOLD_STORE").unwrap();
        assert!(!holds_variable(&binary).unwrap());
    }
}
