//! The store between processes: each test starts this program again to play the other part.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by a panic")]

mod changes;
mod ends;
mod life;
mod opening;
mod parts;
mod stage;
mod trouble;
