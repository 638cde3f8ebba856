//! What Leasehold itself says, and when: on stderr alone, one write for each message, and without a terminal
//! only if a person has to act.

use std::fmt::Display;
use std::io::Write as _;

use serde_json::json;

use crate::failure::Failure;

/// How much is said, and how. Cheap to copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Talk {
    /// Below zero: quiet; above: verbose.
    pub(crate) level: i8,
    /// Whether a person reads stderr now.
    pub(crate) tty: bool,
    pub(crate) json: bool,
    pub(crate) paint: bool,
}

impl Talk {
    /// What a person at the terminal likes to know.
    pub(crate) fn tell(self, text: impl Display) {
        if self.told() {
            self.line(&format!("leasehold: {text}"));
        }
    }

    /// Whether [`tell`](Self::tell) says anything: what is only told need not be found out.
    pub(crate) fn told(self) -> bool {
        (self.tty && self.level == 0 && !self.json) || self.level > 0
    }

    /// What is done and why: for `-v`.
    pub(crate) fn explain(self, text: impl Display) {
        if self.level > 0 {
            self.line(&format!("leasehold: {text}"));
        }
    }

    /// Every request to the store: for `-vv`.
    pub(crate) fn trace(self, text: impl Display) {
        if self.level > 1 {
            self.line(&format!("leasehold: {text}"));
        }
    }

    /// What somebody should read even if it comes by mail.
    pub(crate) fn warn(self, text: impl Display) {
        self.notice("warning: ", text);
    }

    /// The same, where nothing is wrong.
    pub(crate) fn notice(self, kind: &str, text: impl Display) {
        if self.level < 0 {
        } else if self.json {
            self.line(&json!({"v": 1, "warning": {"message": text.to_string()}}).to_string());
        } else {
            self.line(&format!("leasehold: {kind}{text}"));
        }
    }

    /// Why it ends.
    pub(crate) fn fail(self, failure: &Failure) {
        if self.level < -1 {
        } else if self.json {
            self.line(&failure.json());
        } else {
            self.line(&failure.text(self.paint));
        }
    }

    fn line(self, text: &str) {
        self.raw(&format!("{text}\n"));
    }

    /// Writes as it is. A stderr that is closed or full changes nothing of what is done.
    pub(crate) fn raw(self, text: &str) {
        let mut stderr = std::io::stderr().lock();
        drop(stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush()));
    }
}

/// Says what is wrong where there are no flags that tell how to.
pub(crate) fn complain(text: &str) {
    Talk { level: 0, tty: false, json: false, paint: false }.raw(&format!("leasehold: {text}\n"));
}

/// Prints data. A reader that has gone away (`| head`) is no failure.
pub(crate) fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    drop(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()));
}
