//! Where the configuration and the default database lie.

use std::path::PathBuf;

use leasehold_core::ConfigError;

use super::Lookup;

/// The configuration of the whole machine.
const OF_THE_MACHINE: &str = "/etc/leasehold/config.toml";
/// Where root keeps its locks: one place for all cron jobs of the machine, whatever their `HOME`.
const OF_ROOT: &str = "/var/lib/leasehold/leasehold.db";

/// An absolute path of the environment. A relative one is passed over, as the XDG rules say: it would be read
/// from the current directory.
fn absolute(lookup: Lookup<'_>, name: &str) -> Option<PathBuf> {
    lookup(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// The usual files, the first to be asked first.
pub(super) fn files(lookup: Lookup<'_>) -> Vec<PathBuf> {
    let of_the_user = absolute(lookup, "XDG_CONFIG_HOME")
        .or_else(|| absolute(lookup, "HOME").map(|home| home.join(".config")));
    let of_the_user = of_the_user.map(|folder| folder.join("leasehold/config.toml"));
    of_the_user.into_iter().chain([PathBuf::from(OF_THE_MACHINE)]).collect()
}

/// Where the default database lies for this user and environment.
pub(super) fn database(lookup: Lookup<'_>) -> Result<PathBuf, ConfigError> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from(OF_ROOT));
    }
    absolute(lookup, "XDG_STATE_HOME")
        .or_else(|| absolute(lookup, "HOME").map(|home| home.join(".local/state")))
        .map(|folder| folder.join("leasehold/leasehold.db"))
        .ok_or_else(|| {
            ConfigError::new("no store is configured, and without HOME there is no place for the default one")
                .help("set LEASEHOLD_STORE, for example sqlite:/var/lib/app/locks.db")
        })
}

/// The file that `sqlite:` alone means: for root `/var/lib/leasehold/leasehold.db`, for others
/// `leasehold/leasehold.db` in `$XDG_STATE_HOME` or `~/.local/state`.
///
/// # Errors
///
/// When the environment names no home.
pub fn default_database() -> Result<PathBuf, ConfigError> {
    database(&|name| std::env::var_os(name))
}
