//! One configuration file: its keys, and how it is read.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use leasehold_core::{Code, ConfigError, StoreUrl};
use serde::Deserialize;
use serde::de::{self, Deserializer};

use super::choice::{Descendants, OnBusy, OnFail, OnLost, OnceAfter, Scope, StoreDown, Wait};
use super::duration::Written;
use super::pattern::Pattern;
use super::said_by;

/// A file larger than this is not a configuration.
const MOST_BYTES: u64 = 1 << 20;

/// What stands in one file. An unknown key is an error that lists the known ones: a misspelt `ttl` must not be
/// a silent default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Contents {
    pub(super) store: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) scope: Option<Scope>,
    pub(super) timeout: Option<Written>,
    /// The tables are called `stores`, since TOML has no key that is both a text and a table.
    #[serde(default)]
    pub(super) stores: BTreeMap<String, StoreTable>,
    #[serde(default)]
    pub(super) run: Terms,
    #[serde(default, rename = "lock")]
    pub(super) rules: Vec<Rule>,
}

/// A store with a name.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoreTable {
    pub(super) url: String,
    pub(super) password_file: Option<PathBuf>,
    pub(super) password_env: Option<String>,
    pub(super) timeout: Option<Written>,
}

impl std::fmt::Debug for StoreTable {
    /// The URL may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { url: _, password_file, password_env, timeout } = self;
        f.debug_struct("StoreTable")
            .field("password_file", password_file)
            .field("password_env", password_env)
            .field("timeout", timeout)
            .finish_non_exhaustive()
    }
}

/// How a lock is taken: the keys of `[run]`, and of each `[[lock]]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Terms {
    pub(super) ttl: Option<Written>,
    pub(super) wait: Option<Wait>,
    pub(super) fair: Option<bool>,
    pub(super) grace: Option<Written>,
    pub(super) busy: Option<OnBusy>,
    pub(super) store_down: Option<StoreDown>,
    pub(super) note: Option<String>,
    pub(super) at_least: Option<Written>,
    pub(super) once: Option<String>,
    pub(super) once_after: Option<OnceAfter>,
    pub(super) once_keep: Option<Written>,
    pub(super) tz: Option<String>,
    pub(super) overdue: Option<Written>,
    pub(super) on_fail: Option<OnFail>,
    pub(super) only_errors: Option<bool>,
    pub(super) on_lost: Option<OnLost>,
    pub(super) descendants: Option<Descendants>,
    pub(super) at_most: Option<Written>,
}

/// A rule for all names that match.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    #[serde(rename = "match")]
    pub(super) pattern: Pattern,
    pub(super) store: Option<String>,
    // Written out rather than flattened into `Terms`: serde cannot refuse unknown keys through a flatten.
    ttl: Option<Written>,
    wait: Option<Wait>,
    fair: Option<bool>,
    grace: Option<Written>,
    busy: Option<OnBusy>,
    store_down: Option<StoreDown>,
    note: Option<String>,
    at_least: Option<Written>,
    once: Option<String>,
    once_after: Option<OnceAfter>,
    once_keep: Option<Written>,
    tz: Option<String>,
    overdue: Option<Written>,
    on_fail: Option<OnFail>,
    only_errors: Option<bool>,
    on_lost: Option<OnLost>,
    descendants: Option<Descendants>,
    at_most: Option<Written>,
}

impl Rule {
    pub(super) fn terms(&self) -> Terms {
        let Self {
            pattern: _,
            store: _,
            ttl,
            wait,
            fair,
            grace,
            busy,
            store_down,
            note,
            at_least,
            once,
            once_after,
            once_keep,
            tz,
            overdue,
            on_fail,
            only_errors,
            on_lost,
            descendants,
            at_most,
        } = self.clone();
        Terms {
            ttl,
            wait,
            fair,
            grace,
            busy,
            store_down,
            note,
            at_least,
            once,
            once_after,
            once_keep,
            tz,
            overdue,
            on_fail,
            only_errors,
            on_lost,
            descendants,
            at_most,
        }
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(|error| de::Error::custom(error.message))
    }
}

