//! The part `docs`: the documentation builds without a warning.

use crate::Result;
use crate::command::Line;
use crate::context::Session;

pub(super) fn run(session: &mut Session<'_>) -> Result<()> {
    let strict = |words: &str| Line::cargo(words).env("RUSTDOCFLAGS", "-D warnings");
    let workspace = &session.context.workspace;
    // The command and the library are both called leasehold and would write over each other's pages; so
    // programs come first and by themselves, and the library has the last word.
    let programs = workspace.members().filter(|package| package.targets("lib").next().is_none());
    let programs: Vec<String> = programs.flat_map(|p| ["-p".to_owned(), p.name.clone()]).collect();
    session.must(&strict("doc --no-deps --all-features --bins").args(programs))?;
    session.must(&strict("doc --no-deps --all-features --workspace --lib"))?;
    Ok(())
}
