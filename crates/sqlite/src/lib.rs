//! Locks in a SQLite file, for the processes of one host: the store of Leasehold that needs no server.
//!
//! ```no_run
//! use leasehold_sqlite::SqliteStore;
//!
//! let store = SqliteStore::open(&"sqlite:/var/lib/app/locks.db".parse()?)?;
//! # Ok::<(), leasehold_core::Error>(())
//! ```
//!
//! # What it promises
//!
//! - **Exclusion** among all processes of one kernel, whatever container or time namespace they run in, as long
//!   as they use the same file. Leases are judged by the boot clock; no step of the wall clock matters.
//! - **The lease of a dead holder is free at once.** Each client keeps a FIFO beside the file open and locked;
//!   the kernel tells those who wait when it is gone. A holder that is merely frozen costs its ttl.
//! - **Tokens always rise**, also over a power cut with a clock that went back: no token is given above a mark
//!   that is on the disk.
//! - **Marks and closures** are on the disk before the call returns, and survive a reboot. Leases end with it.
//! - **Waiting costs nothing**: waiters are woken through a socket, not by asking again.
//! - **Two versions on one file** either understand each other or refuse the file; there are never two layouts
//!   side by side.
//!
//! # What it does not do
//!
//! - It does not lock across hosts. Network and shared file systems are refused where they can be told by their
//!   type; a disk that two kernels mount some other way is noticed by the boot id, too late for the first lease.
//! - It cannot protect the file from its owner. When the file is removed or replaced while locks are held, each
//!   process notices at its next call, and until then two can hold one lock; the fencing token tells them apart.
//! - To restore a copy, stop all users, remove the `-wal` and `-shm`, and put the file in place. A log that
//!   belongs to another copy damages the file; it is then refused, not repaired.
//! - A process that a holder forked inherits its life if it keeps the descriptor open, and then the lease ends
//!   with the ttl or with the last of them.
//! - A name with very many waiters is slow: each claim reads its whole line.
//!
//! # Files and rights
//!
//! | file | what | mode |
//! |---|---|---|
//! | `FILE` | the database | 0600, with `?group=` 0660 |
//! | `FILE-wal`, `FILE-shm` | SQLite's log, and memory that its users share | the same |
//! | `FILE-run/` | the lives of the clients, a FIFO and a socket each; room for a full disk | 0700, with `?group=` 0770 |
//!
//! Least rights: write access to the directory of the file and to these files. Whoever may write to them may
//! take any lock away. A file that everybody may write to, and one behind a symbolic link, is refused.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod config;
mod db;
mod doctor;
mod ends;
mod fail;
mod file;
mod ledger;
mod life;
mod names;
mod notice;
mod post;
mod retry;
mod round;
mod rows;
mod schema;
mod store;
mod thread;
mod tidy;
mod time;
mod wake;

pub use store::SqliteStore;