/// A file that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) contents: Contents,
}

impl File {
    /// Reads a file; `None` if there is none.
    ///
    /// A file that is there and cannot be read is an error: passing over it would quietly lock somewhere else.
    pub(super) fn read(path: &Path) -> Result<Option<Self>, ConfigError> {
        let shown = path.display();
        let unreadable = |error: std::io::Error| {
            ConfigError::new(format!("cannot read the configuration file {shown}: {error}"))
                .help("let this user read it, or take it away; nothing runs while it is unknown what it says")
        };
        let file = match std::fs::File::open(path) {
            Ok(file) => file,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(unreadable(error)),
        };
        // Asked of the open file, not of the path: nobody can swap it in between.
        let mode = rustix::fs::fstat(&file).map_err(|error| unreadable(error.into()))?.st_mode;
        let mut bytes = Vec::new();
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(ConfigError::new(format!("the configuration file {shown} is over 1 MiB")));
        }
        let text = String::from_utf8(bytes)
            .map_err(|_| ConfigError::new(format!("the configuration file {shown} is not UTF-8 text")))?;
        let contents = parse(&text).map_err(|error| {
            let place = error.line.map_or_else(String::new, |line| format!(" line {line}"));
            let fault = ConfigError::new(format!("{shown}{place}: {}", error.message));
            match error.help {
                Some(help) => fault.help(help),
                None => fault.help("leasehold explain config   lists all keys"),
            }
        })?;
        contents.check(path, mode & 0o004 != 0)?;
        Ok(Some(Self { path: path.to_owned(), contents }))
    }
}

struct ParseFault {
    line: Option<usize>,
    message: String,
    help: Option<String>,
}

fn parse(text: &str) -> Result<Contents, ParseFault> {
    toml::from_str(text).map_err(|error| {
        // Only the message and the line: the error's own print repeats the line, which may hold a password.
        let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let old_table = text.lines().any(|line| line.trim_start().starts_with("[store."));
        let help = old_table
            .then(|| "tables of stores are written [stores.NAME]; store = \"NAME\" picks one".to_owned());
        ParseFault { line, message: error.message().trim().replace('\n', "; "), help }
    })
}

impl Contents {
    /// What the types alone cannot say.
    fn check(&self, path: &Path, read_by_all: bool) -> Result<(), ConfigError> {
        let shown = path.display();
        for (name, table) in &self.stores {
            let wrong = |message: String| ConfigError::new(format!("{shown} [stores.{name}]: {message}"));
            if name.contains(':') || name.is_empty() {
                return Err(wrong("a store's name has no colon, or it would be taken for a URL".to_owned()));
            }
            let url = url_from(path, &format!("[stores.{name}]"), &table.url)?;
            if url.password.is_some() && read_by_all {
                return Err(wrong("it has a password, and all users may read the file".to_owned())
                    .code(Code::READABLE_SECRET)
                    .help(format!("chmod o-r {shown}   or move the password to a password_file")));
            }
            let passwords =
                [url.password.is_some(), table.password_file.is_some(), table.password_env.is_some()];
            if passwords.into_iter().filter(|given| *given).count() > 1 {
                return Err(wrong("the password is given twice".to_owned()).help("give it once"));
            }
            if let Some(file) = &table.password_file
                && !file.is_absolute()
            {
                return Err(wrong(format!("password_file {} is a relative path", file.display()))
                    .help("write it from / on: nothing is read from the current directory"));
            }
        }
        let store = self.store.as_deref().map(|text| ("store", text));
        let of_rules =
            self.rules.iter().filter_map(|rule| rule.store.as_deref().map(|text| ("[[lock]] store", text)));
        for (key, text) in store.into_iter().chain(of_rules).filter(|(_, text)| text.contains(':')) {
            let url = url_from(path, key, text)?;
            if url.password.is_some() && read_by_all {
                let message = format!("{shown} {key}: it has a password, and all users may read the file");
                return Err(ConfigError::new(message)
                    .code(Code::READABLE_SECRET)
                    .help(format!("chmod o-r {shown}   or use a [stores.NAME] with a password_file")));
            }
        }
        Ok(())
    }
}

