//! The part `unit`: unit tests of libraries and programs, and integration tests that no other part names.

use super::runner::{Home, Manner, run as run_tests};
use crate::Result;
use crate::context::Session;

pub(super) fn run(session: &mut Session<'_>) -> Result<()> {
    run_tests(session, Home::Unit, &["--lib", "--bins"], Manner::default())
}
