//! Measures what dead nodes cost a quorum of five Redis: an acquire and its release, with all alive and with one or two
//! of them stopped, killed, or never there; all beside each other, turn by turn, in one run. With three dead it must say
//! so within its deadline.

use std::time::Duration;

use clap::Parser;
use leasehold::{Clock, Code, Leasehold};
use leasehold_harness::handover::quantile;
use leasehold_harness::puppet::Trouble;
use leasehold_harness::servers::Server;
use leasehold_harness::servers::nodes::Nodes;
use leasehold_harness::servers::redis::Redis;
use rustix::process::Signal;

/// Side by side: each manner of death has five nodes and a client of its own.
#[derive(Debug, Parser)]
struct Arguments {
    /// For how long all of it is measured.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How many acquires each has in its turn.
    #[arg(long, default_value_t = 50)]
    turn: usize,
    /// What is measured hangs on no choice.
    #[arg(long, hide = true)]
    seed: Option<u64>,
}

const TTL: Duration = Duration::from_secs(30);
/// How long whoever asks three dead nodes is ready to wait.
const DEADLINE: Duration = Duration::from_secs(3);
/// How long it takes failures for something that will pass.
const TIMEOUT: Duration = Duration::from_secs(1);
/// By how much an answer may come after the deadline.
const GRACE: Duration = Duration::from_millis(500);

/// How nodes die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Death {
    /// They are stopped once the client has connections to them.
    Stopped,
    /// They are killed then.
    Killed,
    /// They were never there.
    Never,
}

const SCENES: [(&str, usize, Death); 6] = [
    ("five live", 0, Death::Never),
    ("one stopped", 1, Death::Stopped),
    ("one killed", 1, Death::Killed),
    ("one never there", 1, Death::Never),
    ("two stopped", 2, Death::Stopped),
    ("two killed", 2, Death::Killed),
];

struct Scene {
    what: &'static str,
    client: Leasehold,
    took: Vec<Duration>,
    _nodes: Nodes,
}

/// Five nodes, so many of which died.
async fn five(dead: usize, death: Death) -> Result<(Nodes, Leasehold), Trouble> {
    let mut nodes = Nodes::start(5, &Redis::default())?;
    if death == Death::Never {
        nodes.servers[..dead].iter_mut().for_each(Server::kill);
    }
    let builder = Leasehold::builder().timeout(TIMEOUT);
    let client = builder.connect(&nodes.url("?restart_delay=0s")).await?;
    client.lock("x").ttl(TTL).acquire().await?.release().await?;
    for server in &mut nodes.servers[..dead] {
        match death {
            Death::Stopped => server.signal(Signal::STOP)?,
            Death::Killed => server.kill(),
            Death::Never => {}
        }
    }
    Ok((nodes, client))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Trouble> {
    let Arguments { seconds, turn, seed: _ } = Arguments::parse();
    let clock = Clock::system();
    let mut scenes = Vec::new();
    for (what, dead, death) in SCENES {
        let (nodes, client) = five(dead, death).await?;
        scenes.push(Scene { what, client, took: Vec::new(), _nodes: nodes });
    }
    let end = clock.now().after(Duration::from_secs(seconds));
    while clock.now() < end {
        for Scene { client, took, .. } in &mut scenes {
            for _ in 0..turn {
                let start = clock.now();
                client.lock("x").ttl(TTL).acquire().await?.release().await?;
                took.push(clock.now().since(start));
            }
        }
    }
    scenes.iter_mut().for_each(|scene| scene.took.sort());
    let at = |scene: &Scene, share| quantile(&scene.took, share).as_secs_f64() * 1000.0;
    for scene in &scenes {
        println!(
            "{:<16} {:>7} pairs  p50 {:>6.3} ms ({:.2} of the live)  p99 {:>6.3} ms ({:.2})  longest {:>8.3} ms",
            scene.what,
            scene.took.len(),
            at(scene, 0.5),
            at(scene, 0.5) / at(&scenes[0], 0.5),
            at(scene, 0.99),
            at(scene, 0.99) / at(&scenes[0], 0.99),
            at(scene, 1.0),
        );
    }
    for death in [Death::Stopped, Death::Killed] {
        let (_nodes, client) = five(3, death).await?;
        let lock = client.lock("x").ttl(TTL);
        for (how, within) in [("a try", None), ("a wait of 3 s", Some(DEADLINE))] {
            let start = clock.now();
            let told = match within {
                None => lock.attempt().await,
                Some(within) => lock.acquire_within(within).await,
            };
            let Err(error) = told else { return Err("three nodes are dead, and it is held".into()) };
            let took = clock.now().since(start);
            println!("three {death:?}: {how} is told after {took:.1?} that too few answered");
            if error.code() != Code::QUORUM || took > DEADLINE + GRACE {
                return Err(format!("with three dead it is told after {took:?}: {error}").into());
            }
        }
    }
    Ok(())
}
