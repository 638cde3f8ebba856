//! The part `conformance`: each store against the numbered contract, and what its suite skips.

use super::runner::{Home, Manner, run as run_tests};
use crate::Result;
use crate::command::Line;
use crate::context::Session;

/// Half of a case's time is its server's start, or a wait.
const AT_ONCE: Manner = Manner { threads: Some(5) };

pub(super) fn run(session: &mut Session<'_>) -> Result<()> {
    run_tests(session, Home::Conformance, &[], AT_ONCE)?;
    if session.problems.is_empty() && session.tally.ran() > 0 {
        // The suite itself knows why it skips what: a list that nobody prints grows.
        let list = Line::cargo("test --quiet --workspace --all-features --test conformance -- --skipped");
        let listed = session.observe(&list.path(session.context.tools().folder()))?;
        session.notes.extend(skips(&listed.output));
    }
    Ok(())
}

/// The lines `store: 120 cases apply, 3 are skipped`, and those below each that say which and why.
fn skips(output: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_table = false;
    for line in output.lines() {
        in_table = line.contains(" cases apply, ")
            || line.contains(": is not tested, ")
            || (in_table && line.starts_with("  "));
        if in_table {
            found.push(line.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_the_suites_are_found() {
        let output = "$ cargo test\na: 2 cases apply, 1 are skipped\n  c09: it keeps no line\n\nb: 3 cases apply, 0 are \
                      skipped\nend\n";
        assert_eq!(skips(output).len(), 3);
    }
}
