//! The part `clippy`: lints of the whole workspace, all targets and features, each warning a failure.

use crate::Result;
use crate::command::Line;
use crate::context::Session;

pub(super) fn run(session: &mut Session<'_>) -> Result<()> {
    session.must(&Line::cargo("clippy --workspace --all-targets --all-features -- -D warnings"))?;
    Ok(())
}
