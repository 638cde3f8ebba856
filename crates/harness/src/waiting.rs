//! What it takes until the next has the lease once it is free: for waiters who are told, and for those who ask again
//! and again, as most hand-written locks do.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{join_all, select_all};
use leasehold::{BootTime, Clock, Leasehold};
use redis::Script;
use redis::aio::MultiplexedConnection;
use tokio::sync::watch;

use crate::handover::quantile;
use crate::puppet::Trouble;
use crate::servers::Server;
use crate::servers::redis::{ask, socket, socket_url};

/// No lease runs out meanwhile.
const TTL: Duration = Duration::from_secs(30);
/// As every tutorial has it.
const COMPARE_AND_DELETE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/// How a waiter learns that it may have its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// It is told: a client of ours.
    Told,
    /// It asks again, so often, by `SET .. NX`.
    Polls(Duration),
}

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// How many wait at each release, each a client with connections of its own.
    pub waiters: usize,
    /// How long each holds it.
    pub hold: Duration,
    /// How many hand-offs, at the most.
    pub hand_offs: usize,
    /// For how long, at the most.
    pub lasting: Duration,
}

/// What was measured.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// From right before a release was asked for until the next one had it; shortest first.
    pub gaps: Vec<Duration>,
    /// From when a waiter asked until it had it; shortest first. Who never got it is not among them.
    pub waits: Vec<Duration>,
    /// How often each had it.
    pub turns: Vec<u64>,
    /// Commands that clients sent, for each hand-off.
    pub sent: f64,
    /// Pushes, for each hand-off.
    pub pushed: f64,
    /// How long it took in all.
    pub lasted: Duration,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gaps, waits, turns, sent, pushed, lasted: _ } = self;
        let at = |of: &[Duration], share| quantile(of, share).as_secs_f64() * 1000.0;
        let (most, least) = (turns.iter().max().unwrap_or(&0), turns.iter().min().unwrap_or(&0));
        write!(
            f,
            "{:>5} hand-offs  p50 {:>8.2} ms  p99 {:>8.2} ms   wait p50 {:>8.1} ms  p99 {:>8.1} ms   {sent:>6.2} \
             commands, {pushed:.2} pushes each   turns {most} to {least}",
            gaps.len(),
            at(gaps, 0.5),
            at(gaps, 0.99),
            at(waits, 0.5),
            at(waits, 0.99),
        )
    }
}

/// One who takes its turn: where all of them meet is [`Meeting`].
enum Player {
    Told(Leasehold),
    Polls(MultiplexedConnection, Duration),
}

/// What all players of a measurement share. They are tasks of one thread.
struct Meeting {
    clock: Clock,
    plan: Plan,
    name: String,
    /// When the last release was asked for, and by whom.
    released: Cell<Option<BootTime>>,
    holders: Cell<u32>,
    /// How many turns there were.
    turn: watch::Sender<usize>,
    measured: RefCell<Measured>,
}

/// Measures one manner on a server that nobody else uses.
///
/// # Errors
///
/// When a client fails, or two hold it at once.
pub async fn measure(server: &Server, manner: Manner, plan: Plan) -> Result<Measured, Trouble> {
    let name = format!("waiting:{manner:?}:{}", plan.waiters);
    let meeting = Rc::new(Meeting {
        clock: Clock::system(),
        plan,
        name,
        released: Cell::default(),
        holders: Cell::default(),
        turn: watch::Sender::default(),
        measured: RefCell::default(),
    });
    let count = plan.waiters + 1;
    meeting.measured.borrow_mut().turns = vec![0; count];
    let mut players = Vec::new();
    for _ in 0..count {
        players.push(player(server, manner).await?);
    }
    let clients = players.iter().filter_map(|player| match player {
        Player::Told(client) => Some(client.clone()),
        Player::Polls(..) => None,
    });
    let clients: Vec<Leasehold> = clients.collect();
    let (before, start) = (counts(server)?, meeting.clock.now());
    let tasks = players.into_iter().enumerate().map(|(number, player)| {
        let meeting = Rc::clone(&meeting);
        Box::pin(async move { meeting.play(number, player).await })
    });
    // The first who stops has seen the last hand-off. What the others would ask is nobody's business any more.
    let (ended, ..) = select_all(tasks).await;
    ended?;
    let (after, end) = (counts(server)?, meeting.clock.now());
    join_all(clients.into_iter().map(Leasehold::close)).await;
    let mut measured = meeting.measured.take();
    measured.lasted = end.since(start);
    measured.gaps.sort();
    measured.waits.sort();
    let each = |names: &[&str]| {
        let of = |counts: &BTreeMap<String, u64>| -> u64 {
            names.iter().filter_map(|name| counts.get(*name)).sum()
        };
        (of(&after) - of(&before)) as f64 / measured.gaps.len().max(1) as f64
    };
    (measured.sent, measured.pushed) = match manner {
        Manner::Told => (each(&["eval", "evalsha"]), each(&["publish"])),
        Manner::Polls(_) => (each(&["eval", "evalsha", "set"]), each(&["publish"])),
    };
    Ok(measured)
}

