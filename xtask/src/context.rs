//! What a part works with: the workspace, its log, and what it has found so far.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::Result;
use crate::command::{Ended, Line};
use crate::servers::Tools;
use crate::tally::{self, Tally};
use crate::workspace::Workspace;

/// How many lines of a failure are shown when they are its last.
const TAIL: usize = 60;
/// How many lines are shown of what failed tests said.
const FAILURES: usize = 200;

/// What every part may look at.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) workspace: Workspace,
    /// Whether nextest is there; else tests run through cargo test.
    pub(crate) nextest: bool,
    /// How many tests at once, if the caller said so.
    pub(crate) threads: Option<usize>,
    /// The tools that process tests use, once somebody has asked for them.
    pub(crate) tools: std::cell::OnceCell<Tools>,
}

impl Context {
    pub(crate) fn root(&self) -> &Path {
        &self.workspace.workspace_root
    }

    pub(crate) fn target(&self) -> &Path {
        &self.workspace.target_directory
    }

    /// Where the tools that process tests use are, installed now if they were not there.
    pub(crate) fn tools(&self) -> &Tools {
        self.tools.get_or_init(|| Tools::provide(self.root(), self.target()))
    }
}

/// One run of one part.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    pub(crate) context: &'a Context,
    log: File,
    log_path: PathBuf,
    /// What the part found wrong, ready to be shown.
    pub(crate) problems: Vec<String>,
    /// What is worth a look, but wrong for nobody.
    pub(crate) notes: Vec<String>,
    /// What could not run, with the reason.
    pub(crate) not_run: Vec<String>,
    pub(crate) tally: Tally,
}

/// How one command of a part went.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) ended: Ended,
    pub(crate) output: String,
}

impl<'a> Session<'a> {
    pub(crate) fn new(context: &'a Context, part: &str) -> Result<Self> {
        let folder = context.target().join("xtask");
        std::fs::create_dir_all(&folder)?;
        let log_path = folder.join(format!("{part}.log"));
        let log = File::options().create(true).truncate(true).read(true).write(true).open(&log_path)?;
        let (problems, notes, not_run) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { context, log, log_path, problems, notes, not_run, tally: Tally::default() })
    }

    pub(crate) fn log_path(&self) -> &Path {
        self.context.workspace.short(&self.log_path)
    }

    /// Runs a command that must end well, and says whether it did.
    pub(crate) fn must(&mut self, line: &Line) -> Result<bool> {
        let Outcome { ended, output } = self.observe(line)?;
        self.tally += Tally::of(&output);
        self.not_run.extend(tally::skipped(&output));
        match ended {
            Ended::Well => return Ok(true),
            Ended::Badly => self.fail(line, "", &output),
            Ended::Late => self.fail(line, "it did not end in time\n", &output),
        }
        Ok(false)
    }

    /// Runs a command whose end is for the caller to judge; its tests are not counted.
    pub(crate) fn observe(&mut self, line: &Line) -> Result<Outcome> {
        let start = self.log.seek(SeekFrom::End(0))?;
        writeln!(self.log, "$ {line}")?;
        let ended = line.run(self.context.root(), &self.log)?;
        self.log.seek(SeekFrom::Start(start))?;
        let mut output = Vec::new();
        self.log.read_to_end(&mut output)?;
        Ok(Outcome { ended, output: String::from_utf8_lossy(&output).into_owned() })
    }

    /// The same for several commands, of which some run at a time; the log has them in order.
    pub(crate) fn observe_all(&mut self, lines: &[Line], at_once: usize) -> Result<Vec<Outcome>> {
        let (root, next) = (self.context.root().to_owned(), AtomicUsize::new(0));
        let outcomes: Vec<OnceLock<Result<Outcome, String>>> =
            lines.iter().map(|_| OnceLock::new()).collect();
        std::thread::scope(|scope| {
            for _ in 0..at_once.min(lines.len()) {
                scope.spawn(|| {
                    while let Some((line, outcome)) = {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        lines.get(at).zip(outcomes.get(at))
                    } {
                        outcome.get_or_init(|| alone(line, &root).map_err(|error| error.to_string()));
                    }
                });
            }
        });
        let mut all = Vec::with_capacity(lines.len());
        for (line, outcome) in lines.iter().zip(outcomes) {
            let outcome = outcome.into_inner().unwrap_or_else(|| Err(format!("{line}: it was not run")))?;
            self.log.seek(SeekFrom::End(0))?;
            write!(self.log, "$ {line}\n{}", outcome.output)?;
            all.push(outcome);
        }
        Ok(all)
    }

    /// Runs a command that must end well, and keeps what it answers in a file beside the log; gives that file's path.
    pub(crate) fn keep(&mut self, line: &Line, name: &str) -> Result<Option<String>> {
        let path = self.log_path.with_extension(name);
        let ended = line.clone().answers(&path).run(self.context.root(), &self.log)?;
        if ended != Ended::Well {
            self.fail(line, "it did not answer\n", "");
            return Ok(None);
        }
        Ok(Some(path.to_string_lossy().into_owned()))
    }

    /// Keeps the end of what a command said as a problem, with the line to run it again.
    pub(crate) fn fail(&mut self, line: &Line, why: &str, output: &str) {
        let excerpt: String = excerpt(output).iter().map(|line| format!("{line}\n")).collect();
        let rerun =
            format!("to run it again:\n  {line}\nall that it said is in {}", self.log_path().display());
        self.problems.push(format!("{excerpt}{why}{rerun}"));
    }
}

/// Runs a command with a log of its own.
fn alone(line: &Line, folder: &Path) -> Result<Outcome> {
    let mut log = tempfile::tempfile()?;
    let ended = line.run(folder, &log)?;
    log.seek(SeekFrom::Start(0))?;
    let mut output = Vec::new();
    log.read_to_end(&mut output)?;
    Ok(Outcome { ended, output: String::from_utf8_lossy(&output).into_owned() })
}

/// What to show of a failure: what nextest says from its summary on, where it quotes the tests that failed; else
/// the end.
fn excerpt(output: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut in_backtrace = false;
    for line in output.lines().map(tally::plain) {
        // It tells little of a test, and hides much.
        in_backtrace |= line.trim() == "stack backtrace:";
        if !in_backtrace && !is_progress(&line) {
            lines.push(line);
        } else if line.trim_start().starts_with("note: ") {
            in_backtrace = false;
        }
    }
    match lines.iter().rposition(|line| line.trim_start().starts_with("Summary [")) {
        Some(summary) => lines.into_iter().skip(summary).take(FAILURES).collect(),
        None => lines.split_off(lines.len().saturating_sub(TAIL)),
    }
}

/// Whether a line only says what cargo is about to do.
fn is_progress(line: &str) -> bool {
    let words = ["Compiling", "Checking", "Documenting", "Downloading", "Downloaded", "Fresh", "Blocking"];
    words.iter().any(|word| line.trim_start().starts_with(word))
}

/// A duration as the tables show it.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_failure_the_failed_tests_or_the_end_are_shown() {
        let long: String = (0..100).map(|number| format!("{number}\n   Compiling x\n")).collect();
        assert_eq!(excerpt(&long).first().map(String::as_str), Some("40"));
        let tests = format!("{long}   Summary [ 1s] 1 test run: 0 passed, 1 failed\n  FAIL x\n");
        assert_eq!(excerpt(&tests).len(), 2);
        let traced = format!("{tests}why\nstack backtrace:\n  0: x\n  at y\nnote: Some details\nend\n");
        assert_eq!(excerpt(&traced).last().map(String::as_str), Some("end"));
        assert_eq!(excerpt(&traced).len(), 4);
    }
}
