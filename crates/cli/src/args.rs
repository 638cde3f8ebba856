//! The flags and arguments, and their help.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};
use leasehold::ConfigError;
use leasehold::config::{Descendants, OnBusy, OnLost, Scope, StoreDown, Wait, parse_duration};

use crate::care_args::{BENCH_HELP, BenchArgs, DOCTOR_HELP, DoctorArgs};
use crate::mark_args::{ForgetArgs, PauseArgs, ResumeArgs};
use crate::options::OptionArgs;
use crate::script_args::{
    ACQUIRE_HELP, AcquireArgs, BREAK_HELP, BreakArgs, CHECK_HELP, CheckArgs, HeldArgs, KeeperArgs, Nested,
    RELEASE_HELP, RENEW_HELP, TRY_HELP, TryArgs,
};

const RUN_EXAMPLES: &str = "\
Examples:
  leasehold run report:daily -- ./report.sh           skip if another server has it
  leasehold run deploy:prod --wait 5m -- ./deploy.sh  wait for your turn
  leasehold run stock --busy fail -- ./stock.sh       exit 75 if another server has it
  leasehold run report --once daily -- ./report.sh    once a day, whoever comes first

The command ends before the lease does: TERM, then KILL, if it cannot be renewed (exit 79).
Its exit code is passed on. More: leasehold explain exit-codes";

const LIST_EXAMPLES: &str = "\
Examples:
  leasehold list                    all locks that somebody holds or waits for
  leasehold list 'order:*' stock    those that match
  leasehold list --json | jq .name";

const STATUS_EXAMPLES: &str = "\
Exit code: 0 held · 1 free · 2 paused (with -q only the exit code)

Examples:
  leasehold status report:daily
  leasehold status report:daily --json | jq .holders[0].host";

const PAUSE_EXAMPLES: &str = "\
Nobody starts a command under a lock that is paused: run skips it, with exit code 0. Who holds one may finish.

Examples:
  leasehold pause 'report:*' --for 2h --note 'ledger migration'
  leasehold resume 'report:*'";

const FORGET_EXAMPLES: &str = "\
Examples:
  leasehold forget report:daily --once daily        what was done today may be done again
  leasehold forget report:daily --once 2025-06-03   the same of another day
  leasehold forget import --once order-10017        the same of a text";

const MAIN_EXAMPLES: &str = "\
Examples:
  leasehold run report:daily -- ./report.sh     hold the lock report:daily while the command runs
  leasehold status report:daily                 who holds it
  leasehold explain                             topics, and the numbers of errors";

/// One of N servers runs it: distributed locks for commands.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, after_help = MAIN_EXAMPLES, max_term_width = 100)]
#[command(subcommand_help_heading = "Commands")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Hold a lock while a command runs; skip if somebody else has it
    #[command(
        override_usage = "leasehold run [OPTIONS] <NAME> -- <COMMAND> [ARGS]...\n       leasehold run [OPTIONS] <NAME> -c <SHELL LINE>"
    )]
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<RunArgs>),
    /// Take a lease and print its token
    #[command(after_help = ACQUIRE_HELP)]
    Acquire(AcquireArgs),
    /// Short for `acquire --no-wait`
    #[command(after_help = TRY_HELP)]
    Try(TryArgs),
    /// Am I still the holder? Exit 0 or 79, fast enough for every loop
    #[command(after_help = CHECK_HELP)]
    Check(CheckArgs),
    /// Prolong a lease
    #[command(after_help = RENEW_HELP)]
    Renew(HeldArgs),
    /// Give a lease back
    #[command(after_help = RELEASE_HELP)]
    Release(HeldArgs),
    /// All locks, one line each
    #[command(visible_aliases = ["ls", "ps"], after_help = LIST_EXAMPLES)]
    List(ListArgs),
    /// One lock in full
    #[command(after_help = STATUS_EXAMPLES)]
    Status(StatusArgs),
    /// End somebody else's lease (asks for its name)
    #[command(after_help = BREAK_HELP)]
    Break(BreakArgs),
    /// The background renewer of --while-pid; nobody types it
    #[command(hide = true)]
    Keeper(KeeperArgs),
    /// Keep everybody out for a while, such as for maintenance
    #[command(after_help = PAUSE_EXAMPLES)]
    Pause(PauseArgs),
    /// End a pause
    Resume(ResumeArgs),
    /// Drop a --once mark, so that the job may run again
    #[command(after_help = FORGET_EXAMPLES)]
    Forget(ForgetArgs),
    /// Check the store: rights, clocks, settings, and what to do about them
    #[command(after_help = DOCTOR_HELP)]
    Doctor(DoctorArgs),
    /// Measure acquire and release against the store's own limit
    #[command(after_help = BENCH_HELP)]
    Bench(BenchArgs),
    /// The settings, and where each comes from
    Config(ConfigArgs),
    /// Long text for an error code or a topic
    Explain(ExplainArgs),
}

