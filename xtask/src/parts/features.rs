//! The part `features`: each feature of each crate compiles alone, and none at all.

use crate::Result;
use crate::command::Line;
use crate::context::Session;

pub(super) fn run(session: &mut Session<'_>) -> Result<()> {
    for package in session.context.workspace.members() {
        // One package at a time: in a build of the whole workspace a neighbour's feature would hide that one
        // is missing here.
        let alone = Line::cargo("check --quiet --no-default-features").args(["-p", &package.name]);
        session.must(&alone)?;
        for feature in package.features.keys().filter(|feature| *feature != "default") {
            session.must(&alone.clone().args(["--features", feature]))?;
        }
    }
    Ok(())
}
