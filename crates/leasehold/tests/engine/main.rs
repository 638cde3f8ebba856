//! What the engine promises, over the store in memory and over one that fails as it is told.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;
mod line;
mod permits;
mod promises;
mod readers;
mod several;
mod trouble;
