//! The arguments of `pause`, `resume` and `forget`.

use std::ffi::OsString;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use leasehold::config::parse_duration;
use leasehold::{Code, ConfigError, Period};

#[derive(Debug, Clone, Args)]
pub(crate) struct PauseArgs {
    /// A name, or a pattern in quotes; * stands for any text
    #[arg(value_name = "PATTERN")]
    pub(crate) pattern: String,
    /// How long; a pause always has an end, so that none is forgotten
    #[arg(long = "for", value_name = "DUR", value_parser = some_pause)]
    pub(crate) lasting: Duration,
    /// Why; shown to everybody who looks or is kept out
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ResumeArgs {
    /// As it was paused
    #[arg(value_name = "PATTERN")]
    pub(crate) pattern: String,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ForgetArgs {
    /// The lock
    pub(crate) name: OsString,
    /// The period, for its present slot; or a slot or text as it is marked: 2025-06-03
    #[arg(long, value_name = "PERIOD|KEY", value_parser = Period::from_str)]
    pub(crate) once: Option<Period>,
    /// The zone of the period [default: UTC]
    #[arg(long, value_name = "ZONE")]
    pub(crate) tz: Option<String>,
}

fn some_pause(text: &str) -> Result<Duration, ConfigError> {
    match parse_duration(text)? {
        Duration::ZERO => Err(ConfigError::new("0 pauses nothing")
            .code(Code::VALUE)
            .help("write one such as 2h; leasehold resume ends a pause")),
        duration => Ok(duration),
    }
}
