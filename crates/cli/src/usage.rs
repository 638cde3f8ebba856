//! From the words of the command line to arguments, or to an error that says what to type instead.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches};
use leasehold::{Code, ConfigError};

use crate::args::Cli;
use crate::dashes;
use crate::failure::Failure;

/// What the command line asks for.
pub(crate) enum Asked {
    Work(Box<Cli>),
    /// Help or the version, to be printed.
    Text(String),
}

/// Reads the command line.
pub(crate) fn parse(words: &[OsString]) -> Result<Asked, Failure> {
    let grammar = Cli::command();
    if let Some(failure) = dashes::missing(&grammar, words) {
        return Err(failure);
    }
    let error = match grammar.try_get_matches_from(words) {
        Ok(matches) => match Cli::from_arg_matches(&matches) {
            Ok(cli) => return Ok(Asked::Work(Box::new(cli))),
            Err(error) => error,
        },
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let text = error.render();
            let paint = anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never;
            Ok(Asked::Text(if paint { text.ansi().to_string() } else { text.to_string() }))
        }
        _ => Err(failure(&error)),
    }
}

fn context(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => texts.first().cloned(),
        other => Some(other.to_string()),
    }
}

fn failure(error: &clap::Error) -> Failure {
    let argument = context(error, ContextKind::InvalidArg).unwrap_or_default();
    match error.kind() {
        ErrorKind::ValueValidation => {
            let value = context(error, ContextKind::InvalidValue).unwrap_or_default();
            of_value(&argument, &value, error)
        }
        ErrorKind::UnknownArgument if argument.strip_prefix('-').is_some_and(starts_with_digit) => {
            Failure::usage(Code::DURATION, format!("{argument}: a duration cannot be negative"))
        }
        ErrorKind::UnknownArgument => {
            let what = if argument.starts_with('-') { "flag" } else { "argument" };
            let message = match context(error, ContextKind::SuggestedArg) {
                Some(near) if argument.starts_with('-') => {
                    format!("no {what} {argument}; did you mean {near}?")
                }
                _ => format!("no {what} {argument}"),
            };
            let failure = Failure::usage(Code::FLAG, message).hint(help_line(error));
            if what == "flag" {
                failure
            } else {
                failure.also("a name has no blanks; a command stands after --")
            }
        }
        ErrorKind::InvalidSubcommand => {
            let word = context(error, ContextKind::InvalidSubcommand).unwrap_or_default();
            of_command(&word, context(error, ContextKind::SuggestedSubcommand))
        }
        ErrorKind::MissingRequiredArgument if argument.contains("NAME") => {
            Failure::usage(Code::NAME, "which lock? its name is missing").hint("report:daily   noun first")
        }
        ErrorKind::InvalidValue | ErrorKind::NoEquals => {
            let flag = argument.split_whitespace().next().unwrap_or_default();
            Failure::usage(Code::VALUE, format!("{flag}: its value is missing")).hint(help_line(error))
        }
        ErrorKind::ArgumentConflict => {
            Failure::usage(Code::FLAG, format!("{argument} cannot be given twice")).hint(help_line(error))
        }
        ErrorKind::InvalidUtf8 => Failure::usage(Code::VALUE, "an argument is not UTF-8 text"),
        _ => {
            let text = error.to_string();
            let text = text.trim_start_matches("error: ").lines().next().unwrap_or_default();
            Failure::usage(Code::FLAG, text).hint(help_line(error))
        }
    }
}

fn starts_with_digit(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

fn of_value(argument: &str, value: &str, error: &clap::Error) -> Failure {
    // `--ttl <DUR>`: the name alone is what was typed.
    let name = argument.split_whitespace().next().unwrap_or(argument);
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<ConfigError>());
    match source {
        Some(wrong) => {
            let mut failure = Failure::usage(wrong.code, format!("{name} {value}: {}", wrong.message));
            failure.hint.clone_from(&wrong.help);
            failure
        }
        None => Failure::usage(Code::VALUE, format!("{name} {value}: not a value that it takes")),
    }
}

fn of_command(word: &str, near: Option<String>) -> Failure {
    let failure = |text: &str| Failure::usage(Code::FLAG, format!("no command {word}; {text}"));
    match (word, near) {
        // There is no word here for giving back what somebody else holds: that must never be a typing slip.
        ("unlock", _) => failure("a lock is given back when its command ends")
            .hint("leasehold status NAME   shows who holds it"),
        ("lock", _) => failure("did you mean run?").hint("leasehold run NAME -- COMMAND"),
        (_, Some(near)) => failure(&format!("did you mean {near}?")).hint("leasehold --help   lists all"),
        _ => Failure::usage(Code::FLAG, format!("no command {word}")).hint("leasehold --help   lists all"),
    }
}

/// Where to read on: the help of the command that was used.
fn help_line(error: &clap::Error) -> String {
    let usage = context(error, ContextKind::Usage).unwrap_or_default();
    let command = ["run", "list", "status", "pause", "resume", "forget", "config", "explain"]
        .into_iter()
        .find(|command| usage.contains(&format!("leasehold {command}")));
    command.map_or_else(
        || "leasehold --help   lists all".to_owned(),
        |command| format!("leasehold {command} --help   lists all"),
    )
}

/// Whether machine output is wanted, also where the command line cannot be read.
pub(crate) fn wants_json(words: &[OsString]) -> bool {
    let before_command = words.iter().take_while(|word| *word != OsStr::new("--"));
    before_command.into_iter().any(|word| word == OsStr::new("--json")) || json_variable()
}

/// What `LEASEHOLD_JSON` says.
pub(crate) fn json_variable() -> bool {
    std::env::var_os("LEASEHOLD_JSON")
        .is_some_and(|value| !value.is_empty() && value != "0" && value != "false")
}
