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
//! - Waits for a loss have a bound of their own: [`Lease::lost_within`], [`Lease::is_lost`].
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
mod lease;
mod lock;
mod mirror;

pub use builder::Builder;
pub use client::Leasehold;
pub use lease::Lease;
pub use lock::Lock;

/// Waits for a future in this thread.
fn wait<T>(future: impl Future<Output = T>) -> T {
    // It parks the thread on a condition of its own, so neither a runtime around it nor a `park` of the program's
    // takes a wake-up away.
    pollster::block_on(future)
}
