//! From the global flags to the configuration, and from words to names.

use std::ffi::OsStr;

use leasehold::config::{Config, Overrides};
use leasehold::{Code, LockName};

use crate::args::{Color, Global};
use crate::failure::Failure;
use crate::talk::Talk;
use crate::usage;

/// The configuration under these flags.
pub(crate) fn config(global: &Global) -> Result<Config, Failure> {
    let Global { store, namespace, scope, timeout, config, .. } = global.clone();
    Ok(Config::load(Overrides { store, namespace, scope, timeout, config })?)
}

/// How to speak under these flags.
pub(crate) fn talk(global: &Global) -> Talk {
    let stderr = std::io::stderr();
    let small = |count: u8| i8::try_from(count).unwrap_or(i8::MAX);
    let paint = match global.color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => anstream::AutoStream::choice(&stderr) != anstream::ColorChoice::Never,
    };
    Talk {
        level: small(global.verbose).saturating_sub(small(global.quiet)),
        tty: rustix::termios::isatty(&stderr),
        json: global.json || usage::json_variable(),
        paint,
    }
}

/// A lock name as it was typed.
pub(crate) fn name(word: &OsStr, raw: bool) -> Result<LockName, Failure> {
    let Some(text) = word.to_str() else {
        let message = format!("{:?} is not a lock name: it is not UTF-8 text", word.to_string_lossy());
        return Err(Failure::usage(Code::NAME, message).hint("report:daily"));
    };
    let parsed = if raw { LockName::parse(text) } else { LockName::parse_plain(text) };
    parsed.map_err(|error| {
        let fits = !raw && LockName::parse(text).is_ok() && !text.starts_with("lh:");
        let failure = Failure::from(error);
        if fits { failure.also("--raw-name   takes it as it is") } else { failure }
    })
}
