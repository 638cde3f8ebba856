//! Locks in Redis, Valkey and Tair: the store of Leasehold for fleets that lock with Redis already, in any language.
//!
//! ```no_run
//! use leasehold_redis::RedisStore;
//!
//! let store = RedisStore::open(&"redis://cache-1:6379/0".parse()?)?;
//! # Ok::<(), leasehold_core::Error>(())
//! ```
//!
//! # What it promises
//!
//! - **One lock with the rest of the world.** An exclusive lease is the plain key `lock:NAME`, set if absent with a
//!   ttl, as redis-py, redlock, redsync and the tutorial's five lines do it: they exclude us and we them. Shared
//!   leases, permits and closures occupy that key as well. What is not ours is never changed, whatever its ttl.
//! - **One script for each step**: an acquire with its fencing token, owner and note, a release, a hundred renewals.
//!   Renewals and releases need no memory, so they work on a server that is full.
//! - **Tokens rise** over a flush, a restart without data and a failover to a stale copy, unless the server's clock is
//!   behind by more than the time since the last grant and no client is left that has seen the last token.
//! - **Waiting is told.** A release wakes exactly those whose turn has come: two scripts and one push for a hand-off,
//!   however many wait.
//! - **A deadline for each answer**, no hidden sending again, a new connection where the old one went silent, and a
//!   word of its own for each refusal of the server.
//! - Least rights are a table in docs/design/redis.md; no password is ever printed.
//!
//! # What it does not do
//!
//! - **It cannot make an asynchronous copy certain.** A master that dies may take a lease with it that no replica has
//!   seen, and two may hold it then; `min_replicas=n` makes that rarer. What is written to must check the token.
//! - A server without persistence that restarts has forgotten all leases at once. Holders learn it when their
//!   connection ends (over TLS at their next renewal), which is too late to exclude the next one; with
//!   `restart_delay=` of the longest ttl in use, in the URL of everybody, nothing is granted before they have.
//! - Leases are judged by the server's wall clock. A step forward ends them early; a step back is cut for leases of
//!   ours when somebody asks for them.
//! - Replicas are refused. Sentinels find the master (`redis+sentinel://s1,s2,s3/main`), and a connection to an old one
//!   is left as soon as one of them says so: docs/design/sentinel.md. [`RedisNodes`] are several servers that know
//!   nothing of each other, for a quorum.
//! - In a cluster nothing new is granted in a slot, and nothing given back, while that is being moved; and names in
//!   several slots are no one step. docs/design/cluster.md says what else is different there.
//! - Foreign holders tell nobody when they are done: who waits for one looks again, at most 1 s later. A server that
//!   sends keyspace events (`notify-keyspace-events Kgx`) tells it at once.
//! - A name with thousands of holders at once is slow: each claim reads them all. Listing walks over all keys.
//! - Renewals of a plain lease are not counted, since they write nothing.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod cluster;
mod config;
mod doctor;
mod events;
mod fail;
mod hearing;
mod keys;
mod ledger;
mod line;
mod link;
mod list;
mod members;
mod nodes;
mod pack;
mod renewals;
mod rights;
mod script;
mod sentinel;
mod servers;
mod stated;
mod store;
mod strangers;
mod transport;
mod trust;
mod waits;
mod wake;

pub use nodes::RedisNodes;
pub use store::RedisStore;
