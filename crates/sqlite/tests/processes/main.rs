//! The store between processes: each test starts this program again to play the other part.

mod life;
mod parts;
mod stage;
