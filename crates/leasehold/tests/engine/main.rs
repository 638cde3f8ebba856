//! What the engine promises, over the store in memory and over one that fails as it is told.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod at_least;
mod common;
mod election;
mod knots;
mod line;
mod migrate;
mod once;
mod permits;
mod policy;
mod promises;
mod readers;
mod scope;
mod several;
mod succession;
mod trouble;
