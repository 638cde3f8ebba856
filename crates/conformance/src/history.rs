//! What happened, written down by many processes, and whether it may have happened.
//!
//! Each process writes a [`Record`] before and after each call, stamped with the boot clock, which all processes of
//! a host share. [`check_history`] then looks at all of them together: no two leases that exclude each other were valid at
//! once, tokens rose, and nobody was served before one who stood in line earlier.

#[cfg(test)]
mod brute;
mod check;
mod claims;
#[cfg(test)]
mod corrupt;
mod file;
mod record;
#[cfg(test)]
mod truth;

pub use check::{Least, Report, Violation, check as check_history};
pub use claims::ClaimKey;
pub use file::{FileError, HistoryWriter, read_history};
pub use record::{FaultKind, Happened, Record, RecordError};
