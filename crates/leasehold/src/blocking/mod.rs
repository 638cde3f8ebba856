//! The same words without `async`, for programs that have no executor and want none.
//!
//! ```
//! # fn main() -> leasehold::Result<()> {
//! use std::time::Duration;
//! use leasehold::blocking::Leasehold;
//!
//! let client = Leasehold::memory(); // or Leasehold::connect("sqlite:/var/lib/app/locks.db")?
//! let shipped = client
//!     .lock("order:10017")
//!     .run_within(Duration::from_secs(5), |lease| format!("shipped under {}", lease.token()))?;
//! assert!(shipped.starts_with("shipped"));
//! client.close()
//! # }
//! ```
//!
//! # What differs
//!
//! - Each call waits in the thread that makes it. The client's own thread does the work, as ever, and renews while
//!   yours computes or sleeps.
//! - **Work cannot be stopped from outside.** Where the async [`run`](crate::Lock::run) drops its work when the lease
//!   is lost, [`run`](Lock::run) here can only tell you afterwards: put [`check`](Lease::check) before each step that
//!   matters, and send [`token`](Lease::token) with each write.
//! - For the same reason the work of [`Election::lead`] must look at its [`Term`], and come back when that is over.
//! - Waits that may last have a bound of their own: [`Lease::lost_within`], [`Term::ends_within`],
//!   [`LeaderWatch::changed_within`], [`HandOver::taken_within`]; and [`Lease::is_lost`] only looks.
//! - What cannot be cancelled needs no word on cancelling; an acquire that is to end takes
//!   [`acquire_within`](Lock::acquire_within).
//!
//! # In an async program
//!
//! It may be called on a thread of a runtime too, since no future of this crate touches one; but it blocks that thread,
//! and all tasks that would run on it, as any blocking call does.
//!
//! A description, a client or a lease is easily turned around: each type is made [`From`] its async twin, and gives it
//! back with `into_async`.

mod builder;
mod client;
mod election;
mod leader;
mod lease;
mod lease_set;
mod lock;
mod lock_all;
mod migrate;
mod mirror;
mod once;
mod policy;
mod run;
mod rwlock;
mod scope;
mod succession;
mod term;

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};

use crate::client::Client;
use crate::nesting;

pub use builder::Builder;
pub use client::Leasehold;
pub use election::Election;
pub use leader::LeaderWatch;
pub use lease::Lease;
pub use lease_set::LeaseSet;
pub use lock::Lock;
pub use lock_all::LockAll;
pub use migrate::{Both, LeasePair};
pub use once::{Once, OnceRun};
pub use policy::{Backed, BackedLock, Held, OpenLock};
pub use rwlock::RwLock;
pub use scope::Scope;
pub use succession::HandOver;
pub use term::Term;

/// Waits for a future in this thread.
fn wait<T>(future: impl Future<Output = T>) -> T {
    // It notes a wake-up beside the thread's park token, so neither a runtime around it nor a `park` of the program's
    // takes one away.
    pollster::block_on(nesting::blocked_for(future))
}

/// Waits for a future in this thread for at most so long by the client's clock, and drops it then.
fn wait_within<T>(client: &Client, most: Duration, future: impl Future<Output = T>) -> Option<T> {
    wait(async {
        match select(pin!(future), pin!(client.sleep(most))).await {
            Either::Left((value, _)) => Some(value),
            Either::Right(_) => None,
        }
    })
}
