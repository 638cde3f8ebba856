//! The real binary, end to end, on ZooKeeper: the tests of `command` with a server for each place, and what only a server can
//! do. Skipped, and said so, where there is no `java` with ZooKeeper.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail, and these have helpers")]

#[path = "../command/at_least.rs"]
mod at_least;
#[path = "../command/breaking.rs"]
mod breaking;
#[path = "../command/busy.rs"]
mod busy;
#[path = "../command/checks.rs"]
mod checks;
#[path = "../command/clocks.rs"]
mod clocks;
#[path = "../command/config.rs"]
mod config;
#[path = "../command/descendants.rs"]
mod descendants;
#[path = "../command/ends.rs"]
mod ends;
#[path = "../command/freeze.rs"]
mod freeze;
#[path = "../command/guard.rs"]
mod guard;
#[path = "../command/looking.rs"]
mod looking;
#[path = "../command/loss.rs"]
mod loss;
#[path = "../command/nested.rs"]
mod nested;
#[path = "../command/nothing_else.rs"]
mod nothing_else;
#[path = "../command/once.rs"]
mod once;
#[path = "../command/overdue.rs"]
mod overdue;
#[path = "../command/pause.rs"]
mod pause;
#[path = "../command/points.rs"]
mod points;
#[path = "../command/points_injected.rs"]
mod points_injected;
#[path = "../command/points_timed.rs"]
mod points_timed;
#[path = "../command/report.rs"]
mod report;
#[path = "../command/scripts.rs"]
mod scripts;
#[path = "../command/signals.rs"]
mod signals;
#[path = "../command/sock.rs"]
mod sock;
#[path = "../command/stage.rs"]
mod stage;
#[path = "../command/store_trouble.rs"]
mod store_trouble;
#[path = "../command/terminal.rs"]
mod terminal;

#[path = "../command_redis/orphans.rs"]
mod orphans;

mod network;
mod store;
