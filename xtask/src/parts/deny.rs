//! The part `deny`: licences, banned crates and sources, by `deny.toml`.

use std::process::{Command, Stdio};

use crate::Result;
use crate::command::Line;
use crate::context::Session;
use crate::deny;

pub(super) fn run(session: &mut Session<'_>) -> Result<()> {
    // Our own look at the same file comes first, so that this part bites on every machine.
    session.problems.extend(deny::check(session.context.root())?);
    let mut probe = Command::new("cargo");
    probe.args(["deny", "--version"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if probe.status().is_ok_and(|status| status.success()) {
        // Without `advisories`: they need a database from the network, and change without a commit of ours.
        session.must(&Line::cargo("deny check bans licenses sources"))?;
    }
    Ok(())
}
