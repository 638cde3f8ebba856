//! The real binary, end to end, on SQLite: each test has a store, a home and a folder of its own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail, and these have helpers")]

mod anchored;
mod at_least;
mod bad_input;
mod breaking;
mod busy;
mod checks;
mod clocks;
mod config;
mod descendants;
mod ends;
mod file;
mod freeze;
mod guard;
mod looking;
mod loss;
mod nested;
mod nothing_else;
mod once;
mod overdue;
mod pause;
mod points;
mod points_injected;
mod points_timed;
mod report;
mod scripts;
mod signals;
mod sock;
mod stage;
mod store;
mod store_trouble;
mod strangers;
mod terminal;
