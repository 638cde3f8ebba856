//! Two locks held as one: the old name and the new, or the old store and the new, until everybody has moved.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use leasehold_core::{ConfigError, Error, Lost, Result, Token, fault};

use crate::hold::LeaseState;
use crate::lease::Lease;
use crate::lock::{self, Lock, Outcome};

/// Two locks, of one client or of two, that are held as one: all or none, and the loss of one is the loss of both.
///
/// Made by [`Lock::and`], for the time in which some programs still ask for the old lock and some for the new one
/// alone. First all programs are changed from the old lock to `old.and(new)`; when the last has been, they may be
/// changed to the new one alone.
///
/// They are always taken in one order (by store, then by name), whichever was written first, so that two who take
/// the same two never wait for each other. That holds as long as all spell the stores' URLs alike.
#[derive(Debug, Clone)]
#[must_use = "a lock is only a description: acquire it, or run something under it"]
pub struct Both {
    first: Lock,
    second: Lock,
}

/// The proof that [both](Both) locks are held. Dropping it gives both back.
#[derive(Debug)]
#[must_use = "a lease that is not kept is given back at once"]
pub struct LeasePair {
    first: Lease,
    second: Lease,
}

/// How long somebody waits.
#[derive(Debug, Clone, Copy)]
enum Wait {
    Not,
    Within(Duration),
    AsLongAsItTakes,
}

impl Lock {
    /// Takes another lock with this one, as one: see [`Both`].
    ///
    /// ```
    /// # leasehold::doc_test(async {
    /// # let (redis, etcd) = (leasehold::Leasehold::memory(), leasehold::Leasehold::memory());
    /// let lock = redis.lock("cron:report").and(etcd.lock("report:daily"));
    /// lock.run(async |both| println!("under the tokens {} and {}", both.first().token(), both.second().token()))
    ///     .await
    /// # });
    /// ```
    pub fn and(self, other: Self) -> Both {
        Both { first: self, second: other }
    }
}

impl Both {
    /// Waits for both as long as it takes.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`], of either; and the same lock twice.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`], for both.
    pub async fn acquire(&self) -> Result<LeasePair> {
        self.ask(Wait::AsLongAsItTakes).await
    }

    /// Waits for both for at most `wait`, in all.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire_within`], of either; and the same lock twice. Then none of them is held.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`], for both.
    pub async fn acquire_within(&self, wait: Duration) -> Result<LeasePair> {
        self.ask(Wait::Within(wait)).await
    }

    /// Takes both if both are free, and says who has the one that is not.
    ///
    /// # Errors
    ///
    /// As [`Lock::attempt`], of either; and the same lock twice. Then none of them is held.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`], for both.
    pub async fn attempt(&self) -> Result<LeasePair> {
        self.ask(Wait::Not).await
    }

