//! `run` without the `--` before its command: found before anything else, and answered with the corrected line.
//!
//! `--` is required: a wrapper that guesses where the command starts swallows its flags, or lets it have ours.

use std::ffi::{OsStr, OsString};

use clap::{Arg, Command};
use leasehold::Code;

use crate::failure::Failure;
use crate::human::command_line;

/// The error for `leasehold run NAME COMMAND ..`, if that is what was typed.
pub(crate) fn missing(grammar: &Command, words: &[OsString]) -> Option<Failure> {
    let run = grammar.find_subcommand("run")?;
    let flags = Flags { arguments: grammar.get_arguments().chain(run.get_arguments()).collect() };
    let at_run = flags.positional(words, 1)?;
    if words.get(at_run)? != "run" {
        return None;
    }
    let at_name = flags.positional(words, at_run + 1)?;
    let dashes = words.iter().position(|word| word == "--");
    if flags.shell_line(&words[at_name + 1..]) || flags.shell_line(&words[at_run + 1..at_name]) {
        return None;
    }
    let Some(at_command) = flags.positional(words, at_name + 1) else {
        let nothing_follows = match dashes {
            Some(at) => at + 1 == words.len(),
            None => flags.all_known(&words[at_name + 1..]),
        };
        return nothing_follows.then(|| nothing_to_run(&words[..dashes.unwrap_or(words.len())]));
    };
    if dashes.is_some() {
        // A word too many before it, such as a name with a blank: that is another error too.
        return None;
    }
    let typed = command_line(words.iter().map(OsString::as_os_str));
    let before = words[1..at_command].iter().map(OsString::as_os_str);
    let after = words[at_command..].iter().map(OsString::as_os_str);
    let meant = command_line(before.chain([OsStr::new("--")]).chain(after));
    let typed = typed.split_once(' ').map_or("", |(_, rest)| rest);
    Some(
        Failure::usage(Code::DASHES, "where does the command start?")
            .row("you typed", format!("leasehold {typed}"))
            .row("you mean", format!("leasehold {meant}")),
    )
}

fn nothing_to_run(words: &[OsString]) -> Failure {
    let typed = command_line(words[1..].iter().map(OsString::as_os_str));
    Failure::usage(Code::DASHES, "what should run? there is no command")
        .row("you typed", format!("leasehold {typed}"))
        .row("you mean", format!("leasehold {typed} -- COMMAND"))
}

/// Which flags take a value, so that a value is not taken for a name.
struct Flags<'a> {
    arguments: Vec<&'a Arg>,
}

impl Flags<'_> {
    /// The first word from `from` on, before any `--`, that is neither a flag nor the value of one. `None` also
    /// when an unknown flag comes first: that is another error.
    fn positional(&self, words: &[OsString], from: usize) -> Option<usize> {
        let mut at = from;
        while let Some(word) = words.get(at) {
            let text = word.to_string_lossy();
            if text == "--" {
                return None;
            }
            if !text.starts_with('-') || text.len() == 1 {
                return Some(at);
            }
            let takes = self.takes_next(&text)?;
            if takes && words.get(at + 1).is_some_and(|next| next == "--") {
                // Its value is missing: that is another error.
                return None;
            }
            at += 1 + usize::from(takes);
        }
        None
    }

    /// Whether `-c` is among these words, so that nothing need follow.
    fn shell_line(&self, words: &[OsString]) -> bool {
        let mut at = 0;
        while let Some(word) = words.get(at) {
            let text = word.to_string_lossy();
            if text == "-c" || (text.starts_with("-c") && text.len() > 2) {
                return true;
            }
            match self.takes_next(&text) {
                Some(takes) if text.starts_with('-') && text != "--" => at += 1 + usize::from(takes),
                _ => return false,
            }
        }
        false
    }

    /// Whether all these words are flags we know, with their values.
    fn all_known(&self, words: &[OsString]) -> bool {
        let mut at = 0;
        while let Some(word) = words.get(at) {
            let text = word.to_string_lossy();
            match self.takes_next(&text) {
                Some(_) if matches!(&*text, "-h" | "--help" | "-V" | "--version") => return false,
                Some(takes) if text.starts_with('-') => at += 1 + usize::from(takes),
                _ => return false,
            }
        }
        // A flag whose value is missing is another error.
        at == words.len()
    }

    /// Whether the word after this flag is its value; `None` for a flag we do not know.
    fn takes_next(&self, text: &str) -> Option<bool> {
        if let Some(long) = text.strip_prefix("--") {
            let (name, value) = long.split_once('=').map_or((long, false), |(name, _)| (name, true));
            if name == "help" || name == "version" {
                return Some(false);
            }
            let flag = self.arguments.iter().find(|flag| flag.get_long() == Some(name))?;
            return Some(flag.get_action().takes_values() && !value);
        }
        let mut letters = text.strip_prefix('-')?.chars();
        while let Some(letter) = letters.next() {
            if letter == 'h' || letter == 'V' {
                return Some(false);
            }
            let flag = self.arguments.iter().find(|flag| flag.get_short() == Some(letter))?;
            if flag.get_action().takes_values() {
                return Some(letters.next().is_none());
            }
        }
        Some(false)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn said(line: &str) -> Option<String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        missing(&crate::args::Cli::command(), &words).map(|failure| failure.text(false))
    }

    #[test]
    fn the_corrected_line_is_printed() {
        let text = said("leasehold run report:daily --ttl 2m ./report.sh --fast").unwrap();
        assert!(
            text.contains("you mean    leasehold run report:daily --ttl 2m -- ./report.sh --fast"),
            "{text}"
        );
        let text = said("leasehold -s memory: run -qw5m a -v --ttl=2m b c").unwrap();
        assert!(text.contains("leasehold -s memory: run -qw5m a -v --ttl=2m -- b c"), "{text}");
        let text = said("leasehold run demo").unwrap();
        assert!(text.contains("leasehold run demo -- COMMAND"), "{text}");
        assert!(said("leasehold run demo --").unwrap().contains("leasehold run demo -- COMMAND"));
    }

    #[test]
    fn a_right_line_and_other_mistakes_are_left_alone() {
        for fine in [
            "leasehold",
            "leasehold list a b",
            "leasehold run a -- b c",
            "leasehold run a -c b",
            "leasehold run a --ttl 2m -c b",
            "leasehold run -c b a",
            "leasehold run a --ttl 2m -- b",
            "leasehold run --wait 5m a -- b",
            "leasehold run a --at-lest 3s b",
            "leasehold run a --ttl",
            "leasehold run a --ttl -- b",
            "leasehold run a b -- c",
            "leasehold run a --help",
            "leasehold run -h",
            "leasehold run -- b",
        ] {
            assert_eq!(said(fine), None, "{fine}");
        }
    }
}
