//! The part `process`: tests that start processes.

use super::runner::{Home, Manner, run as run_tests};
use crate::Result;
use crate::context::Session;

/// Such tests wait for signals and deadlines of a second or two; many at once on a small machine would make
/// each other late.
const AT_ONCE: Manner = Manner { threads: Some(4) };

pub(super) fn run(session: &mut Session<'_>) -> Result<()> {
    let missing = session.context.tools().missing().to_vec();
    session.not_run.extend(missing.into_iter().map(|reason| format!("tests that use {reason}")));
    run_tests(session, Home::Process, &[], AT_ONCE)
}
