//! Many tasks over one store and a few names, under mishaps of every kind, and a history of it that is checked.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    BootTime, Claim, Clock, Cursor, Leave, PLACE_LIFE, Queueing, Renewal, Share, Shares, State, Store,
    Together, Token, Turn,
};

use crate::bench::{Bench, name};
use crate::chaos::{Chaos, Odds};
use crate::client::renewal;
use crate::history::{Happened, Least, check_history};
use crate::recorder::Recorder;
use crate::{Check, Failure, drop_after, ensure};

crate::cases::cases! {
    workload_under_mishaps_keeps_every_promise [PerClaim],
}

const TASKS: u32 = 8;
/// How many claims each task states, if it needs no luck.
const CLAIMS: u64 = 40;
/// The names, and how many permits each has; zero for readers and writers.
const NAMES: [(&str, u32); 3] = [("mutex", 0), ("readers:writers", 0), ("three", 3)];

async fn workload_under_mishaps_keeps_every_promise(bench: &Bench) -> Check {
    let rounds = crate::seed::rounds(1);
    for seed in crate::seed::first()..crate::seed::first() + rounds {
        let bench = bench.another().await?;
        round(&bench, seed).await.map_err(|failure| failure.during(format!("LEASEHOLD_SEED={seed}")))?;
    }
    Ok(())
}

async fn round(bench: &Bench, seed: u64) -> Check {
    let clock = bench.clock().clone();
    let recorder = Arc::new(Recorder::new(clock.clone()));
    let ttl = Duration::from_millis(if bench.movable() { 1000 } else { 400 });
    let ttl = ttl.clamp(*bench.offer.capabilities.ttl.start(), *bench.offer.capabilities.ttl.end());
    let late = (10, ttl / 8);
    let odds = Odds { loses_reply: 10, loses_request: 3, refused: 3, late };
    // Without a line, who asks while somebody has it comes in by luck; where time does not wait for him, seldom, so that
    // he has to ask oftener.
    let (lucky, claims) = match bench.offer.capabilities.queueing {
        Queueing::Never if bench.clock().runs() => (16, 4 * CLAIMS),
        Queueing::Never => (2, CLAIMS),
        _ => (1, CLAIMS),
    };
    let tasks = (1..=TASKS).map(|number| {
        let client = if number % 2 == 0 { &bench.one } else { &bench.two };
        let dice = fastrand::Rng::with_seed(seed * 1000 + u64::from(number));
        let store = Chaos::new(client.store(), clock.clone(), odds, seed * 2000 + u64::from(number));
        Task {
            number,
            bench,
            store,
            recorder: Arc::clone(&recorder),
            clock: clock.clone(),
            dice,
            ttl,
            claims,
        }
        .run()
    });
    let tasks = futures_util::future::join_all(tasks);
    // A clock that stands still has to be moved, or nobody would ever be late, expire, or wake up.
    let time = async {
        while !bench.clock().runs() {
            tokio::time::sleep(Duration::from_millis(1)).await;
            bench.pass(ttl / 50).await;
        }
        std::future::pending::<()>().await;
    };
    let done = tokio::select! { done = tasks => done, () = time => Vec::new() };
    done.into_iter().collect::<Check>()?;
    let report = check_history(&recorder.records());
    eprintln!("workload: {report}");
    let all = u64::from(TASKS) * CLAIMS;
    let least = Least { grants: all / 4 / lucky, contended: all / 8 / lucky, faults: all / 8 };
    if let Err(failure) = report.judge(&least) {
        return Err(failure.during(keep(&recorder)?));
    }
    nothing_is_left(bench, ttl).await
}

/// Keeps a history that was rejected, for somebody to read.
fn keep(recorder: &Recorder) -> Check<String> {
    let path = std::env::temp_dir().join(format!("leasehold-{}.history", std::process::id()));
    drop(std::fs::remove_file(&path));
    let mut writer = crate::HistoryWriter::open(&path)?;
    recorder.records().iter().try_for_each(|record| writer.write(record))?;
    Ok(format!("the history in {}", path.display()))
}

/// Dead holders run out, dead places lapse, and then there is no trace of anybody.
async fn nothing_is_left(bench: &Bench, ttl: Duration) -> Check {
    let empty = || async {
        for (text, _) in NAMES {
            let snapshot = bench.one.inspect(&name(text)?).await?;
            if !snapshot.holders.is_empty() || !snapshot.waiters.is_empty() {
                return Ok(None);
            }
        }
        Ok(bench.two.list("", None).await?.is_empty().then_some(()))
    };
    bench.in_time("the end of all that was left behind", ttl.max(PLACE_LIFE), empty).await
}

