//! Servers that choose their leader while clients fight for their locks, and the one who kills and stops them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::Check;
use leasehold_core::{BootTime, Clock};
use rustix::process::Signal;

use super::FIGHTERS;
use super::fault::{Fault, Harm};
use super::fighter::Fighter;
use super::stage::{Staged, Stroke, Struck, rest, victims};
use crate::proxy::{Mode, Proxy};
use crate::servers::NoServer;
use crate::servers::elected::{Elected, Maker};

/// No session is longer than 20 ticks, and one that only looked is as long as it can be. Its end is noticed a tick late.
const ENDED: Duration = Duration::from_secs(14);

/// All there is.
#[derive(Debug)]
pub(super) struct Assembly {
    fault: &'static Fault,
    harm: Harm,
    /// The ways to the only server, where they are what suffers.
    proxies: Vec<Proxy>,
    servers: Elected,
    dice: fastrand::Rng,
}

impl Harm {
    /// Whether it befalls the ways of clients, each to the same server.
    fn is_on_the_way(self) -> bool {
        match self {
            Self::EatReplies | Self::Freeze | Self::Compact => true,
            Self::LeaderKilled
            | Self::LeaderStopped
            | Self::MemberKilled
            | Self::MemberStopped
            | Self::AllStopped
            | Self::Revoke => false,
        }
    }
}

impl Assembly {
    pub(super) fn open(fault: &'static Fault, maker: Maker, harm: Harm, seed: u64) -> Result<Self, NoServer> {
        let alone = harm.is_on_the_way();
        let servers = Elected::start(maker, if alone { 1 } else { 3 })?;
        servers.settled()?;
        let ways = if alone { FIGHTERS } else { 0 };
        let address = servers.servers()[0].address();
        let proxies = (0..ways).map(|number| Proxy::start(address, seed.wrapping_add(number as u64)));
        let proxies = proxies.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { fault, harm, proxies, servers, dice: fastrand::Rng::with_seed(seed) })
    }

    /// Which servers it befalls.
    fn struck(&mut self) -> Check<Vec<usize>> {
        let leader = self.servers.leader()?;
        Ok(match self.harm {
            Harm::LeaderKilled | Harm::LeaderStopped => vec![leader],
            Harm::MemberKilled | Harm::MemberStopped => vec![(leader + self.dice.usize(1..=2)) % 3],
            Harm::AllStopped => vec![0, 1, 2],
            Harm::EatReplies | Harm::Freeze | Harm::Revoke | Harm::Compact => Vec::new(),
        })
    }

    fn begin(&mut self, servers: &[usize], clients: &[usize]) -> Check {
        let all = |mode| clients.iter().for_each(|number| self.proxies[*number].set(mode));
        match self.harm {
            Harm::LeaderKilled | Harm::MemberKilled => {
                servers.iter().for_each(|server| self.servers.servers_mut()[*server].kill());
            }
            Harm::LeaderStopped | Harm::MemberStopped | Harm::AllStopped => {
                self.signal(servers, Signal::STOP)?;
            }
            Harm::EatReplies => all(Mode::EatReplies),
            Harm::Freeze => all(Mode::Freeze),
            Harm::Compact => all(Mode::Refuse),
            Harm::Revoke => {
                if let Elected::Etcd(members) = &self.servers {
                    members.revoke_all(members.leader()?)?;
                }
            }
        }
        Ok(())
    }

    fn end(&mut self, servers: &[usize], clients: &[usize]) -> Check {
        match self.harm {
            Harm::LeaderKilled | Harm::MemberKilled => {
                for server in servers {
                    self.servers.servers_mut()[*server].go_on()?;
                }
            }
            Harm::LeaderStopped | Harm::MemberStopped | Harm::AllStopped => {
                self.signal(servers, Signal::CONT)?;
            }
            Harm::EatReplies | Harm::Freeze | Harm::Compact => {
                if let (Harm::Compact, Elected::Etcd(members)) = (self.harm, &self.servers) {
                    members.compact(0)?;
                }
                clients.iter().for_each(|number| self.proxies[*number].set(Mode::Pass));
            }
            Harm::Revoke => {}
        }
        Ok(())
    }

    fn signal(&self, servers: &[usize], signal: Signal) -> Check {
        for server in servers {
            self.servers.servers()[*server].signal(signal)?;
        }
        Ok(())
    }
}

impl Staged for Assembly {
    fn url(&self, number: usize) -> String {
        match self.proxies.get(number) {
            Some(proxy) => self.servers.url_of(&[proxy.address().to_string()]),
            None => self.servers.url(),
        }
    }

    fn strike(&mut self, clock: &Clock, lasting: Duration, fighters: &[Arc<Fighter>]) -> Check<Struck> {
        let mut struck = Struck::default();
        let ttl = self.fault.ttl;
        rest(clock, ttl / 2, &mut struck);
        let end = clock.now().after(lasting);
        while clock.now() < end {
            let (least, most) = self.fault.lasting;
            let lasts = ttl.mul_f64(self.dice.u64(least..=most) as f64 / 100.0);
            let (servers, mut clients) = (self.struck()?, victims(&mut self.dice));
            // One who holds long loses by it.
            if self.harm == Harm::Freeze && !clients.contains(&0) {
                clients.push(0);
            }
            let from = clock.now();
            self.begin(&servers, &clients)?;
            rest(clock, lasts, &mut struck);
            let wakes = clock.now();
            self.end(&servers, &clients)?;
            struck.strokes.push(Stroke { from, to: clock.now() });
            self.servers.settled()?;
            struck.wakes.push(Stroke { from: wakes, to: clock.now() });
            let calm = ttl.mul_f64(0.3 + 0.6 * self.dice.f64());
            rest(clock, calm, &mut struck);
        }
        struck.endangered = fighters.iter().map(|fighter| fighter.pen.endangered()).sum();
        Ok(struck)
    }

    fn left(&self) -> Check<Vec<String>> {
        none_left(&self.servers, self.fault.ttl)
    }
}

/// What is left when everybody has gone, long after the last lease has run out: first what stands in a line, then also
/// what is alive and stands nowhere.
pub(super) fn none_left(servers: &Elected, ttl: Duration) -> Check<Vec<String>> {
    let clock = Clock::system();
    let now = clock.now();
    let none = |until: BootTime, left: &dyn Fn() -> io::Result<Vec<String>>| loop {
        let left = left()?;
        if left.is_empty() || clock.now() >= until {
            return Ok(left);
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let claims = none(now.after(ttl * 4), &|| servers.claims())?;
    if claims.is_empty() { none(now.after(ENDED), &|| servers.left()) } else { Ok(claims) }
}
