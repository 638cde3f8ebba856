//! What the tests of this store share.
#![allow(dead_code, reason = "each test uses a part of it")]

pub mod server;
pub mod synced;
