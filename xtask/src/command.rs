//! One command of a part: run with its output in the part's log, and shown as a line to run again.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::Result;
use crate::stopwatch::Stopwatch;

/// A command, as it is run and as it is shown.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    program: String,
    args: Vec<String>,
    envs: Vec<(String, String)>,
    deadline: Option<Duration>,
    path: Option<PathBuf>,
    /// Where its standard output goes, if not into the log.
    answers: Option<PathBuf>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Well,
    Badly,
    /// It was stopped at its deadline.
    Late,
}

impl Line {
    pub(crate) fn new(program: &str) -> Self {
        Self {
            program: program.to_owned(),
            args: Vec::new(),
            envs: Vec::new(),
            deadline: None,
            path: None,
            answers: None,
        }
    }

    /// `cargo` with these words.
    pub(crate) fn cargo(words: &str) -> Self {
        Self::new("cargo").args(words.split_whitespace())
    }

    pub(crate) fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.envs.push((name.to_owned(), value.into()));
        self
    }

    /// Stops it, and all that it started, when it takes longer.
    pub(crate) fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Looks for programs here as well.
    pub(crate) fn path(mut self, folder: Option<&Path>) -> Self {
        self.path = folder.map(Path::to_owned);
        self
    }

    /// Writes its standard output into this file, and only what else it says into the log.
    pub(crate) fn answers(mut self, file: &Path) -> Self {
        self.answers = Some(file.to_owned());
        self
    }

    /// Runs it in `folder` with all that it says in `log`.
    pub(crate) fn run(&self, folder: &Path, log: &File) -> Result<Ended> {
        let mut command = Command::new(&self.program);
        command.args(&self.args).envs(self.envs.iter().map(|(name, value)| (name, value)));
        command.current_dir(folder).stdin(Stdio::null());
        let answers = self.answers.as_ref().map_or_else(|| log.try_clone(), File::create)?;
        command.stdout(answers).stderr(log.try_clone()?);
        if let Some(extra) = &self.path {
            command.env("PATH", with_folder(extra)?);
        }
        let Some(deadline) = self.deadline else {
            let status = command.status().map_err(|error| format!("{}: {error}", self.program))?;
            return Ok(Ended::of(status));
        };
        // A group of its own, so that what it started ends with it.
        let mut child =
            command.process_group(0).spawn().map_err(|error| format!("{}: {error}", self.program))?;
        let watch = Stopwatch::start();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Ended::of(status));
            }
            if watch.elapsed() >= deadline {
                end_group(&mut child)?;
                return Ok(Ended::Late);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn with_folder(extra: &Path) -> Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    Ok(std::env::join_paths(std::env::split_paths(&path).chain([extra.to_owned()]))?)
}

fn end_group(child: &mut Child) -> Result<()> {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        match rustix::process::kill_process_group(group, rustix::process::Signal::KILL) {
            // It may have ended by itself meanwhile.
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    child.wait()?;
    Ok(())
}

impl Ended {
    fn of(status: ExitStatus) -> Self {
        if status.success() { Self::Well } else { Self::Badly }
    }
}

impl fmt::Display for Line {
    /// The line to run it again, ready for a shell.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.envs {
            write!(f, "{name}={} ", quoted(value))?;
        }
        f.write_str(&quoted(&self.program))?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", quoted(arg)))
    }
}

fn quoted(word: &str) -> String {
    let harmless = |char: char| char.is_ascii_alphanumeric() || "-_./=:,@%+".contains(char);
    if !word.is_empty() && word.chars().all(harmless) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_ready_for_a_shell() {
        let line = Line::cargo("test -p x").args(["it's"]).env("RUSTFLAGS", "--cfg y");
        assert_eq!(line.to_string(), r"RUSTFLAGS='--cfg y' cargo test -p x 'it'\''s'");
    }

    #[test]
    fn what_hangs_is_stopped_with_all_that_it_started() {
        let (folder, log) = (std::env::temp_dir(), tempfile::tempfile().unwrap());
        let hangs = Line::new("sh").args(["-c", "sleep 60 & wait"]).deadline(Duration::from_millis(50));
        let watch = Stopwatch::start();
        assert_eq!(hangs.run(&folder, &log).unwrap(), Ended::Late);
        assert!(watch.elapsed() < Duration::from_secs(30));
        assert_eq!(Line::new("false").run(&folder, &log).unwrap(), Ended::Badly);
        assert_eq!(
            Line::new("true").deadline(Duration::from_secs(30)).run(&folder, &log).unwrap(),
            Ended::Well
        );
    }
}
