//! Which store: from a URL or a name to a URL that can be connected to.

use std::fmt;
use std::time::Duration;

use leasehold_core::{Code, ConfigError, Scheme, Secret, StoreUrl};

use super::file::{File, StoreTable};
use super::{Config, Origin, Setting, said_by};

/// The longest silence that is accepted from a store unless something else was said.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// A password is at most so long; more is the wrong file.
const MOST_PASSWORD_BYTES: usize = 4096;

/// The store that was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreChoice {
    /// Its URL, with its password; printing it shows none.
    pub url: StoreUrl,
    /// The `[stores.*]` table that it comes from, if one.
    pub name: Option<String>,
    /// Who chose it.
    pub origin: Origin,
    /// The longest silence to accept from it.
    pub timeout: Setting<Duration>,
}

impl StoreChoice {
    /// Whether nobody chose a store, so that it is the file of this machine.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.origin == Origin::Default
    }
}

impl fmt::Display for StoreChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

impl Config {
    /// The store for this name, as it is typed (before the namespace); for no name in particular, the usual one.
    ///
    /// # Errors
    ///
    /// A name that no file knows, a URL that cannot be used, a password that cannot be read.
    pub fn store(&self, name: Option<&str>) -> Result<StoreChoice, ConfigError> {
        let Setting { value, origin } = self.store_text(name);
        if let Some((file, table)) = self.store_table(&value) {
            return self.choice_of(&value, file, table, origin);
        }
        if !value.contains(':') {
            let known: Vec<_> = self.files.iter().flat_map(|file| file.contents.stores.keys()).collect();
            let known = known.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(ConfigError::new(format!("no store is called {value:?} (from {origin})")).help(
                if known.is_empty() {
                    "write a URL such as sqlite:/path/to/file, or add a [stores.*] table to a configuration file".to_owned()
                } else {
                    format!("known: {known}; or write a URL such as sqlite:/path/to/file")
                },
            ));
        }
        let mut url: StoreUrl =
            value.parse().map_err(ConfigError::from).map_err(|error| said_by(&origin, error))?;
        self.settle(&mut url)?;
        Ok(StoreChoice { url, name: None, timeout: self.timeout(None)?, origin })
    }

    /// `sqlite:` alone means the default file.
    fn settle(&self, url: &mut StoreUrl) -> Result<(), ConfigError> {
        if url.scheme == Scheme::Sqlite && url.path.is_empty() {
            let path = self.database.clone()?;
            let Some(path) = path.to_str() else {
                return Err(ConfigError::new(format!("the path {} is not UTF-8 text", path.display()))
                    .help("set LEASEHOLD_STORE, for example sqlite:/var/lib/app/locks.db"));
            };
            url.path = path.to_owned();
        }
        Ok(())
    }

    /// Whether a rule chooses for this name what nobody chose for all; asks no file.
    pub(crate) fn names_a_store_for(&self, name: &str) -> bool {
        self.store_text(Some(name)).value != self.store_text(None).value
    }

    fn store_text(&self, name: Option<&str>) -> Setting<String> {
        let found = self.first(|flags| flags.store.clone(), ("--store", "LEASEHOLD_STORE"), |_| None);
        if let Some(found) = found("store") {
            return found;
        }
        let setting = |file: &File, key: &str, value: &str| Setting {
            value: value.to_owned(),
            origin: Origin::File { path: file.path.clone(), key: key.to_owned() },
        };
        let by_rule = name.and_then(|name| {
            self.rules_for(name).find_map(|(file, rule)| {
                let value = rule.store.as_deref()?;
                Some(setting(file, &format!("[[lock]] {:?} store", rule.pattern.as_str()), value))
            })
        });
        let by_file = || {
            self.files.iter().find_map(|file| Some(setting(file, "store", file.contents.store.as_deref()?)))
        };
        by_rule.or_else(by_file).unwrap_or_else(|| Setting::default("sqlite:".to_owned()))
    }

    fn store_table(&self, name: &str) -> Option<(&File, &StoreTable)> {
        self.files.iter().find_map(|file| Some((file, file.contents.stores.get(name)?)))
    }

    fn choice_of(
        &self,
        name: &str,
        file: &File,
        table: &StoreTable,
        origin: Origin,
    ) -> Result<StoreChoice, ConfigError> {
        let mut url: StoreUrl = table.url.parse().map_err(ConfigError::from)?;
        let timeout = self.timeout(Some((name, file, table)))?;
        let shown = file.path.display();
        let password =
            password(table).map_err(|error| said_by(&format_args!("{shown} [stores.{name}]"), error))?;
        if password.is_some() {
            if url.hosts.is_empty() {
                let message = format!("{shown} [stores.{name}]: {}: takes no password", url.scheme.as_str());
                return Err(ConfigError::new(message).code(Code::URL).help("leave the password out"));
            }
            url.password = password;
        }
        self.settle(&mut url)?;
        Ok(StoreChoice { url, name: Some(name.to_owned()), origin, timeout })
    }

    fn timeout(&self, table: Option<(&str, &File, &StoreTable)>) -> Result<Setting<Duration>, ConfigError> {
        let pair = ("--timeout", "LEASEHOLD_TIMEOUT");
        let by_hand = self.first(|flags| flags.timeout, pair, |_| None)("timeout");
        let by_table = || {
            let (name, file, table) = table?;
            let key = format!("[stores.{name}] timeout");
            Some(Setting { value: table.timeout?.0, origin: Origin::File { path: file.path.clone(), key } })
        };
        let by_file =
            || self.first(|_| None, pair, |file| file.contents.timeout.map(|timeout| timeout.0))("timeout");
        let found = by_hand.or_else(by_table).or_else(by_file).unwrap_or(Setting::default(DEFAULT_TIMEOUT));
        if found.value.is_zero() {
            return Err(said_by(
                &found.origin,
                ConfigError::new("a timeout of 0 would never hear an answer")
                    .code(Code::VALUE)
                    .help("write one such as 5s"),
            ));
        }
        Ok(found)
    }
}

/// The password of a table, from wherever it says.
fn password(table: &StoreTable) -> Result<Option<Secret>, ConfigError> {
    if let Some(path) = &table.password_file {
        let text = std::fs::read_to_string(path).map_err(|error| {
            ConfigError::new(format!("cannot read password_file {}: {error}", path.display()))
                .help("let this user read it")
        })?;
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let text = text.strip_suffix('\r').unwrap_or(text);
        if text.is_empty() || text.len() > MOST_PASSWORD_BYTES || text.contains(['\n', '\0']) {
            let message = format!("password_file {} does not hold one line of text", path.display());
            return Err(ConfigError::new(message));
        }
        return Ok(Some(Secret::new(text)));
    }
    let Some(variable) = &table.password_env else { return Ok(None) };
    match std::env::var(variable) {
        Ok(text) if !text.is_empty() => Ok(Some(Secret::new(text))),
        _ => Err(ConfigError::new(format!("password_env: the variable {variable} is not set"))),
    }
}
