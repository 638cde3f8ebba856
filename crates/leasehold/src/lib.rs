//! Distributed locks that people can trust.
//!
//! Every lease is its owner's alone, has a ttl, is renewed in the background, tells its holder when it is
//! endangered and when it is lost, and carries a fencing token that never falls.
//!
//! ```
//! # leasehold::doc_test(async {
//! use std::time::Duration;
//!
//! let client = leasehold::Leasehold::memory(); // or Leasehold::connect("sqlite:/var/lib/app/locks.db").await?
//! client
//!     .lock("order:10017")
//!     .run_within(Duration::from_secs(5), async |lease| {
//!         println!("shipping under token {}", lease.token()); // send the token with every write
//!     })
//!     .await?;
//! # Ok(()) });
//! ```
//!
//! | to | use |
//! |---|---|
//! | do without `async` | [`blocking`] |
//! | open a store | [`Leasehold::connect`], [`Leasehold::memory`] |
//! | do something under a lock | [`Lock::run`], [`Lock::run_within`], [`Lock::try_run`] |
//! | hold a lock by hand | [`Lock::acquire`], [`Lock::acquire_within`], [`Lock::try_acquire`] |
//! | let many read and one write | [`Leasehold::rwlock`], [`Lease::upgrade`], [`Lease::downgrade`] |
//! | let at most so many in at once | [`Leasehold::semaphore`], [`Lock::permits`] |
//! | hold several locks, all or none | [`Leasehold::lock_all`] |
//! | take again what you have | [`Leasehold::scope`] |
//! | go on without the store, knowingly | [`Lock::or_open`], [`Lock::or_else`] |
//! | move to another name or store | [`Lock::and`] |
//! | give a lease to another process | [`Lease::hand_over`], [`Leasehold::take_over`] |
//! | know that it still holds | [`Lease::check`], [`Lease::ensure`], [`Lease::lost`] |
//! | have one leader of many | [`Leasehold::election`] |
//! | do something once, whoever comes first | [`Leasehold::once`], [`Leasehold::once_per`] |
//! | protect what you write to | [`Lease::token`] |
//! | test what becomes of you when a lease is lost | [`sim`] |
//! | listen to what happens | [`Observer`], which also tells of `tracing` and of metrics |
//!
//! # Any executor, or none
//!
//! A client keeps its I/O, timers, renewals and releases on a thread of its own. No future of this crate touches a
//! runtime, so they run on tokio, on smol, under a plain `block_on`; and a program that blocks all its threads
//! keeps its leases.
//!
//! # Features
//!
//! A feature only adds. The store in memory, [`blocking`] and [`sim`] are always there.
//!
//! | feature | adds |
//! |---|---|
//! | `sqlite` (default) | the store in an SQLite file |
//! | `metrics` | `Metrics`, an [`Observer`] for the facade `metrics` |
//!
//! # Which promise, and which not
//!
//! At most one *unexpired* lease, by the boot clock of each machine, less one percent for clocks that run at
//! different rates. What nobody can promise: that a machine which was frozen and wakes up has not one more write on
//! its way. So give [`Lease::token`] to whatever you write to, and let that refuse a smaller one than it has seen.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod acquire;
pub mod blocking;
mod builder;
mod checkup;
mod client;
mod closing;
pub mod config;
mod election;
mod engine;
mod event;
mod gather;
mod handover;
mod hold;
mod janitor;
mod knots;
mod leader;
mod lease;
mod lease_set;
mod local;
mod lock;
mod lock_all;
mod marks;
#[cfg(feature = "metrics")]
mod meter;
mod migrate;
mod nesting;
mod once;
mod open;
mod owner;
mod party;
mod patience;
mod period;
mod policy;
mod proof;
mod pulse;
mod pursuit;
mod quorum;
mod reshape;
mod rwlock;
mod scope;
mod semaphore;
mod shape;
pub mod sim;
mod succession;
mod term;
mod terms;
mod ticket;
mod timer;
mod together;
mod upgrade;
mod watchdog;

pub use builder::Builder;
pub use checkup::Bare;
pub use client::{AsyncLedger, Leasehold};
pub use election::{AfterTerm, Election};
pub use event::{Event, Observer, Stuck};
pub use handover::LeaseTicket;
pub use hold::LeaseState;
pub use leader::LeaderWatch;
pub use lease::Lease;
pub use lease_set::LeaseSet;
pub use leasehold_core::{
    BootTime, Busy, Capabilities, Check, Clock, Closure, Code, ConfigError, Doctor, Effect, Entry, Error,
    Expiry, Fencing, Health, Holder, Ledger, LockName, Lost, LostReason, Mark, MarkKind, MarkOutcome,
    MemoryStore, Minting, NameError, Note, NoteError, Op, Owner, Queueing, Reach, Record, RecordId,
    RecordKind, Result, Scheme, Secret, Share, Shares, Snapshot, Store, StoreError, StoreErrorKind, StoreUrl,
    Token, Unsupported, UrlError, Wake, fault,
};
pub use lock::{Lock, Outcome};
pub use lock_all::LockAll;
#[cfg(feature = "metrics")]
pub use meter::Metrics;
pub use migrate::{Both, LeasePair};
pub use once::{Once, OnceOutcome, OnceRun, Remembered};
pub use period::{Period, Zone};
pub use policy::{Backed, BackedLock, Held, OpenLock, OpenRun};
pub use quorum::{Quorum, QuorumBuilder};
pub use rwlock::RwLock;
pub use scope::Scope;
pub use succession::HandOver;
pub use term::Term;

/// Runs the example of a documentation page.
#[doc(hidden)]
#[expect(clippy::expect_used, reason = "an example that fails must fail its test")]
pub fn doc_test(example: impl Future<Output = Result<()>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(example).expect("the example works");
}