async fn player(server: &Server, manner: Manner) -> Result<Player, Trouble> {
    Ok(match manner {
        Manner::Told => Player::Told(Leasehold::connect(&socket_url(server)).await?),
        Manner::Polls(every) => {
            let client = redis::Client::open(format!("unix://{}", socket(server).display()))?;
            Player::Polls(client.get_multiplexed_async_connection().await?, every)
        }
    })
}

impl Meeting {
    async fn play(&self, number: usize, mut player: Player) -> Result<(), Trouble> {
        let end = self.clock.now().after(self.plan.lasting);
        let id = format!("player {number}");
        let script = Script::new(COMPARE_AND_DELETE);
        let mut dice = fastrand::Rng::with_seed(number as u64);
        let mut turns = self.turn.subscribe();
        loop {
            let asked = self.clock.now();
            let mine = match &mut player {
                Player::Told(client) => {
                    let lease = client.lock(&self.name).ttl(TTL).acquire().await?;
                    let mine = self.take_turn(number, asked).await?;
                    lease.release().await?;
                    mine
                }
                Player::Polls(connection, every) => {
                    let millis = TTL.as_millis() as u64;
                    let mut set = redis::cmd("SET");
                    set.arg(&self.name).arg(&id).arg("NX").arg("PX").arg(millis);
                    while set.query_async::<Option<String>>(connection).await?.is_none() {
                        // Not all at the same moment, though all wait for the same one.
                        tokio::time::sleep(every.mul_f64(0.5 + dice.f64())).await;
                    }
                    let mine = self.take_turn(number, asked).await?;
                    script.key(&self.name).arg(&id).invoke_async::<i64>(connection).await?;
                    mine
                }
            };
            // Somebody else's turn, or a poller would take it again and again before anybody else looks.
            turns.wait_for(|turn| *turn > mine).await?;
            if *turns.borrow() > self.plan.hand_offs || self.clock.now() >= end {
                return Ok(());
            }
        }
    }

    /// Holds it for a while; the release comes next. Gives the number of the turn.
    async fn take_turn(&self, number: usize, asked: BootTime) -> Result<usize, Trouble> {
        let now = self.clock.now();
        if self.holders.replace(1) != 0 {
            return Err("two hold it at once".into());
        }
        self.note(number, now, asked);
        self.turn.send_modify(|turn| *turn += 1);
        let turn = *self.turn.borrow();
        tokio::time::sleep(self.plan.hold).await;
        self.holders.set(0);
        self.released.set(Some(self.clock.now()));
        Ok(turn)
    }

    fn note(&self, number: usize, now: BootTime, asked: BootTime) {
        let mut measured = self.measured.borrow_mut();
        measured.turns[number] += 1;
        // The first one was handed it by nobody.
        if let Some(released) = self.released.take() {
            measured.gaps.push(now.since(released));
            measured.waits.push(now.since(asked));
        }
    }
}

/// How often each command was executed so far: what clients sent, and what scripts did.
fn counts(server: &Server) -> Result<BTreeMap<String, u64>, Trouble> {
    let told = ask(server, &["INFO", "commandstats"])?;
    let counts = told.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split_once(',')?.0.parse().ok()?))
    });
    Ok(counts.collect())
}
