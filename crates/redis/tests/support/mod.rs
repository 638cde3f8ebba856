//! What the tests of this store share.
#![expect(dead_code, reason = "each test uses a part of it")]

pub(crate) mod claims;
pub(crate) mod host;
pub(crate) mod pool;
pub(crate) mod server;
pub(crate) mod synced;
pub(crate) mod ways;
