//! What a task does besides taking one lock: doing something once, and holding several names at once.

use std::cell::Cell;
use std::time::Duration;

use leasehold::{Error, OnceOutcome, OnceRun, Result};
use leasehold_conformance::{Check, Failure};

use super::drive::{Task, called};
use super::model::Want;
use super::record::Told;

/// How far a run of something that is done once has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Asked,
    Started,
    Finishing,
    Failing,
}

impl Task<'_> {
    /// Does something once, if nobody has, or now and then has it forgotten.
    pub(super) async fn once(&mut self, name: usize) -> Check {
        let once = self.host.client.once(called(name)).ttl(self.ttl);
        if self.dice.u8(..6) == 0 {
            let hold = self.recorder.begins(name, self.host.number, Told::Forgetting);
            let told = match self.perhaps(once.forget()).await {
                Some(Ok(true)) => Told::Forgot,
                Some(Ok(false)) => Told::NothingToForget,
                None | Some(Err(_)) => Told::MayHaveForgotten,
            };
            self.tell(name, hold, told);
            return Ok(());
        }
        let hold = self.recorder.asks(name, self.host.number, Want::All);
        let stage = Cell::new(Stage::Asked);
        let (recorder, host, clock) = (self.recorder, self.host.number, self.clock);
        let tell = |told| recorder.tell(name, host, hold, told);
        let steps: Vec<Duration> =
            (0..self.dice.u8(..3)).map(|_| self.ttl.mul_f64(self.dice.f64() * 0.4)).collect();
        let good = self.dice.u8(..3) > 0;
        let work = async |run: &OnceRun| -> std::result::Result<(), ()> {
            tell(Told::Granted(run.token().get(), run.lease().remaining()));
            stage.set(Stage::Started);
            for step in steps {
                clock.sleep_until(clock.now().after(step)).await;
                match run.check() {
                    Ok(token) => tell(Told::Holds(token.get(), run.lease().remaining())),
                    Err(_) => tell(Told::Lost),
                }
            }
            stage.set(if good { Stage::Finishing } else { Stage::Failing });
            tell(if good { Told::Finishing } else { Told::Releasing });
            if good { Ok(()) } else { Err(()) }
        };
        let within = self.ttl.mul_f64(self.dice.f64() * 2.0);
        let waits = self.dice.bool();
        let answer: Option<Result<OnceOutcome<(), ()>>> = if !waits {
            self.perhaps(once.run(work)).await
        } else {
            self.perhaps(once.run_within(within, work)).await
        };
        let told = match (answer, stage.get()) {
            (Some(Ok(OnceOutcome::Ran(Ok(())))), Stage::Finishing) => Told::Finished,
            (Some(Ok(OnceOutcome::Ran(Err(())))), Stage::Failing) => Told::LetGo,
            (Some(Ok(OnceOutcome::AlreadyDone { .. })), Stage::Asked) => Told::AlreadyDone,
            // The end of a wait says nothing of the name: the store may not have answered yet.
            (Some(Ok(OnceOutcome::InProgress(_))), Stage::Asked) if waits => Told::GaveUp,
            (Some(Ok(OnceOutcome::InProgress(_))), Stage::Asked) => Told::Busy,
            // The lease may be lost before the work has begun.
            (None | Some(Err(Error::Store(_) | Error::Lost(_))), Stage::Asked) => Told::GaveUp,
            (Some(Err(Error::Lost(_))), Stage::Started) => {
                tell(Told::Lost);
                Told::LetGo
            }
            (None | Some(Err(Error::Store(_) | Error::Lost(_))), _) => Told::LetGo,
            (answer, stage) => {
                return Err(Failure::new(format!("#{hold} was told {answer:?} while {stage:?}")));
            }
        };
        self.tell(name, hold, told);
        Ok(())
    }

    /// Holds all names of the run at once.
    pub(super) async fn all_of_them(&mut self) -> Check {
        let mut names: Vec<usize> = (0..self.kinds.len()).collect();
        self.dice.shuffle(&mut names);
        let lock = self.host.client.lock_all(names.iter().map(|name| called(*name))).ttl(self.ttl);
        names.sort_unstable();
        let (recorder, host) = (self.recorder, self.host.number);
        let holds: Vec<_> =
            names.iter().map(|name| (*name, self.recorder.asks(*name, host, Want::All))).collect();
        let within = self.ttl.mul_f64(self.dice.f64() * 2.0);
        let set = match self.dice.u8(..3) {
            0 => self.perhaps(lock.try_acquire()).await.map(Result::transpose),
            1 => self.perhaps(lock.acquire_within(within)).await.map(Some),
            _ => self.perhaps(lock.acquire()).await.map(Some),
        };
        let set = match set.flatten() {
            Some(Ok(set)) => set,
            // One of them was in the way, and nobody says that it was this one.
            None | Some(Err(Error::TimedOut { .. } | Error::Store(_) | Error::Busy(_))) => {
                holds.iter().for_each(|(name, hold)| self.tell(*name, *hold, Told::GaveUp));
                return Ok(());
            }
            Some(Err(error)) => return Err(Failure::new(format!("several could not be acquired: {error}"))),
        };
        let each = || holds.iter().zip(set.leases());
        for ((name, hold), lease) in each() {
            self.tell(*name, *hold, Told::Granted(lease.token().get(), lease.remaining()));
        }
        for _ in 0..self.dice.u8(..3) {
            self.pause(0.4).await;
            for ((name, hold), lease) in each() {
                match lease.check() {
                    Ok(token) => self.tell(*name, *hold, Told::Holds(token.get(), lease.remaining())),
                    Err(_) => self.tell(*name, *hold, Told::Lost),
                }
            }
        }
        let tell_all = |told| holds.iter().for_each(|(name, hold)| recorder.tell(*name, host, *hold, told));
        if self.dice.u8(..3) == 0 {
            // Before it is dropped, which gives it back.
            tell_all(Told::LetGo);
            drop(set);
            return Ok(());
        }
        tell_all(Told::Releasing);
        // If one of them fails or was lost, nobody says which.
        let released = matches!(self.perhaps(set.release()).await, Some(Ok(())));
        tell_all(if released { Told::Released } else { Told::LetGo });
        Ok(())
    }
}
