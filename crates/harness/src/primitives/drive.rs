//! What the hosts of a run do: random programs, each task its own.

use std::cell::RefCell;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::{Clock, Error, Lease, Leasehold, Lock, Lost, Queueing, Result, Scope, Shares};
use leasehold_conformance::{Check, Failure, drop_after};

use super::fate::{afterwards, fate};
use super::model::{Hold, Kind, Want};
use super::record::{Recorder, Records, Told};
use super::scene::{HOSTS, Host, MOST, Scene};

/// How many tasks a host has.
const TASKS: usize = 2;
/// How many scopes a host has.
const SCOPES: usize = 2;
/// How many times each asks for something.
const ROUNDS: usize = 3;
/// What the names of a run may be.
pub(super) const KINDS: [Kind; 5] =
    [Kind::Mutex, Kind::ReadWrite, Kind::Permits(3), Kind::Reentrant, Kind::Once];
/// How many names a run has.
pub const NAMES: usize = 2;

/// One run: what happened, and what befell.
#[derive(Debug)]
pub struct Ran {
    /// What happened.
    pub records: Records,
    /// What its names could be.
    pub offered: Vec<Kind>,
    /// Whether its leases change their share.
    pub changes: bool,
    /// How often a host was cut off for a while.
    pub cuts: u64,
    /// How many requests and replies were lost, late or refused.
    pub mishaps: u64,
    /// How much time was passed over.
    pub passed: Duration,
}

/// Runs the programs of this seed.
///
/// # Errors
///
/// What no program may meet.
pub(super) async fn run(scene: &Scene, seed: u64) -> Check<Ran> {
    let mut dice = fastrand::Rng::with_seed(seed);
    let changes = scene.hosts[0].client.capabilities().reshaping;
    let (offered, has_line) = offer(&scene.hosts[0].client);
    let kinds: Vec<Kind> = (0..NAMES).map(|_| offered[dice.usize(..offered.len())]).collect();
    let scopes: Vec<Vec<Scope>> = scene.hosts.iter().map(|host| scopes(&host.client)).collect();
    let recorder = Recorder::new(scene.clock.clone(), kinds.clone());
    let troubles = RefCell::new(Vec::new());
    let cuts = RefCell::new(0);
    let program = |host: usize| {
        let host = &scene.hosts[host];
        let fair = dice.u8(..4) == 0 && has_line;
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| Task {
                host,
                kinds: &kinds,
                scopes: &scopes[host.number],
                recorder: &recorder,
                troubles: &troubles,
                clock: &scene.clock,
                ttl: scene.ttl,
                fair,
                dice: dice.fork(),
            })
            .collect();
        let fate = fate(scene, host, &recorder, &cuts, dice.fork());
        async move {
            let mut dead = host.dead.subscribe();
            let work = async {
                tokio::join!(join_all(tasks.into_iter().map(Task::run)), fate);
            };
            tokio::select! {
                biased;
                _ = dead.wait_for(|dead| *dead) => {}
                () = work => {}
            }
        }
    };
    let programs: Vec<_> = (0..HOSTS).map(program).collect();
    let mut ticks = dice.fork();
    let all = async {
        join_all(programs).await;
        afterwards(scene, &kinds, &recorder).await
    };
    let too_late = scene.clock.now().after(scene.ttl * MOST);
    tokio::select! {
        done = all => done?,
        () = scene.pass_time(&mut ticks) => {}
        () = scene.clock.sleep_until(too_late) => {
            let story = story(&recorder.records());
            return Err(Failure::new(format!("somebody waits for ever\n{story}")));
        }
    }
    if let Some(trouble) = troubles.take().into_iter().next() {
        return Err(trouble);
    }
    let cuts = cuts.take();
    let (records, mishaps, passed) = (recorder.records(), scene.mishaps(), scene.moved.get());
    Ok(Ran { records, offered, changes, cuts, mishaps, passed })
}

/// What the names of a run may be on this store, and whether it keeps a line: a quorum has neither shares nor marks.
fn offer(client: &Leasehold) -> (Vec<Kind>, bool) {
    let may = client.capabilities();
    let has = |kind: &Kind| match kind {
        Kind::Mutex | Kind::Reentrant => true,
        Kind::ReadWrite | Kind::Permits(_) => may.shares == Shares::Any,
        // Whatever keeps permits keeps marks as well.
        Kind::Once => may.shares == Shares::Any,
    };
    (KINDS.into_iter().filter(has).collect(), may.queueing != Queueing::Never)
}

/// The whole story, for people.
pub(super) fn story(records: &Records) -> String {
    let lines = records.events.iter().enumerate().map(|(at, event)| format!("{at:>4} {event}\n"));
    let deaths = records.deaths.iter().map(|(host, at, _)| format!("host {host} died before event {at}\n"));
    let kinds = records.kinds.iter().enumerate().map(|(name, kind)| format!("name {name} is {kind:?}\n"));
    kinds.chain(deaths).chain(lines).collect()
}

