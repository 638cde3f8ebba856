//! The server, the ways to it, and the one who strikes.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::{Check, ensure};
use leasehold_core::{BootTime, Clock};
use rustix::process::Signal;

use super::fault::{Blow, Fault};
use super::fighter::Fighter;
use super::{FIGHTERS, NAMES, TTL};
use crate::proxy::{Mode, Odds, Proxy};
use crate::servers::net::Host;
use crate::servers::redis::{Redis, ask, socket, step};
use crate::servers::{NoServer, Server, clock};

/// How long one answer may take: two missed ones make a new connection, within a ttl.
const TIMEOUT: Duration = Duration::from_millis(250);

/// One stroke: from before it began until after it was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stroke {
    pub(super) from: BootTime,
    pub(super) to: BootTime,
}

/// All strokes of a campaign.
#[derive(Debug, Default)]
pub(super) struct Struck {
    pub(super) strokes: Vec<Stroke>,
    /// When servers that stood still woke, from before each did until all agreed again who leads.
    pub(super) wakes: Vec<Stroke>,
    /// Leases that were given back, and renewed, while one lasted.
    pub(super) endangered: u64,
    /// By how much who strikes missed his own time at the most.
    pub(super) starved: Duration,
}

/// Where a campaign is fought.
pub(super) trait Staged {
    /// The way of a client to the store.
    fn url(&self, number: usize) -> String;
    /// The host of a client, where they are not all on this machine.
    fn home(&self, _number: usize) -> Option<Host> {
        None
    }
    /// Strikes again and again for so long, and returns when all is well again.
    fn strike(&mut self, clock: &Clock, lasting: Duration, fighters: &[Arc<Fighter>]) -> Check<Struck>;
    /// Keys of the names that are left when everybody has gone, long after the last lease has run out: places that
    /// nobody waits in, holders that nobody is.
    fn left(&self) -> Check<Vec<String>>;
}

/// All there is.
#[derive(Debug)]
pub(super) struct Stage {
    fault: &'static Fault,
    server: Server,
    proxies: Arc<Vec<Proxy>>,
    dice: fastrand::Rng,
    /// How far the server's clock is from the machine's, in nanoseconds.
    ahead: i64,
}

impl Stage {
    pub(super) fn open(fault: &'static Fault, seed: u64) -> Result<Self, NoServer> {
        let mut redis = Redis::default().line("maxmemory-policy noeviction");
        match fault.blow {
            Blow::Restart { durable: true } => {
                redis = redis.line("appendonly yes").line("appendfsync always");
            }
            Blow::StepForward | Blow::StepBack | Blow::Tremble => {
                redis.clock = Some(clock::library()?);
            }
            Blow::Busy => redis = redis.line("lua-time-limit 50"),
            _ => {}
        }
        // In its file, so that it is there again after a restart.
        redis = redis.line("user fighter on >secret ~* &* +@all");
        let server = redis.start()?;
        let proxies =
            (0..FIGHTERS).map(|number| Proxy::start(server.address(), seed.wrapping_add(number as u64)));
        let proxies = Arc::new(proxies.collect::<Result<Vec<_>, _>>()?);
        let dice = fastrand::Rng::with_seed(seed);
        Ok(Self { fault, server, proxies, dice, ahead: 0 })
    }

    fn begin(&mut self, victims: &[usize], lasts: Duration) -> Check {
        let all = |mode| victims.iter().for_each(|number| self.proxies[*number].set(mode));
        let far = self.dice.i64(2_000_000_000..20_000_000_000);
        match self.fault.blow {
            Blow::Stop => self.server.signal(Signal::STOP)?,
            Blow::Restart { .. } => self.server.kill(),
            Blow::Flush => self.ok(&["FLUSHALL"])?,
            Blow::FlushScripts => self.ok(&["SCRIPT", "FLUSH"])?,
            Blow::KillClients => {
                for kind in ["normal", "pubsub"] {
                    self.say(&["CLIENT", "KILL", "TYPE", kind])?;
                }
            }
            Blow::EatReplies => all(Mode::EatReplies),
            Blow::EatRequests => all(Mode::EatRequests),
            Blow::Freeze => all(Mode::Freeze),
            Blow::FreezeOld => all(Mode::FreezeOld),
            Blow::Delay => {
                let by = TTL.mul_f64(0.02 + 0.3 * self.dice.f64());
                victims.iter().for_each(|number| self.proxies[*number].set(Mode::Delay(by)));
            }
            Blow::Cut => victims.iter().for_each(|number| self.proxies[*number].cut()),
            Blow::Refuse => all(Mode::Refuse),
            Blow::Trickle => all(Mode::Trickle(Duration::from_micros(50))),
            Blow::Duplicate => {
                let by = (TTL / 2).mul_f64(self.dice.f64());
                victims.iter().for_each(|number| self.proxies[*number].set(Mode::Duplicate(by)));
            }
            Blow::Mishaps => {
                let odds = Odds { eat_reply: 5, eat_request: 5, late: 10, late_by: TTL.mul_f64(0.4) };
                victims.iter().for_each(|number| self.proxies[*number].odds(odds));
            }
            Blow::Deny => self.ok(&["ACL", "SETUSER", "fighter", "-eval", "-evalsha"])?,
            Blow::Fill => self.ok(&["CONFIG", "SET", "maxmemory", "1"])?,
            Blow::Pause => {
                let millis = lasts.as_millis().to_string();
                self.ok(&["CLIENT", "PAUSE", &millis, "WRITE"])?;
            }
            Blow::Busy => {
                // Sent, and not waited for.
                let mut stream = UnixStream::connect(socket(&self.server))?;
                let script = "while true do end";
                write!(stream, "*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n", script.len())?;
            }
            Blow::Demote => self.ok(&["REPLICAOF", "127.0.0.1", "1"])?,
            Blow::StepForward => self.step(far)?,
            Blow::StepBack => self.step(-far)?,
            // These have stages of their own.
            Blow::Nodes | Blow::Split(_) | Blow::Ring(_) | Blow::FailOver { .. } | Blow::Elected(..) => {}
            Blow::Tremble => self.step(if self.ahead == 0 { 4_000_000 } else { -self.ahead })?,
        }
        Ok(())
    }

