//! The part `doctests`: the examples in the documentation, always through cargo test, since nextest has none.

use crate::Result;
use crate::command::Line;
use crate::context::Session;

pub(super) fn run(session: &mut Session<'_>) -> Result<()> {
    session.must(&Line::cargo("test --workspace --all-features --no-fail-fast --doc"))?;
    Ok(())
}
