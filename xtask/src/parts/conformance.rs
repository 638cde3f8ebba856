//! The part `conformance`: each store against the numbered contract.

use super::runner::{Home, Manner, run as run_tests};
use crate::Result;
use crate::context::Session;

pub(super) fn run(session: &mut Session<'_>) -> Result<()> {
    run_tests(session, Home::Conformance, &[], Manner::default())
}
