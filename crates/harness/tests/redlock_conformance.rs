//! The quorum of five real Redis, held to the contract in real time: two clients of the same nodes.

use std::process::ExitCode;
use std::sync::Arc;

use leasehold::{Clock, Quorum, Store};
use leasehold_conformance::{Check, Fixture};
use leasehold_harness::servers::NoServer;
use leasehold_harness::servers::nodes::Nodes;
use leasehold_harness::servers::redis::Redis;
use leasehold_redis::RedisNodes;

fn main() -> ExitCode {
    if let Err(NoServer::Missing(tool)) = Redis::default().start() {
        eprintln!("skipped: there is no {tool} here");
        return ExitCode::SUCCESS;
    }
    leasehold_conformance::main("redlock in real time", || async { fixture() })
}

fn fixture() -> Check<Fixture> {
    let nodes = Nodes::start(5, &Redis::default())?;
    let url = nodes.url("?restart_delay=0s").parse()?;
    let client = || {
        let nodes = RedisNodes::open_with(&url, &Clock::system())?.stores.into_iter();
        Quorum::new(nodes.map(|node| Arc::new(node) as Arc<dyn Store>).collect())
    };
    Ok(Fixture::new(client()?).second(client()?).own_repeats().guard(nodes))
}
