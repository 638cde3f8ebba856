//! The part `house`: the rules that no compiler knows.

use crate::Result;
use crate::context::Session;
use crate::house;

pub(super) fn run(session: &mut Session<'_>) -> Result<()> {
    let findings = house::check(&session.context.workspace)?;
    session.problems.extend(findings.problems);
    session.notes.extend(findings.notes);
    Ok(())
}
