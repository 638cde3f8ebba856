//! Models of protocols that no test can exhaust: each is searched, state by state, for what must never happen; and
//! breaks of it, the *mutants*, are searched for too, so that a search which finds nothing means something.
//!
//! A model calls the formulas that ship, so it cannot agree with a formula that does not.
#![forbid(unsafe_code)]

mod clock;
pub mod etcd;
pub mod quorum;
pub mod search;
pub mod zookeeper;
