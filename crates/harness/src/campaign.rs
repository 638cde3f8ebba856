//! Faults of real servers and of the ways to them, one after the other and many times, while several clients
//! fight for a few names; then what all of them saw is held to what is promised under that fault.
//!
//! Each [`Fault`] says whether exclusion is promised while it strikes. Everywhere tokens must rise in the order of the
//! grants, a resource that checks them must lose no write, a loss must be told in time, and once the fault is over
//! everybody must get the lock again. The seed decides who fights for what and when the fault strikes; threads and
//! processes decide the rest, so a seed is a place to look again, not a replay.

mod elected;
mod fault;
mod fence;
mod fighter;
mod nodes;
mod pen;
mod ring;
mod split;
mod stage;
mod verdict;
mod watched;

use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::{Check, Failure};
use leasehold_core::Clock;
use tokio::sync::watch;

use elected::Assembly;
use fault::Blow;
pub use fault::{CLUSTER, ETCD, FAULTS, Fault, QUORUM, SENTINEL, SPLIT, ZOOKEEPER};
use fence::Fence;
use fighter::{Fighter, fight};
use nodes::Field;
use ring::Ring;
use split::Split;
use stage::{Stage, Staged};
pub use verdict::Fought;
use watched::Ward;

use crate::servers::NoServer;
use crate::servers::net::Host;

/// The ttl of every lease in a Redis.
pub const TTL: Duration = Duration::from_secs(1);
/// How many clients fight.
pub const FIGHTERS: usize = 8;
/// .. and for the locks of several servers.
pub const OF_MANY: usize = 16;
/// What they fight for.
const NAMES: [&str; 4] = ["orders", "stock", "ledger:{7}", "report"];
/// So many of the clients hold long whatever they get, so that each fault finds somebody who must be told.
const KEEPERS: usize = 2;
/// In so many ttl after the end of the last fault everybody has got a lease again: what dead holders had has run out
/// in one, a place in line that nobody refreshes in two, what was granted from it in another two, and the rest is for
/// noticing and for the turns of the others.
pub const RECOVERY: u32 = 8;
/// How often a campaign is fought at the most, in which too little happens or who watches does not get to run in time.
const TRIES: u32 = 3;

/// What came of a campaign that could not be fought.
#[derive(Debug, thiserror::Error)]
pub enum Unfought {
    /// There is no such server on this machine.
    #[error("there is no {0} here")]
    Missing(&'static str),
    /// It was fought, and a promise was broken.
    #[error("{0}")]
    Broken(Failure),
}

/// Fights under one fault for so long, and judges it.
///
/// # Errors
///
/// Every promise that was broken; that too little happened to say so; that there is no server.
pub fn campaign(fault: &'static Fault, lasting: Duration, seed: u64) -> Result<Fought, Unfought> {
    match fault.blow {
        Blow::Nodes => fight_under(fault, lasting, seed, OF_MANY, || Field::open(OF_MANY, seed)),
        Blow::Split(kind) => {
            fight_under(fault, lasting, seed, OF_MANY, || Split::open(kind, fault.ttl, seed))
        }
        Blow::Ring(turn) => fight_under(fault, lasting, seed, OF_MANY, || Ring::open(turn, seed)),
        Blow::FailOver { behind } => fight_under(fault, lasting, seed, OF_MANY, || Ward::open(behind, seed)),
        Blow::Elected(maker, harm) => {
            fight_under(fault, lasting, seed, FIGHTERS, || Assembly::open(fault, maker, harm, seed))
        }
        _ => fight_under(fault, lasting, seed, FIGHTERS, || Stage::open(fault, seed)),
    }
}

fn fight_under<S: Staged>(
    fault: &'static Fault,
    lasting: Duration,
    seed: u64,
    clients: usize,
    open: impl Fn() -> Result<S, NoServer>,
) -> Result<Fought, Unfought> {
    let mut tries = 0;
    loop {
        tries += 1;
        let fought = once(fault, lasting, seed, clients, open())?;
        let from = format!("{} from seed {seed}", fault.name);
        let again = match (fought.judge(), fought.is_worth_it()) {
            (Ok(()), Ok(())) => return Ok(fought),
            (Ok(()), Err(little)) => little,
            // Whoever was starved himself cannot tell who was late.
            (Err(failure), _) if fought.was_starved() && fought.is_safe() => failure,
            (Err(failure), _) => return Err(Unfought::Broken(failure.during(from))),
        };
        if tries == TRIES {
            return Err(Unfought::Broken(again.during(from)));
        }
        println!("{}: once more, the watcher missed its time by {:?} ({again})", fault.name, fought.starved);
    }
}

/// Fights once.
fn once(
    fault: &'static Fault,
    lasting: Duration,
    seed: u64,
    clients: usize,
    stage: Result<impl Staged, NoServer>,
) -> Result<Fought, Unfought> {
    let broken = |failure: Failure| Unfought::Broken(failure);
    let mut stage = match stage {
        Ok(stage) => stage,
        Err(NoServer::Missing(tool)) => return Err(Unfought::Missing(tool)),
        Err(error) => return Err(broken(error.into())),
    };
    let clock = Clock::system();
    let (stop, stopped) = watch::channel(false);
    let fence = Arc::new(Fence::new(NAMES.len()));
    let fighters: Vec<Arc<Fighter>> = (0..clients)
        .map(|number| {
            let dice = seed.wrapping_mul(0x9E37_79B9).wrapping_add(number as u64);
            Arc::new(Fighter::new(number, stage.url(number), fault.ttl, fence.clone(), stopped.clone(), dice))
        })
        .collect();
    let homes = (0..clients).map(|number| stage.home(number));
    let running: Vec<_> =
        fighters.iter().zip(homes).map(|(fighter, home)| start(fighter.clone(), home)).collect();
    let struck = stage.strike(&clock, lasting, &fighters);
    // Everybody must get one more, now that nothing is wrong any more.
    let healed = clock.now();
    let most = healed.after(fault.ttl * RECOVERY);
    let recovered = loop {
        let waits: Vec<Option<_>> =
            fighters.iter().map(|fighter| fighter.pen.granted_after(healed)).collect();
        if waits.iter().all(Option::is_some) || clock.now() >= most {
            break waits;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    stop.send_replace(true);
    for thread in running {
        // Each ends within its hold and its wait, which are bounded.
        thread.join().unwrap_or_else(|_| Err(Failure::new("a client panicked"))).map_err(broken)?;
    }
    let struck = struck.map_err(broken)?;
    let left = stage.left().map_err(broken)?;
    let history = fighters.iter().flat_map(|fighter| fighter.pen.take()).collect();
    Ok(Fought::new(fault, seed, struck, history, fence.books(), recovered, left))
}

/// Each on a thread of its own, as a program of its own would be: what holds one up does not hold up the others.
fn start(fighter: Arc<Fighter>, home: Option<Host>) -> std::thread::JoinHandle<Check> {
    std::thread::spawn(move || {
        home.map_or(Ok(()), |home| home.enter())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(fight(fighter))
    })
}
