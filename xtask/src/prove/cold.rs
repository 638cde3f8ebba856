//! The proof `cold`: from a fresh clone, with an empty cargo home, to the first success.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Proof, own_settings};
use crate::Result;
use crate::context::seconds;
use crate::stopwatch::Stopwatch;

/// Whoever tries this for the first time does not wait longer.
const CEILING: Duration = Duration::from_secs(4 * 60);
/// What the first command says when it worked.
const GREETING: &str = "hi";
/// Settings that would make a second build of it.
const SHORTCUTS: &[&str] = &[
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_INCREMENTAL",
    "CARGO_TARGET_DIR",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTFLAGS",
];

pub(super) fn run(proof: &mut Proof) -> Result<bool> {
    let folder = tempfile::tempdir()?;
    let (clone, cargo_home) = (folder.path().join("leasehold"), folder.path().join("cargo"));
    let watch = Stopwatch::start();
    let mut git = Command::new("git");
    git.args(["clone", "--quiet", "--no-hardlinks"]).arg(proof.root()).arg(&clone);
    if !git.status()?.success() {
        return Err("git clone failed".into());
    }
    fs::create_dir(&cargo_home)?;
    if let Some(settings) =
        settings(std::env::var_os("CARGO_HOME").as_deref(), std::env::var_os("HOME").as_deref())
    {
        // Where packages come from is the machine's affair, and no shortcut.
        fs::copy(&settings, cargo_home.join("config.toml"))?;
        proof.say("settings   the cargo home's config.toml is kept, everything else in it is not")?;
    }
    let cloned = watch.elapsed();
    let mut first = Command::new("cargo");
    first.args(["run", "--", "run", "demo", "--", "echo", GREETING]).current_dir(&clone);
    first
        .env("CARGO_HOME", &cargo_home)
        .env("XDG_STATE_HOME", folder.path())
        .env("XDG_CONFIG_HOME", folder.path());
    // Root's own default is the machine's store, where a measurement has no business.
    let store = format!("sqlite:{}", folder.path().join("cold.db").display());
    let shortcuts = SHORTCUTS.iter().map(OsString::from);
    shortcuts.chain(own_settings()).for_each(|name| _ = first.env_remove(name));
    first.env("LEASEHOLD_STORE", store);
    let output = first.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    let took = watch.elapsed();
    let greeted = String::from_utf8_lossy(&output.stdout).lines().any(|line| line == GREETING);
    if !output.status.success() || !greeted {
        return Err(format!("the first command did not work: {}", output.status).into());
    }
    proof.say(&format!("clone      {}", seconds(cloned)))?;
    proof.say(&format!("success    {} after the start, {} are the most", seconds(took), seconds(CEILING)))?;
    Ok(took <= CEILING)
}

/// The settings in the user's cargo home, if there are any.
fn settings(cargo_home: Option<&OsStr>, home: Option<&OsStr>) -> Option<PathBuf> {
    let folder = cargo_home.map(PathBuf::from).or_else(|| Some(Path::new(home?).join(".cargo")))?;
    Some(folder.join("config.toml")).filter(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_settings_of_the_cargo_home_are_kept() {
        let home = tempfile::tempdir().unwrap();
        let own = home.path().join(".cargo");
        assert_eq!(settings(None, Some(home.path().as_os_str())), None);
        fs::create_dir(&own).unwrap();
        fs::write(own.join("config.toml"), "").unwrap();
        assert_eq!(settings(None, Some(home.path().as_os_str())), Some(own.join("config.toml")));
        assert_eq!(settings(Some(own.as_os_str()), None), Some(own.join("config.toml")));
        assert_eq!(settings(None, None), None);
    }
}
