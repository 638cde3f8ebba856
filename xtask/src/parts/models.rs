//! The part `models`: the models of protocols are searched, and their mutants are found.

use crate::Result;
use crate::command::Line;
use crate::context::Session;

pub(super) fn run(session: &mut Session<'_>) -> Result<()> {
    // Built for speed: searching is all that it does.
    let line = Line::cargo("run --release --quiet").args(["-p", "leasehold-models", "--"]);
    session.must(&line.args(["--states", "200000", "--steps", "1000000"]))?;
    Ok(())
}
