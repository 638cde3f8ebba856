//! The quorum of five real Redis, held to the contract by two clients of the same nodes: in real time, where each node
//! hears of everything in its own time; and by the suite's clock, which all five go by, with random operations.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use leasehold::{Clock, Quorum, QuorumBuilder, Store};
use leasehold_conformance::{Check, Fixture, Suite};
use leasehold_harness::servers::clock::{self, ToldClock};
use leasehold_harness::servers::find;
use leasehold_harness::servers::nodes::Nodes;
use leasehold_harness::servers::redis::{Redis, ask};
use leasehold_harness::servers::synced::{Settled, Synced, UnderWay};
use leasehold_redis::RedisNodes;

const NODES: usize = 5;
const RANDOM: &str = "random_operations_agree_with_the_model";

/// In real time a node of a machine that does a hundred other things may be slow to answer; the quorum itself waits for
/// none longer than it is told below.
const PATIENT: &str = "?restart_delay=0s&node_timeout=10s";

/// Nodes whose clocks are told, and which no case uses now: five servers take longer to start than most cases do.
static IDLE: Mutex<Vec<Nodes>> = Mutex::new(Vec::new());

fn main() -> ExitCode {
    let missing = || find("redis-server").is_none().then(|| "there is no redis-server here".to_owned());
    let ended = Suite::all([
        Suite::new("five Redis", || async { in_real_time() }).unless(missing()),
        Suite::new("five Redis that go by the suite's clock", || async { by_the_suites_clock() })
            .called("by_a_clock")
            .only(RANDOM, "since the others are held to the contract in real time")
            .a_tenth()
            .unless(missing()),
    ]);
    IDLE.lock().unwrap().clear();
    ended
}

fn client(
    nodes: &Nodes,
    clock: &Clock,
    each: impl Fn(usize, Arc<dyn Store>) -> Arc<dyn Store>,
) -> Check<QuorumBuilder> {
    let opened = RedisNodes::open_with(&nodes.url(PATIENT).parse()?, clock)?;
    let stores = opened.stores.into_iter().enumerate();
    let stores = stores.map(|(number, store)| each(number, Arc::new(store))).collect();
    Ok(Quorum::builder(stores).clock(clock.clone()))
}

fn in_real_time() -> Check<Fixture> {
    let nodes = Nodes::start(NODES, &Redis::default())?;
    let client = || {
        Ok::<_, leasehold_conformance::Failure>(client(&nodes, &Clock::system(), |_, store| store)?.build()?)
    };
    Ok(Fixture::new(client()?).second(client()?).of_several().guard(nodes))
}

fn by_the_suites_clock() -> Check<Fixture> {
    let idle = IDLE.lock().unwrap().pop();
    let nodes = match idle {
        Some(nodes) => nodes,
        None => Nodes::start(NODES, &Redis { clock: Some(clock::library()?), ..Redis::default() })?,
    };
    let nodes = Arc::new(Borrowed(Some(nodes)));
    let (clock, under_way) = (Clock::frozen(), UnderWay::default());
    for server in &nodes.get().servers {
        ToldClock::of(server)?.set(clock.wall_micros())?;
        ask(server, &["FLUSHALL"])?;
    }
    let client = || {
        let synced = |number: usize, store| {
            let told = ToldClock::of(&nodes.get().servers[number]).unwrap();
            Arc::new(Synced::new(store, vec![told], &clock, nodes.clone()).counted(&under_way))
                as Arc<dyn Store>
        };
        let quorum = client(nodes.get(), &clock, synced)?.build()?;
        Ok::<_, leasehold_conformance::Failure>(Settled::new(quorum, &under_way))
    };
    let fixture = Fixture::new(client()?).second(client()?);
    // A node whose clock steps has no say for a while; the tests of the quorum itself show that.
    Ok(fixture.clock(clock.clone()).one_clock().of_several())
}

/// The nodes of one case. They go back once nothing of it is left.
struct Borrowed(Option<Nodes>);

impl Borrowed {
    fn get(&self) -> &Nodes {
        self.0.as_ref().unwrap()
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        IDLE.lock().unwrap().extend(self.0.take());
    }
}
