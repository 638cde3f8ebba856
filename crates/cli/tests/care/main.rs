//! The commands that look after a store, with the real binary and real servers.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail, and these have helpers")]

#[path = "../command/stage.rs"]
#[expect(dead_code, reason = "each test target uses a part of it")]
mod stage;
#[path = "../command/store.rs"]
#[expect(dead_code, reason = "each test target uses a part of it")]
mod store;

mod bench;
mod doctor;
mod foreign;

use leasehold_harness::servers::redis::{Redis, ask, socket};
use leasehold_harness::servers::{NoServer, Server};

/// A server with these lines in its configuration; `None`, and said so, where this machine has none.
fn start(lines: &[&str]) -> Option<Server> {
    let redis = lines.iter().fold(Redis::default(), |redis, line| redis.line(*line));
    match redis.start() {
        Ok(server) => Some(server),
        Err(NoServer::Missing(tool)) => {
            eprintln!("skipped: there is no {tool} here");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The URL of its socket.
fn url(server: &Server) -> String {
    format!("redis+unix://{}", socket(server).display())
}

/// Asks it something that it does not refuse, and gives its raw reply.
fn say(server: &Server, words: &str) -> String {
    let words: Vec<&str> = words.split_whitespace().collect();
    let reply = ask(server, &words).unwrap();
    assert!(!reply.starts_with('-'), "{words:?}: {reply}");
    reply
}

/// The keys that match, as the server tells them.
fn keys(server: &Server, pattern: &str) -> Vec<String> {
    let reply = say(server, &format!("KEYS {pattern}"));
    reply.lines().filter(|line| !line.starts_with(['*', '$'])).map(str::to_owned).collect()
}
