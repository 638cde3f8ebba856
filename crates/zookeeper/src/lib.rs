//! Locks in ZooKeeper: the line of sequential nodes that its recipes share, with tokens that need no clock.
//!
//! ```no_run
//! use leasehold_zookeeper::ZooKeeperStore;
//!
//! let store = ZooKeeperStore::open(&"zookeeper://z1,z2,z3/app".parse()?)?;
//! # Ok::<(), leasehold_core::Error>(())
//! ```
//!
//! # What it promises
//!
//! - **One line with the rest of the world.** A claim is a node `ROOT/NAME/_c_<id>-lock-<number>`, as those of Curator's
//!   `InterProcessMutex`; the lowest number holds, and its czxid is the token.
//! - **Tokens always rise.** One that is not above what was seen is refused.
//! - **Turns and renewals are writes**, so that a member that is cut off from the others grants and prolongs nothing. The life
//!   of a session counts from what its leader has surely heard.
//! - **Waiting is told**: only the node that must go is watched. Whoever waits asks twice, however many wait.
//! - **A node whose answer was lost** is found by its id, and is taken over only by the session that made it.
//!
//! # What it does not do
//!
//! - A lease is part of a session, and lost with all others of it; servers give 2 to 20 ticks. `session=own` gives each claim
//!   its own. Nobody but the client that acquired a lease can renew it.
//! - A dead waiter stays in line until its session ends.
//! - A closed name keeps out clients of Leasehold only.
//! - Leases change no share, go to no other owner, are not taken several in one step, and leave no name shut after an
//!   unclean end.
//! - No TLS.
#![forbid(unsafe_code)]
mod claims;
mod config;
mod ends;
mod fail;
mod holds;
mod lapses;
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
