//! Where `--report` writes to: opened before anything runs, so that a wrong path is not found out too late.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};

use leasehold::Code;
use serde_json::Value;

use crate::failure::Failure;
use crate::sys;

/// Where the account of a run goes.
#[derive(Debug)]
pub(crate) struct Report {
    file: File,
    shown: String,
}

impl Report {
    /// Opens `FILE`, emptied, or `fd:N`, which the caller must have left open for us.
    pub(crate) fn open(to: &str) -> Result<Self, Failure> {
        let wrong = |error: &dyn std::fmt::Display, hint: &str| {
            Failure::usage(Code::VALUE, format!("--report {to}: {error}")).hint(hint)
        };
        let file = match to.strip_prefix("fd:") {
            Some(number) => {
                let number = number.parse().map_err(|_| wrong(&"not a number", "write one such as fd:3"))?;
                sys::inherited(number)
                    .map(File::from)
                    .map_err(|error| wrong(&error, "open it for leasehold, as in 3>report.json"))?
            }
            None => {
                let opened = OpenOptions::new().write(true).create(true).truncate(true).open(to);
                opened.map_err(|error: io::Error| wrong(&error, "nothing was run"))?
            }
        };
        Ok(Self { file, shown: to.to_owned() })
    }

    /// Writes the account, as one line.
    pub(crate) fn write(mut self, account: &Value) -> Result<(), String> {
        let line = format!("{account}\n");
        self.file.write_all(line.as_bytes()).map_err(|error| format!("--report {}: {error}", self.shown))
    }
}