    fn end(&mut self, victims: &[usize]) -> Check {
        match self.fault.blow {
            Blow::Stop => self.server.signal(Signal::CONT)?,
            Blow::Restart { .. } => self.server.go_on()?,
            Blow::Deny => self.ok(&["ACL", "SETUSER", "fighter", "+eval", "+evalsha"])?,
            Blow::Fill => self.ok(&["CONFIG", "SET", "maxmemory", "0"])?,
            Blow::Pause => self.ok(&["CLIENT", "UNPAUSE"])?,
            // It may not have begun, and is not killed before it has been slow for a while.
            Blow::Busy => while !self.say(&["SCRIPT", "KILL"])?.starts_with("+OK") {},
            Blow::Demote => self.ok(&["REPLICAOF", "NO", "ONE"])?,
            Blow::Mishaps => victims.iter().for_each(|number| self.proxies[*number].odds(Odds::default())),
            _ => victims.iter().for_each(|number| self.proxies[*number].set(Mode::Pass)),
        }
        Ok(())
    }

    /// Moves the clock on, or back, by so many nanoseconds.
    fn step(&mut self, by: i64) -> Check {
        self.ahead += by;
        Ok(step(&self.server, self.ahead)?)
    }

    fn say(&self, words: &[&str]) -> Check<String> {
        Ok(ask(&self.server, words)?)
    }

    fn ok(&self, words: &[&str]) -> Check {
        let answer = self.say(words)?;
        ensure!(answer.starts_with("+OK"), "{words:?}: {answer}");
        Ok(())
    }
}

impl Staged for Stage {
    fn url(&self, number: usize) -> String {
        // As long as the longest lease of all who ask.
        let more = if self.fault.settles > 0 { "&restart_delay=1s" } else { "" };
        let (address, timeout) = (self.proxies[number].address(), TIMEOUT.as_millis());
        format!("redis://fighter:secret@{address}?timeout={timeout}ms{more}")
    }

    fn strike(&mut self, clock: &Clock, lasting: Duration, fighters: &[Arc<Fighter>]) -> Check<Struck> {
        let mut struck = Struck::default();
        let settles = TTL.mul_f64(self.fault.settles as f64 / 100.0);
        // It begins when somebody holds something.
        rest(clock, TTL / 2 + settles, &mut struck);
        let end = clock.now().after(lasting);
        while clock.now() < end {
            let (least, most) = self.fault.lasting;
            let hundredths = self.dice.u64(least..=most);
            let lasts = TTL.mul_f64(hundredths as f64 / 100.0);
            let from = clock.now();
            let victims = victims(&mut self.dice);
            self.begin(&victims, lasts)?;
            rest(clock, lasts, &mut struck);
            self.end(&victims)?;
            struck.strokes.push(Stroke { from, to: clock.now() });
            let calm = TTL.mul_f64(0.3 + 0.9 * self.dice.f64());
            rest(clock, settles + calm, &mut struck);
        }
        struck.endangered = fighters.iter().map(|fighter| fighter.pen.endangered()).sum();
        Ok(struck)
    }

    fn left(&self) -> Check<Vec<String>> {
        // Even where its clock went back: what is left of a lease of ours is cut by whoever comes, and nobody comes.
        if self.ahead < 0 {
            return Ok(Vec::new());
        }
        left(|key| Ok(!self.say(&["EXISTS", key])?.starts_with(":0")))
    }
}

/// Those whom it befalls: some, never all, so that others are there to take what they hold.
pub(super) fn victims(dice: &mut fastrand::Rng) -> Vec<usize> {
    let mut all: Vec<usize> = (0..FIGHTERS).collect();
    dice.shuffle(&mut all);
    all.truncate(dice.usize(1..FIGHTERS));
    all
}

/// Of the keys of the names those that are there long after the last lease has run out.
pub(super) fn left(is_there: impl Fn(&str) -> Check<bool>) -> Check<Vec<String>> {
    let clock = Clock::system();
    let until = clock.now().after(TTL * 4);
    loop {
        let mut left = Vec::new();
        for key in NAMES.iter().map(|name| format!("lock:{name}")) {
            if is_there(&key)? {
                left.push(key);
            }
        }
        if left.is_empty() || clock.now() >= until {
            return Ok(left);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Lets time pass, and notes if it was more than that.
pub(super) fn rest(clock: &Clock, pause: Duration, struck: &mut Struck) {
    let mut left = pause;
    while !left.is_zero() {
        // In parts, so that it is seen whenever this thread does not get to run.
        let part = left.min(Duration::from_millis(20));
        let wanted = clock.now().after(part);
        std::thread::sleep(part);
        struck.starved = struck.starved.max(clock.now().since(wanted));
        left -= part;
    }
}