/// One task, as if it were a process of its own.
struct Task<'a> {
    number: u32,
    bench: &'a Bench,
    store: Chaos,
    recorder: Arc<Recorder>,
    clock: Clock,
    dice: fastrand::Rng,
    ttl: Duration,
    /// How many it states.
    claims: u64,
}

async fn perhaps_dropped<T>(polls: Option<usize>, future: impl Future<Output = T>) -> Option<T> {
    match polls {
        Some(polls) => drop_after(polls, future).await,
        None => Some(future.await),
    }
}

/// How an attempt to get a claim granted ended.
enum Outcome {
    Granted(Token, BootTime),
    GaveUp,
}

impl Task<'_> {
    async fn run(mut self) -> Check {
        let mut numbers = 1..=self.claims;
        while let Some(number) = numbers.next() {
            if self.bench.offer.capabilities.together && self.dice.u8(..6) == 0 {
                let numbers: Vec<u64> = [number].into_iter().chain(numbers.next()).collect();
                self.several(&numbers).await?;
                continue;
            }
            let claim = self.some_claim()?;
            let outcome = self.acquire(number, &claim).await?;
            match outcome {
                Outcome::Granted(token, valid_until) => self.hold(number, &claim, token, valid_until).await?,
                Outcome::GaveUp => {
                    self.tell(number, Happened::GaveUp);
                    self.give_back(number, &claim).await;
                }
            }
        }
        self.recorder.fault(self.number, &format!("{} mishaps in all", self.store.befell()));
        Ok(())
    }

    /// Claims several names in one step, each under a number of its own.
    async fn several(&mut self, numbers: &[u64]) -> Check {
        let mut claims = Vec::new();
        for (_, (text, permits)) in numbers.iter().zip(NAMES) {
            let share = if permits == 0 { Share::EXCLUSIVE } else { Share::permits(1, permits)? };
            let claim = Claim { share, turn: Turn::Now, ttl: self.ttl, ..self.bench.claim(&name(text)?) };
            claims.push(claim);
        }
        // In either order, as two programs that know nothing of each other would.
        if self.dice.bool() {
            claims.reverse();
        }
        let mut held = None;
        for attempt in 1..=self.dice.u32(1..12) {
            for (number, claim) in numbers.iter().zip(&claims) {
                self.recorder.asked(self.number, *number, attempt, claim);
            }
            let sent = self.clock.now();
            let polls = self.drops();
            match perhaps_dropped(polls, self.store.claim_all(&claims)).await {
                Some(Ok(Together::All(standings))) => {
                    held = Some((sent, standings));
                    break;
                }
                Some(Ok(Together::None { index, standing })) => {
                    self.wait(&claims[index], &standing.cursor).await
                }
                Some(Err(_)) | None => self.recorder.fault(self.number, "mishap to several claims"),
            }
        }
        let mut until = self.clock.now();
        for (at, number) in numbers.iter().enumerate() {
            let state = held.as_ref().map(|(sent, standings)| (*sent, &standings[at].state));
            match state {
                Some((sent, State::Granted(grant)))
                    if self.clock.now() < Self::valid_until(sent, grant.ttl) =>
                {
                    let valid_until = Self::valid_until(sent, grant.ttl);
                    self.tell(*number, Happened::Granted { token: grant.token, valid_until });
                    until = self.clock.now().after(self.ttl.mul_f64(self.dice.f64() / 4.0)).min(valid_until);
                }
                Some((_, State::Granted(_))) | None => self.tell(*number, Happened::GaveUp),
                Some((_, other)) => return Err(Failure::new(format!("all are granted, but {other:?}"))),
            }
        }
        self.clock.sleep_until(until).await;
        for (number, claim) in numbers.iter().zip(&claims) {
            self.give_back(*number, claim).await;
        }
        Ok(())
    }

    fn tell(&self, number: u64, what: Happened) {
        self.recorder.tell(self.number, number, what);
    }

    fn some_claim(&mut self) -> Check<Claim> {
        let may = &self.bench.offer.capabilities;
        let names = if may.shares == Shares::Any { NAMES.len() } else { 1 };
        let (text, permits) = NAMES[self.dice.usize(..names)];
        let share = match permits {
            0 if names > 1 && text != NAMES[0].0 && self.dice.bool() => Share::SHARED,
            0 => Share::EXCLUSIVE,
            of => Share::permits(self.dice.u32(1..=2), of)?,
        };
        let turns = [Turn::Now, Turn::Any, Turn::Fifo, Turn::Fifo];
        let turns = if may.queueing == Queueing::Never { &turns[..2] } else { &turns };
        let turn = turns[self.dice.usize(..turns.len())];
        Ok(Claim { share, turn, ttl: self.ttl, ..self.bench.claim(&name(text)?) })
    }

    /// Now and then a future is dropped, after so many polls.
    fn drops(&mut self) -> Option<usize> {
        (self.dice.u8(..20) == 0).then(|| self.dice.usize(..3))
    }

    /// Until when an answer to what was sent at `sent` may be acted on.
    fn valid_until(sent: BootTime, ttl: Duration) -> BootTime {
        sent.after(ttl.mul_f64(0.99).saturating_sub(Duration::from_millis(2)))
    }

    async fn acquire(&mut self, number: u64, claim: &Claim) -> Check<Outcome> {
        let patience = self.dice.u32(1..12);
        for attempt in 1..=patience {
            self.recorder.asked(self.number, number, attempt, claim);
            let sent = self.clock.now();
            let polls = self.drops();
            let standing = match perhaps_dropped(polls, self.store.claim(claim)).await {
                Some(Ok(standing)) => standing,
                // Unknown, refused or dropped: ask again with the same id.
                failed => {
                    let what = if failed.is_some() { "mishap to a claim" } else { "dropped a claim" };
                    self.recorder.fault(self.number, what);
                    continue;
                }
            };
            match standing.state {
                State::Granted(grant) => {
                    let valid_until = Self::valid_until(sent, grant.ttl);
                    if self.clock.now() >= valid_until {
                        // The answer came too late to be worth anything.
                        return Ok(Outcome::GaveUp);
                    }
                    self.tell(number, Happened::Granted { token: grant.token, valid_until });
                    return Ok(Outcome::Granted(grant.token, valid_until));
                }
                State::Waiting { .. } if claim.turn == Turn::Now => return Ok(Outcome::GaveUp),
                State::Waiting { .. } => {
                    self.tell(number, Happened::Queued);
                    self.wait(claim, &standing.cursor).await;
                }
                // An earlier answer was lost and its short grant has run out.
                State::Spent => return Ok(Outcome::GaveUp),
                other => return Err(Failure::new(format!("a workload without closures met {other:?}"))),
            }
        }
        Ok(Outcome::GaveUp)
    }

    /// Waits for a change, and asks again in time to keep the place in any case.
    async fn wait(&mut self, claim: &Claim, cursor: &Cursor) {
        let refresh = self.clock.now().after(PLACE_LIFE / 4);
        // A mishap to a wait means no more than to ask again.
        tokio::select! {
            heard = self.store.changed(&claim.name, cursor) => drop(heard),
            () = self.clock.sleep_until(refresh) => {}
        }
    }

    async fn hold(&mut self, number: u64, claim: &Claim, token: Token, mut valid_until: BootTime) -> Check {
        let work = |dice: &mut fastrand::Rng, ttl: Duration| ttl.mul_f64(dice.f64() / 4.0);
        for _ in 0..self.dice.u8(..3) {
            let until = self.clock.now().after(work(&mut self.dice, self.ttl));
            self.clock.sleep_until(until.min(valid_until)).await;
            let sent = self.clock.now();
            let answers = self.store.renew(&[renewal(claim, token)]).await;
            match answers.into_iter().next() {
                Some(Ok(Renewal::Kept { ttl, .. })) if self.clock.now() < valid_until => {
                    valid_until = Self::valid_until(sent, ttl);
                    self.tell(number, Happened::Renewed { valid_until });
                }
                Some(Ok(Renewal::Lost)) => {
                    let late = self.clock.now() >= valid_until;
                    self.tell(number, Happened::Lost);
                    ensure!(late, "a lease that was valid was lost, though nobody released it");
                    break;
                }
                // Too late to be worth anything: it had ended on this side.
                Some(Ok(Renewal::Kept { .. })) => break,
                Some(Err(_)) => self.recorder.fault(self.number, "mishap to a renewal"),
                None => return Err(Failure::new("a renewal without an answer")),
            }
        }
        let until = self.clock.now().after(work(&mut self.dice, self.ttl)).min(valid_until);
        self.clock.sleep_until(until).await;
        if self.dice.u8(..10) == 0 {
            // It dies: nobody gives anything back, and it acts no longer than it may.
            self.recorder.fault(self.number, "died with its lease");
            return Ok(());
        }
        self.give_back(number, claim).await;
        Ok(())
    }

    /// Gives back until the store has acknowledged it, as every client does in the background.
    async fn give_back(&mut self, number: u64, claim: &Claim) {
        self.tell(number, Happened::ReleaseCalled);
        loop {
            let polls = self.drops();
            let release = self.store.release(&claim.name, claim.id, Leave::Open);
            match perhaps_dropped(polls, release).await {
                Some(Ok(_)) => break,
                Some(Err(_)) => self.recorder.fault(self.number, "mishap to a release"),
                None => self.recorder.fault(self.number, "dropped a release"),
            }
        }
        self.tell(number, Happened::Released);
    }
}
