//! Locks in Redis, Valkey and Tair.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod config;
mod fail;
mod keys;
mod ledger;
mod line;
mod link;
mod list;
mod pack;
mod script;
mod store;
mod wake;

pub use store::RedisStore;
