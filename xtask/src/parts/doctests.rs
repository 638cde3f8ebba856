//! The part `doctests`: the examples in the documentation, and the programs in `examples/`.

use std::time::Duration;

use crate::Result;
use crate::command::Line;
use crate::context::Session;

/// An example shows something and ends.
const DEADLINE: Duration = Duration::from_secs(120);

pub(super) fn run(session: &mut Session<'_>) -> Result<()> {
    // Always through cargo test: nextest knows no documentation.
    session.must(&Line::cargo("test --workspace --all-features --no-fail-fast --doc"))?;
    for package in session.context.workspace.members() {
        for example in package.targets("example") {
            let run = Line::cargo("run --quiet --all-features").args(["-p", &package.name]);
            session.must(&run.args(["--example", &example.name]).deadline(DEADLINE))?;
        }
    }
    Ok(())
}
