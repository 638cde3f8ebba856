//! The part `unit`: unit tests of libraries and programs, and integration tests that no other part names.

use super::runner::{Home, Manner, run as run_tests};
use crate::Result;
use crate::context::Session;

/// They wait more than they work: two at once leave a small machine idle for half of the time.
const AT_ONCE: Manner = Manner { threads: Some(4) };

pub(super) fn run(session: &mut Session<'_>) -> Result<()> {
    run_tests(session, Home::Unit, &["--lib", "--bins"], AT_ONCE)
}
