//! The vocabulary, the one rule and the store trait of Leasehold.
//!
//! Whoever writes a store needs this crate and nothing else of ours; whoever uses locks wants the `leasehold`
//! crate, which re-exports what appears in its signatures.
//!
//! | to read | in |
//! |---|---|
//! | what a store must do, as a numbered contract | [`Store`] |
//! | when a claim is admitted | [`admit`] |
//! | the whole law of a line of claims, without I/O | [`Line`] |
//! | which clock decides what | [`Clock`] |
//! | what can go wrong, and what it says | [`Error`] |
//!
//! # What this crate does not do
//!
//! It never waits for a lock, renews nothing and starts no thread: that is the engine's part, in `leasehold`.
//! It imports no client library.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod busy;
mod capability;
mod claim;
mod clock;
mod code;
mod counter;
mod doctor;
mod doubt;
mod error;

pub mod fault;
mod ledger;
mod line;
mod lost;
mod memory;
mod name;
pub mod quorum;
mod rule;
mod share;
mod standing;
mod store;
mod token;
mod url;
mod validity;

pub use busy::{Busy, Holder};
pub use capability::{Capabilities, Expiry, Fencing, Minting, Queueing, Reach, Shares, Wake};
pub use claim::{Aftermath, Claim, ClaimId, Note, NoteError, Owner, Turn};
pub use clock::{BootTime, Clock, ServerTime};
pub use code::Code;
pub use counter::{Counter, Counters};
pub use doctor::{Check, Doctor, Health};
pub use doubt::Doubt;
pub use error::{ConfigError, Effect, Error, Op, Result, StoreError, StoreErrorKind, Unsupported};
pub use ledger::{Ledger, Mark, MarkKind, MarkOutcome, Record, RecordId, RecordKind};
pub use line::{
    Held, Joint, LONG_WAIT, Line, Member, Moment, Overruled, PLACE_LIFE, Ruling, SHORT_GRANT, Shut,
    TOMBSTONE_LIFE, Tombstones, Watch,
};
pub use lost::{Lost, LostReason};
pub use memory::MemoryStore;
pub use name::{LockName, NameError};
pub use rule::{Verdict, admit};
pub use share::{Share, ShareError};
pub use standing::{
    Closure, Entry, Grant, Leave, Release, Renew, Renewal, Snapshot, Standing, State, Tenure, Together,
};
pub use store::Store;
pub use token::{Cursor, Token};
pub use url::{Endpoint, Scheme, Secret, StoreUrl, UrlError};
pub use validity::{margin, valid_until};