/// Flags of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// Where locks live: a URL, or a name from the config file [env: LEASEHOLD_STORE]
    #[arg(short, long, global = true, value_name = "URL|NAME")]
    pub(crate) store: Option<String>,
    /// Put names under a prefix, for example one per environment [env: LEASEHOLD_NAMESPACE]
    #[arg(long, global = true, value_name = "NS", hide_short_help = true)]
    pub(crate) namespace: Option<String>,
    /// Refuse a store that cannot lock that widely: host or fleet [env: LEASEHOLD_SCOPE]
    #[arg(long, global = true, value_name = "SCOPE", value_parser = Scope::from_str, hide_short_help = true)]
    pub(crate) scope: Option<Scope>,
    /// Longest silence to accept from the store [default: 5s] [env: LEASEHOLD_TIMEOUT]
    #[arg(long, global = true, value_name = "DUR", value_parser = some_time, hide_short_help = true)]
    pub(crate) timeout: Option<Duration>,
    /// Read this file before the usual ones [env: LEASEHOLD_CONFIG]
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    pub(crate) config: Option<PathBuf>,
    /// Machine output, one object per line [env: LEASEHOLD_JSON]
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Colour: auto, always or never; NO_COLOR and CLICOLOR_FORCE are obeyed too
    #[arg(long, global = true, value_name = "WHEN", value_parser = Color::from_str, default_value = "auto", hide_default_value = true, hide_short_help = true)]
    pub(crate) color: Color,
    /// Errors only; -qq: nothing, exit code only
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) quiet: u8,
    /// Say what is done and why; -vv: every request to the store
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Take any name of 1 to 512 bytes without control characters
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) raw_name: bool,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RunArgs {
    /// What is locked, noun first: report:daily
    pub(crate) name: OsString,
    /// What runs, as it is: no shell, nothing changed
    #[arg(last = true, required_unless_present = "shell", value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    /// Instead of -- COMMAND: a line for /bin/sh, in quotes
    #[arg(short = 'c', value_name = "SHELL LINE", conflicts_with = "command")]
    pub(crate) shell: Option<OsString>,
    /// Wait in the queue, at most so long; without it, a busy lock is skipped
    #[arg(short, long, help_heading = "When it is busy", value_name = "DUR|forever", value_parser = Wait::from_str)]
    pub(crate) wait: Option<Wait>,
    /// Strict order of arrival: nobody who came later goes first
    #[arg(long, help_heading = "When it is busy")]
    pub(crate) fair: bool,
    /// skip: exit 0 in silence [default] · fail: exit 75
    #[arg(long, help_heading = "When it is busy", value_name = "skip|fail", value_parser = OnBusy::from_str)]
    pub(crate) busy: Option<OnBusy>,
    /// If this machine dies, others get in after this long [default: 30s]
    #[arg(long, help_heading = "How long", value_name = "DUR", value_parser = some_ttl)]
    pub(crate) ttl: Option<Duration>,
    /// Stop the command after this long (exit 124); 0: never
    #[arg(long, help_heading = "How long", value_name = "DUR", value_parser = parse_duration)]
    pub(crate) at_most: Option<Duration>,
    /// Lease lost: TERM, then KILL [default] · KILL now · only warn
    #[arg(long, help_heading = "When things go wrong", value_name = "stop|kill|ignore", hide_short_help = true, value_parser = OnLost::from_str)]
    pub(crate) on_lost: Option<OnLost>,
    /// Time between TERM and KILL, taken from inside the lease [default: 10s, at most a third of ttl]
    #[arg(long, help_heading = "When things go wrong", value_name = "DUR", value_parser = parse_duration)]
    pub(crate) grace: Option<Duration>,
    /// Store down at the start: exit 69 [default] · exit 0 · run anyway
    #[arg(long, help_heading = "When things go wrong", value_name = "fail|skip|run", value_parser = StoreDown::from_str)]
    pub(crate) store_down: Option<StoreDown>,
    /// The same lock is already held by a `run` around this one: reuse its lease [default] · exit 75
    #[arg(long, hide_short_help = true, help_heading = "When things go wrong", value_name = "reuse|fail", value_parser = Nested::from_str)]
    pub(crate) nested: Option<Nested>,
    /// Processes left behind by the command: hold the lock for them [default] · give it back · kill them
    #[arg(long, help_heading = "When things go wrong", value_name = "wait|release|kill", hide_short_help = true, value_parser = Descendants::from_str)]
    pub(crate) descendants: Option<Descendants>,
    /// Shown to people who wait or look
    #[arg(long, help_heading = "Output", value_name = "TEXT")]
    pub(crate) note: Option<String>,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ListArgs {
    /// Names or patterns; * stands for any text
    pub(crate) patterns: Vec<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct StatusArgs {
    /// The lock
    pub(crate) name: OsString,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) what: ConfigCommand,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print each setting
    Show {
        /// What holds for this lock, rather than for all
        name: Option<OsString>,
        /// Also print where each comes from
        #[arg(long)]
        origin: bool,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ExplainArgs {
    /// A code such as LH0031, or a topic; without it, the list of both
    #[arg(value_name = "CODE|TOPIC")]
    pub(crate) subject: Option<String>,
}

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

impl FromStr for Color {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        match text {
            "auto" => Ok(Self::Auto),
            "always" => Ok(Self::Always),
            "never" => Ok(Self::Never),
            _ => Err(ConfigError::new(format!("{text:?} is not a choice"))
                .code(leasehold::Code::VALUE)
                .help("write auto, always or never")),
        }
    }
}

fn some_time(text: &str) -> Result<Duration, ConfigError> {
    match parse_duration(text)? {
        Duration::ZERO => Err(too_short("0 would never hear an answer", "write one such as 5s")),
        duration => Ok(duration),
    }
}

pub(crate) fn some_ttl(text: &str) -> Result<Duration, ConfigError> {
    let ttl = parse_duration(text)?;
    if ttl < crate::plan::LEAST_TTL {
        return Err(too_short("a lease lasts at least 1s", "write one such as 30s"));
    }
    Ok(ttl)
}

fn too_short(message: &str, help: &str) -> ConfigError {
    ConfigError::new(message).code(leasehold::Code::VALUE).help(help)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_flag_has_help_and_a_key_of_the_file() {
        let grammar = Cli::command();
        let run = grammar.find_subcommand("run").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let accepted = |table: &str, key: &str| {
            let path = folder.path().join("config.toml");
            // A value of no type that any key takes: what is asked is whether the key is known.
            std::fs::write(&path, format!("{table}{key} = [[1]]\n")).unwrap();
            let flags = leasehold::config::Overrides { config: Some(path), ..Default::default() };
            let error = leasehold::config::Config::load(flags).unwrap_err();
            !error.message.contains("unknown field")
        };
        // What belongs to one call and not to a machine has no key.
        let of_one_call = [
            "config", "json", "color", "quiet", "verbose", "raw-name", "help", "version", "nested", "report",
            "dry-run", "c",
        ];
        for (table, command) in [("", &grammar), ("[run]\n", run)] {
            for flag in command.get_arguments().filter(|flag| !flag.is_positional()) {
                let name = flag.get_long().unwrap_or("c");
                assert!(
                    flag.get_help().is_some_and(|help| help.to_string().len() > 10),
                    "--{name} has no help"
                );
                if !of_one_call.contains(&name) {
                    assert!(accepted(table, &name.replace('-', "_")), "--{name} has no key in the file");
                }
            }
        }
        assert!(!accepted("[run]\n", "nothing"), "the test must be able to fail");
        for command in grammar.get_subcommands() {
            let silent = command.get_arguments().find(|argument| argument.get_help().is_none());
            assert_eq!(silent.map(clap::Arg::get_id), None, "{} has no help", command.get_name());
        }
    }

    #[test]
    fn the_grammar_is_sound() {
        Cli::command().debug_assert();
    }
}
