//! The part `fmt`: the code is formatted.

use crate::Result;
use crate::command::Line;
use crate::context::Session;

pub(super) fn run(session: &mut Session<'_>) -> Result<()> {
    session.must(&Line::cargo("fmt --all --check"))?;
    Ok(())
}
