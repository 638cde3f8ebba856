//! The ZooKeeper store: the line of sequential nodes that its recipes share, with tokens that need no clock.

#![cfg_attr(test, expect(clippy::unwrap_used, reason = "a test that cannot go on has failed"))]

mod claims;
mod config;
mod ends;
mod fail;
mod holds;
mod ledger;
mod line;
mod names;
mod node;
mod renewals;
mod session;
mod store;
mod touches;
mod value;
mod waits;

pub use store::ZooKeeperStore;