/// What only one can have.
pub(super) const fn most(kind: Kind) -> Want {
    match kind {
        Kind::Mutex | Kind::Once => Want::All,
        Kind::ReadWrite => Want::Write,
        Kind::Permits(all) => Want::Permits(all),
        // Of nobody else's.
        Kind::Reentrant => Want::Scope(1000),
    }
}

/// The scopes that the tasks of a host share.
pub(super) fn scopes(client: &Leasehold) -> Vec<Scope> {
    (0..SCOPES).map(|number| client.scope(format!("scope {number}"))).collect()
}

pub(super) fn lock(client: &Leasehold, scopes: &[Scope], kind: Kind, want: Want, name: usize) -> Check<Lock> {
    let name = called(name);
    match (kind, want) {
        (Kind::Mutex | Kind::Once, Want::All) => Ok(client.lock(name)),
        (Kind::ReadWrite, Want::Read) => Ok(client.rwlock(name).read()),
        (Kind::ReadWrite, Want::Upgradeable) => Ok(client.rwlock(name).upgradeable()),
        (Kind::ReadWrite, Want::Write) => Ok(client.rwlock(name).write()),
        (Kind::Permits(all), Want::Permits(some)) => Ok(client.semaphore(name, all).permits(some)),
        (Kind::Reentrant, Want::Scope(scope)) => Ok(scopes[scope as usize % SCOPES].lock(name)),
        _ => Err(Failure::new(format!("{kind:?} cannot be asked for {want:?}"))),
    }
}

pub(super) fn called(name: usize) -> String {
    format!("name:{name}")
}

/// One task of a host.
pub(super) struct Task<'a> {
    pub(super) host: &'a Host,
    pub(super) kinds: &'a [Kind],
    scopes: &'a [Scope],
    pub(super) recorder: &'a Recorder,
    troubles: &'a RefCell<Vec<Failure>>,
    pub(super) clock: &'a Clock,
    pub(super) ttl: Duration,
    fair: bool,
    pub(super) dice: fastrand::Rng,
}

/// What a task has.
struct Has {
    name: usize,
    hold: Hold,
    lease: Lease,
    /// What it got, and what it takes now.
    got: Want,
    takes: Want,
}

