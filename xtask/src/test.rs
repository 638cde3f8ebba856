//! `cargo xtask test`: all tests, in parts.

use std::cell::OnceCell;
use std::io::Write as _;
use std::process::{Command, Stdio};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser as _};

use crate::Result;
use crate::context::{Context, Session, seconds};
use crate::parts::{PARTS, Part};
use crate::report::Report;
use crate::stopwatch::Stopwatch;
use crate::workspace::Workspace;

/// Closes the help.
const MORE: &str = "\
Parts run in the order above, whatever order they are named in. `cargo xtask test fmt house` runs two of them.

What a part says goes to target/xtask/<part>.log; of a part that fails the end is shown, with the exact line that \
runs the failing command again. At the end stand the minutes of each part, their sum (over 35 minutes is a failure), \
what did not run and why, and how many tests passed.

Tests run through nextest where it is installed, else, or with XTASK_NO_NEXTEST=1, through cargo test.";

/// Runs all tests, in parts.
#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub(crate) struct Args {
    /// Which parts to run: all of them if none is named
    #[arg(value_name = "PART", value_parser = names().map(|name| name))]
    parts: Vec<String>,
    /// Fails when something could not run
    #[arg(long)]
    strict: bool,
    /// Lists the parts and runs none
    #[arg(long)]
    list: bool,
    /// How many tests of a target run at once (each part has its own default)
    #[arg(long, value_name = "N")]
    test_threads: Option<usize>,
}

fn names() -> PossibleValuesParser {
    PARTS.iter().map(|part| PossibleValue::new(part.name).help(part.about)).collect::<Vec<_>>().into()
}

pub(crate) fn run(args: &Args) -> Result<bool> {
    if args.list {
        PARTS.iter().for_each(|part| println!("{:<12} {}", part.name, part.about));
        return Ok(true);
    }
    let context = Context {
        workspace: Workspace::load(false)?,
        nextest: has_nextest(),
        threads: args.test_threads,
        tools: OnceCell::new(),
    };
    let mut report = Report::default();
    for part in PARTS.iter().filter(|part| args.parts.is_empty() || args.parts.iter().any(|p| p == part.name))
    {
        run_part(part, &context, &mut report)?;
    }
    println!("{}", report.text(args.strict));
    Ok(report.is_good(args.strict))
}

fn run_part(part: &Part, context: &Context, report: &mut Report) -> Result<()> {
    // Without a line end: a part may take minutes, and whoever waits wants to know for what.
    print!("{:<12} ", part.name);
    std::io::stdout().flush()?;
    let watch = Stopwatch::start();
    let mut session = Session::new(context, part.name)?;
    if let Err(error) = (part.run)(&mut session) {
        session.problems.push(format!("error: {error}\nto run it again:\n  cargo xtask test {}", part.name));
    }
    let took = watch.elapsed();
    let Session { problems, notes, not_run, tally, .. } = session;
    let verdict = match (problems.is_empty(), not_run.is_empty()) {
        (false, _) => "FAILED",
        (true, false) if tally.ran() == 0 => "NOT RUN",
        (true, _) => "ok",
    };
    let tests = if tally.ran() > 0 { format!("   {tally}") } else { String::new() };
    println!("{verdict:<8} {:>9}{tests}", seconds(took));
    notes.iter().for_each(|note| println!("  note: {note}"));
    problems.iter().for_each(|problem| println!("  | {}", problem.replace('\n', "\n  | ")));
    report.add(part.name, took, !problems.is_empty(), tally);
    report.not_run(part.name, not_run);
    Ok(())
}

fn has_nextest() -> bool {
    // Lets the way through cargo test be tried on a machine that has both.
    if std::env::var_os("XTASK_NO_NEXTEST").is_some() {
        return false;
    }
    let mut nextest = Command::new("cargo");
    nextest.args(["nextest", "--version"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    nextest.status().is_ok_and(|status| status.success())
}