    /// Takes both if both are free.
    ///
    /// # Errors
    ///
    /// As [`attempt`](Self::attempt), but for [`Error::Busy`].
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`], for both.
    pub async fn try_acquire(&self) -> Result<Option<LeasePair>> {
        match self.attempt().await {
            Ok(pair) => Ok(Some(pair)),
            Err(Error::Busy(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As [`Lock::run`], under both.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Error::Lost`] if the work was stopped since one of them was lost.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::run`].
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&LeasePair) -> T) -> Result<T> {
        lock::run_under(self.acquire().await?, work).await
    }

    /// As [`Lock::run_within`], under both.
    ///
    /// # Errors
    ///
    /// As [`acquire_within`](Self::acquire_within), and [`Error::Lost`] if the work was stopped since one of them was
    /// lost.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::run`].
    pub async fn run_within<T>(&self, wait: Duration, work: impl AsyncFnOnce(&LeasePair) -> T) -> Result<T> {
        lock::run_under(self.acquire_within(wait).await?, work).await
    }

    /// As [`Lock::try_run`], under both.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire), and [`Error::Lost`] if the work was stopped since one of them was lost.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::run`].
    pub async fn try_run<T>(&self, work: impl AsyncFnOnce(&LeasePair) -> T) -> Result<Outcome<T>> {
        match self.attempt().await {
            Ok(pair) => lock::run_under(pair, work).await.map(Outcome::Ran),
            Err(Error::Busy(busy)) => Ok(Outcome::Skipped(busy)),
            Err(error) => Err(error),
        }
    }

    async fn ask(&self, wait: Wait) -> Result<LeasePair> {
        let clock = self.first.client().clock();
        let started = clock.now();
        let swapped = self.swapped()?;
        let (one, other) = if swapped { (&self.second, &self.first) } else { (&self.first, &self.second) };
        let left = || match wait {
            Wait::Within(most) => Wait::Within(most.saturating_sub(clock.now().since(started))),
            other => other,
        };
        let in_all = |error| match error {
            Error::TimedOut { busy, .. } => Error::TimedOut { waited: clock.now().since(started), busy },
            error => error,
        };
        loop {
            let had = take(one, left()).await.map_err(in_all)?;
            let got = {
                let lost = pin!(had.lost());
                let taking = pin!(take(other, left()));
                match select(lost, taking).await {
                    // Lost while waiting for the other: from the beginning, under the same deadline.
                    Either::Left(_) => continue,
                    Either::Right((got, _)) => got,
                }
            };
            match got {
                Ok(_) if had.check().is_err() => {}
                Ok(got) if swapped => return Ok(LeasePair { first: got, second: had }),
                Ok(got) => return Ok(LeasePair { first: had, second: got }),
                Err(error) => {
                    if fault!("half_of_both_stays") {
                        had.keep();
                    } else if let Err(error) = had.release().await {
                        tracing::debug!(%error, "one of two was taken, and could not be given back at once");
                    }
                    return Err(in_all(error));
                }
            }
        }
    }

    /// Whether the one that was written second is to be taken first.
    fn swapped(&self) -> Result<bool> {
        let (first, second) = (self.first.full_name()?, self.second.full_name()?);
        let (one, other) = (self.first.client(), self.second.client());
        if first == second && one.shares_store_with(other) {
            let message =
                format!("{first} in {} is the same lock twice: it would wait for itself", one.store_name());
            return Err(ConfigError::new(message).help("take it once").into());
        }
        // Two stores within this process are told apart by where they are.
        let (here, there) = (Arc::as_ptr(one).addr(), Arc::as_ptr(other).addr());
        Ok((other.store_name(), second, there) < (one.store_name(), first, here))
    }
}

async fn take(lock: &Lock, wait: Wait) -> Result<Lease> {
    match wait {
        Wait::Not => lock.attempt().await,
        Wait::Within(wait) => lock.acquire_within(wait).await,
        Wait::AsLongAsItTakes => lock.acquire().await,
    }
}

impl LeasePair {
    /// The lease of the lock that was written first.
    pub fn first(&self) -> &Lease {
        &self.first
    }

    /// The lease of the lock that was written second.
    pub fn second(&self) -> &Lease {
        &self.second
    }

    /// The tokens, if both hold right now; as [`Lease::check`].
    ///
    /// # Errors
    ///
    /// [`Lost`], for good, if one of them is lost.
    pub fn check(&self) -> Result<(Token, Token), Lost> {
        Ok((self.first.check()?, self.second.check()?))
    }

    /// Makes sure that at least `least` is left of both; as [`Lease::ensure`].
    ///
    /// # Errors
    ///
    /// As [`Lease::ensure`], of either.
    ///
    /// # Cancel safety
    ///
    /// The renewals go on.
    pub async fn ensure(&self, least: Duration) -> Result<()> {
        self.first.ensure(least).await?;
        self.second.ensure(least).await?;
        self.check()?;
        Ok(())
    }

    /// For how long both still hold if no renewal succeeds any more.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.first.remaining().min(self.second.remaining())
    }

    /// Held, endangered or lost: the worse of the two.
    #[must_use]
    pub fn state(&self) -> LeaseState {
        match (self.first.state(), self.second.state()) {
            (LeaseState::Lost, _) | (_, LeaseState::Lost) => LeaseState::Lost,
            (LeaseState::Endangered, _) | (_, LeaseState::Endangered) => LeaseState::Endangered,
            (LeaseState::Held, LeaseState::Held) => LeaseState::Held,
        }
    }

    /// Returns once one of them is lost, with the reason; for `select!`.
    ///
    /// # Cancel safety
    ///
    /// Nothing happens when it is dropped.
    pub async fn lost(&self) -> Lost {
        lock::first_lost(&[&self.first, &self.second]).await
    }

    /// Gives both back.
    ///
    /// # Errors
    ///
    /// As [`Lease::release`], of the first that fails; the other is given back all the same.
    ///
    /// # Cancel safety
    ///
    /// As [`Lease::release`], for both.
    pub async fn release(self) -> Result<()> {
        let Self { first, second } = self;
        let (first, second) = futures_util::future::join(first.release(), second.release()).await;
        first.and(second)
    }
}