impl Task<'_> {
    async fn run(mut self) {
        for _ in 0..ROUNDS {
            self.pause(0.4).await;
            if let Err(trouble) = self.round().await {
                self.troubles.borrow_mut().push(trouble);
                return;
            }
        }
    }

    async fn round(&mut self) -> Check {
        let name = self.dice.usize(..self.kinds.len());
        let kind = self.kinds[name];
        if kind == Kind::Once {
            return self.once(name).await;
        }
        if self.kinds.iter().all(|kind| *kind == Kind::Mutex) && self.dice.u8(..4) == 0 {
            return self.all_of_them().await;
        }
        let want = self.some_want(kind);
        let Some(mut has) = self.acquire(name, want).await? else { return Ok(()) };
        self.hold(&mut has).await?;
        if kind == Kind::Reentrant
            && self.dice.bool()
            && let Some(mut again) = self.acquire(name, want).await?
        {
            self.hold(&mut again).await?;
            if self.dice.bool() {
                std::mem::swap(&mut has, &mut again);
            }
            self.end(again).await?;
            self.hold(&mut has).await?;
        }
        self.end(has).await
    }

    pub(super) fn tell(&self, name: usize, hold: Hold, told: Told) {
        self.recorder.tell(name, self.host.number, hold, told);
    }

    fn some_want(&mut self, kind: Kind) -> Want {
        match kind {
            Kind::Mutex | Kind::Once => Want::All,
            Kind::ReadWrite => [Want::Read, Want::Read, Want::Upgradeable, Want::Write][self.dice.usize(..4)],
            Kind::Permits(all) => Want::Permits(self.dice.u32(1..=all)),
            Kind::Reentrant => {
                let host = u32::try_from(self.host.number * SCOPES).unwrap_or_default();
                Want::Scope(host + self.dice.u32(0..2))
            }
        }
    }

    /// A while, up to this part of the ttl.
    pub(super) async fn pause(&mut self, longest: f64) {
        let long = self.ttl.mul_f64(self.dice.f64() * longest);
        self.clock.sleep_until(self.clock.now().after(long)).await;
    }

    /// Drops a future now and then, where it stands.
    pub(super) async fn perhaps<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        match self.dice.u8(..8) {
            0 => drop_after(self.dice.usize(..4), future).await,
            1 => {
                let until = self.clock.now().after(self.ttl.mul_f64(self.dice.f64()));
                tokio::select! {
                    answer = future => Some(answer),
                    () = self.clock.sleep_until(until) => None,
                }
            }
            _ => Some(future.await),
        }
    }

    async fn acquire(&mut self, name: usize, want: Want) -> Check<Option<Has>> {
        let lock = lock(&self.host.client, self.scopes, self.kinds[name], want, name)?.ttl(self.ttl);
        let lock = if self.fair { lock.fair() } else { lock };
        let hold = self.recorder.asks(name, self.host.number, want);
        let within = self.ttl.mul_f64(self.dice.f64() * 2.0);
        let answer: Option<Result<Lease>> = match self.dice.u8(..10) {
            0..2 => self.perhaps(lock.attempt()).await,
            2..4 => {
                let lease = self.perhaps(lock.try_acquire()).await;
                let busy = || Error::Busy(Box::new(leasehold::Busy::unknown(lock_name(name), None)));
                lease.map(|answer| answer.and_then(|lease| lease.ok_or_else(busy)))
            }
            4..7 => self.perhaps(lock.acquire_within(within)).await,
            _ => self.perhaps(lock.acquire()).await,
        };
        match answer {
            Some(Ok(lease)) => {
                self.tell(name, hold, Told::Granted(lease.token().get(), lease.remaining()));
                return Ok(Some(Has { name, hold, lease, got: want, takes: want }));
            }
            Some(Err(Error::Busy(_))) => self.tell(name, hold, Told::Busy),
            None | Some(Err(Error::TimedOut { .. } | Error::Store(_))) => self.tell(name, hold, Told::GaveUp),
            Some(Err(error)) => return Err(Failure::new(format!("an acquire of #{hold} failed: {error}"))),
        }
        Ok(None)
    }

    async fn hold(&mut self, has: &mut Has) -> Check {
        for _ in 0..self.dice.u8(..4) {
            let longest = if self.dice.u8(..6) == 0 { 1.5 } else { 0.25 };
            self.pause(longest).await;
            if self.dice.u8(..6) == 0 {
                // What it answers is seen by the check.
                drop(self.perhaps(has.lease.ensure(self.ttl / 2)).await);
            }
            self.look(has);
            if self.kinds[has.name] == Kind::ReadWrite && self.dice.u8(..2) == 0 {
                self.change(has).await?;
                self.look(has);
            }
        }
        Ok(())
    }

    fn look(&self, has: &Has) {
        let checked: Result<_, Lost> = has.lease.check();
        match checked {
            Ok(token) => self.tell(has.name, has.hold, Told::Holds(token.get(), has.lease.remaining())),
            Err(_) => self.tell(has.name, has.hold, Told::Lost),
        }
    }

    /// Upgrades or downgrades.
    async fn change(&mut self, has: &mut Has) -> Check {
        let (name, hold) = (has.name, has.hold);
        let up = has.takes == Want::Upgradeable && self.dice.u8(..3) > 0;
        let wanted = match has.takes {
            Want::Upgradeable if up => Want::Write,
            Want::Write if has.got == Want::Upgradeable => Want::Upgradeable,
            _ => Want::Read,
        };
        let within = self.ttl.mul_f64(self.dice.f64() * 2.0);
        let verb = self.dice.u8(..3);
        self.tell(name, hold, Told::Changing(wanted));
        let lease = &mut has.lease;
        let answer = match (up, verb) {
            (false, _) => self.perhaps(lease.downgrade()).await.map(|done| done.map(|()| true)),
            (true, 0) => {
                self.perhaps(lease.try_upgrade()).await.map(|done| done.map(|token| token.is_some()))
            }
            (true, 1) => self.perhaps(lease.upgrade_within(within)).await.map(|done| done.map(|_| true)),
            (true, _) => self.perhaps(lease.upgrade()).await.map(|done| done.map(|_| true)),
        };
        let refused = matches!(answer, Some(Err(Error::Unsupported(_))));
        if (!up && !refused) || matches!(answer, Some(Ok(true))) {
            has.takes = wanted;
        }
        let told = match answer {
            Some(Ok(true)) => Told::Changed(has.lease.token().get()),
            Some(Ok(false) | Err(Error::TimedOut { .. } | Error::Busy(_))) => Told::NotChanged,
            None | Some(Err(Error::Store(_) | Error::Lost(_))) => Told::ChangeUnknown,
            // Said before anything was sent.
            Some(Err(Error::Unsupported(_))) => Told::NotChanged,
            Some(Err(error)) => return Err(Failure::new(format!("a change of #{hold} failed: {error}"))),
        };
        self.tell(name, hold, told);
        Ok(())
    }

    async fn end(&mut self, has: Has) -> Check {
        let Has { name, hold, lease, got: _, takes: _ } = has;
        match self.dice.u8(..10) {
            // Who holds it several times keeps it by the others.
            0 if self.kinds[name] != Kind::Reentrant => {
                self.tell(name, hold, Told::Left);
                lease.keep();
            }
            1..3 => {
                self.tell(name, hold, Told::LetGo);
                drop(lease);
            }
            _ => {
                self.tell(name, hold, Told::Releasing);
                let told = match self.perhaps(lease.release()).await {
                    Some(Ok(())) => Told::Released,
                    Some(Err(Error::Lost(_))) => Told::ReleasedTooLate,
                    None | Some(Err(Error::Store(_))) => Told::LetGo,
                    Some(Err(error)) => {
                        return Err(Failure::new(format!("the release of #{hold} failed: {error}")));
                    }
                };
                self.tell(name, hold, told);
            }
        }
        Ok(())
    }
}

fn lock_name(name: usize) -> leasehold::LockName {
    #[expect(clippy::unwrap_used, reason = "a plain word and a number make a name")]
    leasehold::LockName::parse(&called(name)).unwrap()
}
