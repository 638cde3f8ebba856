//! The flags of `run` that go beyond a lock: periods, marks, reports. From what was typed to what holds.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use leasehold::config::{LockSettings, OnFail, OnceAfter, Origin, Setting, parse_duration};
use leasehold::{Code, ConfigError, Period, Zone};

use crate::exit;
use crate::failure::Failure;
use crate::report::Report;

/// The zone of periods unless another is asked for.
pub(crate) const DEFAULT_ZONE: &str = "UTC";

/// As typed.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct OptionArgs {
    /// Keep others out until this long after the start, even if it ends before [default: 0]
    #[arg(long, help_heading = "How long", value_name = "DUR", value_parser = parse_duration)]
    pub(crate) at_least: Option<Duration>,
    /// Skip if already done: hourly, daily, weekly, monthly, 15m .. or any text
    #[arg(long, help_heading = "How long", value_name = "PERIOD|KEY", value_parser = Period::from_str)]
    pub(crate) once: Option<Period>,
    /// When it counts as done [default: success]
    #[arg(long, help_heading = "How long", value_name = "success|start", value_parser = OnceAfter::from_str, hide_short_help = true)]
    pub(crate) once_after: Option<OnceAfter>,
    /// How long it is known that it was done [default: two periods, 30d for a text]
    #[arg(long, help_heading = "How long", value_name = "DUR", value_parser = some_keep, hide_short_help = true)]
    pub(crate) once_keep: Option<Duration>,
    /// Zone of hourly, daily, weekly and monthly [default: UTC]
    #[arg(long, help_heading = "How long", value_name = "ZONE", value_parser = known_zone, hide_short_help = true)]
    pub(crate) tz: Option<String>,
    /// Complain, also on skips, if no run has gone well for so long
    #[arg(long, help_heading = "When things go wrong", value_name = "DUR", value_parser = some_limit)]
    pub(crate) overdue: Option<Duration>,
    /// Command failed: --at-least holds all the same [default] · let another host try now
    #[arg(long, help_heading = "When things go wrong", value_name = "hold|release", value_parser = OnFail::from_str, hide_short_help = true)]
    pub(crate) on_fail: Option<OnFail>,
    /// Write a JSON account of this run, also if it was skipped
    #[arg(long, help_heading = "Output", value_name = "FILE|fd:N", hide_short_help = true)]
    pub(crate) report: Option<String>,
    /// Keep the command's output back, and print it only if it fails
    #[arg(long, help_heading = "Output", hide_short_help = true)]
    pub(crate) only_errors: bool,
    /// Show store, holder and the time line; run nothing
    #[arg(long, help_heading = "Output")]
    pub(crate) dry_run: bool,
}

/// What holds.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) at_least: Duration,
    pub(crate) once: Option<Once>,
    pub(crate) overdue: Option<Duration>,
    pub(crate) on_fail: OnFail,
    pub(crate) report: Option<Report>,
    pub(crate) only_errors: bool,
    pub(crate) dry_run: bool,
}

/// What is done once.
#[derive(Debug)]
pub(crate) struct Once {
    pub(crate) period: Period,
    pub(crate) zone: Zone,
    pub(crate) after: OnceAfter,
    pub(crate) keep: Duration,
}

impl Options {
    /// Flags before what the files say.
    pub(crate) fn new(args: OptionArgs, file: LockSettings) -> Result<Self, Failure> {
        let OptionArgs {
            at_least,
            once,
            once_after,
            once_keep,
            tz,
            overdue,
            on_fail,
            report,
            only_errors,
            dry_run,
        } = args;
        let once = Once::new(once, tz, &file)?.map(|once| Once {
            after: once_after.or(value(file.once_after)).unwrap_or(OnceAfter::Success),
            keep: once_keep.or(value(file.once_keep)).unwrap_or(once.keep),
            ..once
        });
        Ok(Self {
            at_least: at_least.or(value(file.at_least)).unwrap_or_default(),
            once,
            overdue: overdue.or(value(file.overdue)).filter(|limit| !limit.is_zero()),
            on_fail: on_fail.or(value(file.on_fail)).unwrap_or(OnFail::Hold),
            // A dry run must not empty the report of a real one.
            report: report.filter(|_| !dry_run).map(|to| Report::open(&to)).transpose()?,
            only_errors: only_errors || value(file.only_errors).unwrap_or(false),
            dry_run,
        })
    }
}

impl Once {
    /// The period that was asked for, if any, with its zone.
    pub(crate) fn new(
        period: Option<Period>,
        tz: Option<String>,
        file: &LockSettings,
    ) -> Result<Option<Self>, Failure> {
        let period = match (period, &file.once) {
            (Some(period), _) => period,
            (None, Some(setting)) => setting.value.parse().map_err(|error| wrong(setting, error))?,
            (None, None) => return Ok(None),
        };
        let zone_name = tz.or(file.tz.as_ref().map(|setting| setting.value.clone()));
        let zone_name = zone_name.unwrap_or_else(|| DEFAULT_ZONE.to_owned());
        let zone = match (zone_name.parse(), &file.tz) {
            (Err(error), Some(setting)) if setting.value == zone_name => return Err(wrong(setting, error)),
            (zone, _) => zone?,
        };
        let keep = period.keep();
        Ok(Some(Self { period, zone, after: OnceAfter::Success, keep }))
    }

    /// The slot that this wall clock is in.
    pub(crate) fn slot(&self, wall_micros: u64) -> String {
        self.period.slot(wall_micros, &self.zone)
    }
}

fn value<T>(setting: Option<Setting<T>>) -> Option<T> {
    setting.map(|setting| setting.value)
}

fn wrong(setting: &Setting<String>, error: ConfigError) -> Failure {
    let exit = if matches!(setting.origin, Origin::File { .. }) { exit::CONFIG } else { exit::USAGE };
    let mut failure =
        Failure::new(error.code, exit, format!("{} {}: {}", setting.origin, setting.value, error.message));
    failure.hint = error.help;
    failure
}

fn some_keep(text: &str) -> Result<Duration, ConfigError> {
    not_zero(text, "a mark that is not kept would let everybody run it again", "write one such as 30d")
}

fn some_limit(text: &str) -> Result<Duration, ConfigError> {
    not_zero(text, "0 would be overdue at once", "write more than the time between two runs, such as 26h")
}

fn not_zero(text: &str, message: &str, help: &str) -> Result<Duration, ConfigError> {
    match parse_duration(text)? {
        Duration::ZERO => Err(ConfigError::new(message).code(Code::VALUE).help(help)),
        duration => Ok(duration),
    }
}

fn known_zone(text: &str) -> Result<String, ConfigError> {
    text.parse::<Zone>().map(|_| text.to_owned())
}
