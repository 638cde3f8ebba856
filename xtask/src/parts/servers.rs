//! The part `servers`: gets the tools and servers that tests use.

use crate::Result;
use crate::context::Session;

pub(super) fn run(session: &mut Session<'_>) -> Result<()> {
    let tools = session.context.tools();
    session.notes.extend(tools.notes().iter().cloned());
    session.not_run.extend(tools.missing().iter().cloned());
    Ok(())
}
