//! The configuration that the library and the command share: flags, environment and files, in this order.
//!
//! Looked for, first found wins for each key: flags, environment, the file of `--config` or `LEASEHOLD_CONFIG`,
//! `$XDG_CONFIG_HOME/leasehold/config.toml` (else `~/.config`), `/etc/leasehold/config.toml`. Nothing is ever
//! read from the current directory: cron, sudo and CI run in directories that others can write to.
//!
//! What a `[[lock]]` rule says of a name goes before what `[run]` says of all; of two rules in one file the
//! later wins, and a rule of an earlier file goes before one of a later file. A `[stores.*]` table is taken
//! whole from the first file that has it, so that the password of one file is never sent to the URL of another.

mod choice;
mod duration;
mod file;
mod lock;
mod origin;
mod pattern;
mod places;
mod store;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use choice::{Descendants, OnBusy, OnFail, OnLost, OnceAfter, Scope, StoreDown, Wait};
pub use duration::{exact, parse_duration};
use file::File;
use leasehold_core::{Code, ConfigError};
pub use lock::{DEFAULT_TTL, LockSettings};
pub use origin::{Origin, Setting};
pub use pattern::Pattern;
pub use places::default_database;
pub use store::{DEFAULT_TIMEOUT, StoreChoice};

/// A configuration file that uses every part.
pub const EXAMPLE: &str = include_str!("example.toml");

/// Reads a variable of the environment.
type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// What goes before the environment and the files: the flags of a command.
#[derive(Clone, Default)]
pub struct Overrides {
    /// A URL, or the name of a `[stores.*]` table.
    pub store: Option<String>,
    /// What goes before every name.
    pub namespace: Option<String>,
    /// How widely locks must exclude.
    pub scope: Option<Scope>,
    /// The longest silence to accept from the store.
    pub timeout: Option<Duration>,
    /// A file to read before the usual ones.
    pub config: Option<PathBuf>,
}

impl fmt::Debug for Overrides {
    /// The store may be a URL with a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store: _, namespace, scope, timeout, config } = self;
        f.debug_struct("Overrides")
            .field("namespace", namespace)
            .field("scope", scope)
            .field("timeout", timeout)
            .field("config", config)
            .finish_non_exhaustive()
    }
}

/// All that was configured.
#[derive(Clone)]
pub struct Config {
    flags: Overrides,
    env: Overrides,
    files: Vec<File>,
    /// Where the default database lies, or why nobody can tell. Found out now, since it is of the environment.
    database: Result<PathBuf, ConfigError>,
}

impl Config {
    /// Reads the environment of this process and the files.
    ///
    /// # Errors
    ///
    /// A variable or a file that cannot be used, or cannot be read. A configuration in doubt is never passed
    /// over: the next one would lock somewhere else.
    pub fn load(flags: Overrides) -> Result<Self, ConfigError> {
        Self::load_with(flags, &|name| std::env::var_os(name))
    }

    fn load_with(flags: Overrides, lookup: Lookup<'_>) -> Result<Self, ConfigError> {
        let env = from_environment(lookup)?;
        let mut files = Vec::new();
        if let Some(path) = flags.config.as_ref().or(env.config.as_ref()) {
            let Some(file) = File::read(path)? else {
                let message = format!("there is no configuration file {}", path.display());
                return Err(ConfigError::new(message)
                    .help("it is named by --config or LEASEHOLD_CONFIG; write one, or leave that out"));
            };
            files.push(file);
        }
        for path in places::files(lookup) {
            files.extend(File::read(&path)?);
        }
        Ok(Self { flags, env, files, database: places::database(lookup) })
    }

    /// The files that were found, the first to be asked first.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| file.path.as_path())
    }

    /// What goes before every name; empty for nothing.
    #[must_use]
    pub fn namespace(&self) -> Setting<String> {
        let by_file = |file: &File| file.contents.namespace.clone();
        let found =
            self.first(|flags| flags.namespace.clone(), ("--namespace", "LEASEHOLD_NAMESPACE"), by_file);
        found("namespace").unwrap_or(Setting::default(String::new()))
    }

    /// How widely locks must exclude, if anybody said so.
    #[must_use]
    pub fn scope(&self) -> Option<Setting<Scope>> {
        let found =
            self.first(|flags| flags.scope, ("--scope", "LEASEHOLD_SCOPE"), |file| file.contents.scope);
        found("scope")
    }

    /// The first who says something: flags, environment, files.
    fn first<'a, T>(
        &'a self,
        of: impl Fn(&Overrides) -> Option<T> + 'a,
        (flag, variable): (&'static str, &'static str),
        in_file: impl Fn(&File) -> Option<T> + 'a,
    ) -> impl Fn(&str) -> Option<Setting<T>> + 'a {
        move |key| {
            let by = |value: Option<T>, origin| value.map(|value| Setting { value, origin });
            by(of(&self.flags), Origin::Flag(flag))
                .or_else(|| by(of(&self.env), Origin::Env(variable)))
                .or_else(|| {
                    self.files.iter().find_map(|file| {
                        let origin = Origin::File { path: file.path.clone(), key: key.to_owned() };
                        by(in_file(file), origin)
                    })
                })
        }
    }
}

impl fmt::Debug for Config {
    /// The files alone: the rest may hold passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("files", &self.files().collect::<Vec<_>>()).finish_non_exhaustive()
    }
}

fn from_environment(lookup: Lookup<'_>) -> Result<Overrides, ConfigError> {
    let text = |name: &str| match lookup(name).map(OsString::into_string) {
        Some(Ok(text)) if text.is_empty() => Ok(None),
        Some(Ok(text)) => Ok(Some(text)),
        Some(Err(_)) => Err(ConfigError::new(format!("{name} is not UTF-8 text")).code(Code::VALUE)),
        None => Ok(None),
    };
    let named = |name: &'static str| move |error| said_by(&name, error);
    let timeout = text("LEASEHOLD_TIMEOUT")?.map(|text| parse_duration(&text)).transpose();
    let scope = text("LEASEHOLD_SCOPE")?.map(|text| text.parse()).transpose();
    Ok(Overrides {
        store: text("LEASEHOLD_STORE")?,
        namespace: text("LEASEHOLD_NAMESPACE")?,
        scope: scope.map_err(named("LEASEHOLD_SCOPE"))?,
        timeout: timeout.map_err(named("LEASEHOLD_TIMEOUT"))?,
        config: lookup("LEASEHOLD_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from),
    })
}

/// An error that starts with who said what is wrong.
fn said_by(who: &dyn fmt::Display, mut error: ConfigError) -> ConfigError {
    error.message = format!("{who}: {}", error.message);
    error
}

#[cfg(test)]
mod tests;