/// A URL of a file. A relative path in it would mean another place in every directory.
fn url_from(path: &Path, key: &str, text: &str) -> Result<StoreUrl, ConfigError> {
    let shown = path.display();
    let url: StoreUrl =
        text.parse().map_err(|error| said_by(&format_args!("{shown} {key}"), ConfigError::from(error)))?;
    let relative = url.hosts.is_empty() && !url.path.is_empty() && !url.path.starts_with('/');
    if relative {
        return Err(ConfigError::new(format!("{shown} {key}: the path {} is relative", url.path))
            .code(Code::URL)
            .help("write it from / on: nothing is read from the current directory"));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn fault(text: &str) -> String {
        let fault = parse(text).err().unwrap();
        format!("{:?} {} {}", fault.line, fault.message, fault.help.unwrap_or_default())
    }

    #[test]
    fn the_example_of_the_documentation_is_read() {
        let contents = parse(crate::config::EXAMPLE).ok().unwrap();
        assert_eq!(contents.store.as_deref(), Some("main"));
        assert_eq!(contents.stores.len(), 2);
        assert_eq!(contents.rules[1].pattern.as_str(), "payment:*");
        assert_eq!(contents.rules[0].terms().wait, Some(Wait::Forever));
    }

    #[test]
    fn wrong_keys_and_values_name_the_line_and_the_known_ones() {
        let said = fault("namespace = 'prod'\nstoer = 'x'\n");
        assert!(said.contains("Some(2)") && said.contains("stoer") && said.contains("`store`"), "{said}");
        let said = fault("[run]\nttl = 30\n");
        assert!(said.contains("30 what? write 30s, 30m or 30h"), "{said}");
        let said = fault("[[lock]]\nttl = '30s'\n");
        assert!(said.contains("match"), "{said}");
        let said = fault("[[lock]]\nmatch = 'a'\nat_lest = '3s'\n");
        assert!(said.contains("at_lest") && said.contains("`ttl`"), "{said}");
        let said = fault("scope = 'world'");
        assert!(said.contains("write host or fleet"), "{said}");
        let said = fault("store = 'main'\n[store.main]\nurl = 'memory:'\n");
        assert!(said.contains("[stores.NAME]"), "{said}");
        let said = fault("[stores.a]\nurl = 'redis://u:hunter2@h'\ncolour = 'red'\n");
        assert!(!said.contains("hunter2"), "{said}");
    }

    #[test]
    fn a_password_that_all_may_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        let write = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        write("[stores.main]\nurl = 'redis://u:hunter2@h'\n", 0o644);
        let error = File::read(&path).unwrap_err();
        assert_eq!(error.code, Code::READABLE_SECRET);
        assert!(!format!("{error} {error:?}").contains("hunter2"));
        write("store = 'redis://u:hunter2@h'\n", 0o644);
        assert_eq!(File::read(&path).unwrap_err().code, Code::READABLE_SECRET);
        write("store = 'redis://u:hunter2@h'\n", 0o640);
        assert!(File::read(&path).unwrap().is_some());
        for bad in [
            "[stores.a]\nurl = 'sqlite:locks.db'\n",
            "[stores.a]\nurl = 'redis://h'\npassword_file = 'secret'\n",
            "[stores.a]\nurl = 'redis://u:p@h'\npassword_env = 'P'\n",
            "store = 'redis://h?colour=red'\n",
        ] {
            write(bad, 0o600);
            assert!(File::read(&path).is_err(), "{bad}");
        }
        assert!(File::read(&folder.path().join("none")).unwrap().is_none());
    }
}
