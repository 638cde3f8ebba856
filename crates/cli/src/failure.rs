//! What went wrong, in the one form in which people and programs read it.

use std::fmt::Write as _;

use leasehold::{Code, ConfigError, Error, NameError, StoreErrorKind};
use serde_json::json;

use crate::exit;

/// The column where the text of a row starts, unless a label is longer.
const COLUMN: usize = 9;

/// A failure that ends the command.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
    /// Labels and texts; a text may have several lines.
    pub(crate) rows: Vec<(&'static str, String)>,
    pub(crate) hint: Option<String>,
    pub(crate) retryable: bool,
    pub(crate) exit: u8,
}

impl Failure {
    pub(crate) fn new(code: Code, exit: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), rows: Vec::new(), hint: None, retryable: false, exit }
    }

    pub(crate) fn usage(code: Code, message: impl Into<String>) -> Self {
        Self::new(code, exit::USAGE, message)
    }

    pub(crate) fn row(mut self, label: &'static str, text: impl Into<String>) -> Self {
        self.rows.push((label, text.into()));
        self
    }

    pub(crate) fn hint(mut self, text: impl Into<String>) -> Self {
        self.hint = Some(text.into());
        self
    }

    /// A line more of hint.
    pub(crate) fn also(mut self, line: &str) -> Self {
        let hint = self.hint.get_or_insert_default();
        if !hint.is_empty() {
            hint.push('\n');
        }
        hint.push_str(line);
        self
    }

    /// As people read it, colour aside.
    pub(crate) fn text(&self, paint: bool) -> String {
        let red = anstyle::AnsiColor::Red.on_default().bold();
        let head = format!("error[{}]", self.code);
        let mut text = if paint { format!("{red}{head}{red:#}: ") } else { format!("{head}: ") };
        text.push_str(&self.message);
        let hint =
            self.hint.as_ref().map(|hint| (if self.code == Code::NAME { "try" } else { "hint" }, hint));
        let rows = self.rows.iter().map(|(label, text)| (*label, text)).chain(hint);
        text.push_str(&rows_text(rows));
        text
    }

    /// As programs read it: one line, every key always there.
    pub(crate) fn json(&self) -> String {
        let Self { code, message, rows: _, hint, retryable, exit } = self;
        json!({"v": 1, "error": {
            "code": code.to_string(), "kind": exit::kind(*exit), "message": message, "hint": hint,
            "retryable": retryable,
        }})
        .to_string()
    }
}

/// Rows under a line: labels in one column, texts in another.
pub(crate) fn rows_text<'a>(rows: impl Iterator<Item = (&'a str, &'a String)>) -> String {
    let rows: Vec<_> = rows.collect();
    let longest = rows.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    let column = if longest < COLUMN - 1 { COLUMN } else { longest + 3 };
    let mut text = String::new();
    for (label, lines) in rows {
        for (index, line) in lines.lines().enumerate() {
            let label = if index == 0 { label } else { "" };
            // Writing to a String cannot fail.
            let _ = write!(text, "\n  {label:column$}{line}");
        }
    }
    text
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        let exit = match error {
            Error::Busy(_) | Error::TimedOut { .. } => exit::TEMPFAIL,
            Error::Lost(_) => exit::LOST,
            Error::Store(store) => match store.kind {
                StoreErrorKind::Unavailable | StoreErrorKind::Full => exit::UNAVAILABLE,
                StoreErrorKind::Denied => exit::NOPERM,
                StoreErrorKind::Protocol => exit::PROTOCOL,
                _ => exit::BUG,
            },
            Error::Name(_) => exit::USAGE,
            Error::Config(config) => of_config(config),
            _ => exit::CONFIG,
        };
        Self {
            code: error.code(),
            message: error.to_string(),
            rows: Vec::new(),
            hint: error.help(),
            retryable: error.is_retryable(),
            exit,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        let exit = of_config(&error);
        Self { hint: error.help, ..Self::new(error.code, exit, error.message) }
    }
}

impl From<NameError> for Failure {
    fn from(error: NameError) -> Self {
        Self::usage(error.code(), error.to_string()).hint(error.help())
    }
}

/// What was typed wrong is a usage error; what stands wrong in a file, a variable or a URL is configuration.
fn of_config(error: &ConfigError) -> u8 {
    match error.code {
        Code::FLAG | Code::DASHES | Code::DURATION | Code::NAME | Code::VALUE => exit::USAGE,
        _ => exit::CONFIG,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_columns() {
        let failure = Failure::usage(Code::DASHES, "where does the command start?")
            .row("you typed", "a b")
            .row("you mean", "a -- b");
        assert_eq!(
            failure.text(false),
            "error[LH0002]: where does the command start?\n  you typed   a b\n  you mean    a -- b"
        );
        let failure = Failure::usage(Code::VALUE, "x").row("effect", "none").hint("one\ntwo");
        assert_eq!(failure.text(false), "error[LH0005]: x\n  effect   none\n  hint     one\n           two");
        assert_eq!(
            failure.json(),
            r#"{"error":{"code":"LH0005","hint":"one\ntwo","kind":"usage","message":"x","retryable":false},"v":1}"#
        );
    }
}
