//! From a store URL to settings.

use std::path::{Path, PathBuf};

use leasehold_core::{Code, ConfigError, Result, Scheme, StoreUrl};
use rustix::fs::Gid;

/// Where the file is, and who may use it.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The file, as an absolute path.
    pub(crate) path: PathBuf,
    /// Whether it is where the file is when nobody says, so that we make its directories.
    pub(crate) by_default: bool,
    /// The group that shares it.
    pub(crate) group: Option<Group>,
}

/// A group of users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) gid: Gid,
}

impl Settings {
    pub(crate) fn parse(url: &StoreUrl) -> Result<Self> {
        // Destructured in full: a new part of a URL must not be passed over in silence.
        let StoreUrl { scheme, user: _, password: _, hosts: _, path, options } = url;
        if *scheme != Scheme::Sqlite {
            return Err(wrong(format!("{url} is not the URL of a SQLite file"), "sqlite:/path/to/file"));
        }
        let group = options.get("group").map(|name| find_group(name)).transpose()?;
        let path = if path.is_empty() { default_path()? } else { PathBuf::from(path) };
        let by_default = default_path().is_ok_and(|default| default == path);
        let directory = path.as_os_str().as_encoded_bytes().ends_with(b"/");
        if directory || path.file_name().is_none() {
            return Err(wrong(format!("{url} names a directory"), "sqlite:/path/to/file"));
        }
        // The working directory may change later; the file must not.
        let path = std::path::absolute(&path)
            .map_err(|error| wrong(format!("{}: {error}", path.display()), "give an absolute path"))?;
        Ok(Self { path, by_default, group })
    }
}

fn wrong(message: String, help: &str) -> leasehold_core::Error {
    ConfigError::new(message).code(Code::URL).help(help).into()
}

/// Where the file is when nobody says.
fn default_path() -> Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok("/var/lib/leasehold/leasehold.db".into());
    }
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
    match state {
        Some(state) => Ok(state.join("leasehold/leasehold.db")),
        None => Err(wrong(
            "neither XDG_STATE_HOME nor HOME is set, so there is no place for the default file".to_owned(),
            "name a file: sqlite:/path/to/file",
        )),
    }
}

fn find_group(name: &str) -> Result<Group> {
    let table = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let gid = gid_in(&table, name);
    let Some(gid) = gid else {
        return Err(wrong(
            format!("there is no group {name:?} in /etc/group"),
            "create it with `groupadd`, or give its number",
        ));
    };
    Ok(Group { name: name.to_owned(), gid: Gid::from_raw(gid) })
}

/// The number of a group by its name, or the number itself.
fn gid_in(table: &str, name: &str) -> Option<u32> {
    let by_name = table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let found = fields.next()? == name;
        found.then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    by_name.or_else(|| name.parse().ok())
}

/// A path beside the file: `<file><suffix>`.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings> {
        Settings::parse(&text.parse().unwrap())
    }

    #[test]
    fn relative_paths_become_absolute_and_directories_are_refused() {
        let settings = parse("sqlite:locks.db").unwrap();
        assert!(settings.path.is_absolute() && settings.path.ends_with("locks.db"));
        assert!(!settings.by_default);
        for bad in ["sqlite:/", "sqlite:/tmp/", "sqlite:..", "memory:"] {
            assert_eq!(parse(bad).unwrap_err().code(), Code::URL, "{bad}");
        }
    }

    #[test]
    fn without_a_path_the_default_is_used() {
        let settings = parse("sqlite:").unwrap();
        assert!(settings.by_default && settings.path.ends_with("leasehold/leasehold.db"));
    }

    #[test]
    fn groups_are_found_by_name_or_number() {
        let table = "root:x:0:\nlocks:x:990:me,you\n";
        assert_eq!(gid_in(table, "locks"), Some(990));
        assert_eq!(gid_in(table, "990"), Some(990));
        assert_eq!(gid_in(table, "lock"), None);
        assert!(parse("sqlite:x.db?group=no-such-group-here").is_err());
    }
}
