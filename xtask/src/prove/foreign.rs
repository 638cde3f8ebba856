//! The proof `foreign`: clients of other people share keys with ours, each for half a minute, on servers of every kind, all built for release.

use std::process::Command;

use super::Proof;
use crate::Result;
use crate::servers::Tools;

const SECONDS: u64 = 30;
/// One server of each kind, and five that are one store.
const GROUNDS: &[&str] = &["redis", "quorum", "zookeeper", "etcd", "etcd-3.5"];

pub(super) fn run(proof: &mut Proof) -> Result<bool> {
    let tools = Tools::provide(proof.root(), &proof.workspace.target_directory);
    for note in tools.notes() {
        proof.say(&format!("note       {note}"))?;
    }
    for missing in tools.missing() {
        proof.say(&format!("NOT RUN    what needs {missing}"))?;
    }
    for (tool, words) in [("python3", "--version"), ("node", "--version"), ("java", "--version")] {
        let output = Command::new(tool).arg(words).output();
        let said = output.map_or_else(
            |error| error.to_string(),
            |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        );
        proof.say(&format!("{tool:<10} {said}"))?;
    }
    proof.build("leasehold-cli", "leasehold")?;
    let program = proof.build("leasehold-harness", "foreign")?;
    let seconds = proof.seconds.unwrap_or(SECONDS).to_string();
    let mut command = Command::new(program);
    command.args(["--seconds", &seconds]);
    if let Some(folder) = tools.folder() {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain([folder.to_owned()]);
        command.env("PATH", std::env::join_paths(folders)?);
    }
    // A client that cannot be had makes the program end badly: what did not run has shown nothing.
    let mut all = true;
    for ground in GROUNDS {
        let mut on_it = Command::new(command.get_program());
        on_it.args(command.get_args()).args(["--on", ground]);
        for (name, value) in command.get_envs() {
            on_it.env(name, value.unwrap_or_default());
        }
        all &= proof.run(&mut on_it)?;
    }
    Ok(all)
}
