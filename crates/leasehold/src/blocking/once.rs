//! Doing something once, in this thread.

use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

use leasehold_core::{Lost, Result, Token};
use serde::Serialize;

use super::lease::Lease;
use super::mirror::{both_ways, mirror};
use super::wait;
use crate::config::OnceAfter;
use crate::once::OnceOutcome;

/// As [`crate::Once`]: something that is to be done once. It does nothing until asked, and may be used any number of
/// times.
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// use leasehold::OnceOutcome;
/// use leasehold::blocking::{Leasehold, OnceRun};
///
/// # let client = Leasehold::memory();
/// let pay = client.once("payment:10017");
/// let charge = |run: &OnceRun| {
///     // The card provider gets the business id as its idempotency key, and the database the token.
///     run.remember_value(&("receipt", 4711))?;
///     Ok::<_, leasehold::Error>(4711)
/// };
/// assert!(matches!(pay.run(charge)?, OnceOutcome::Ran(Ok(4711))));
/// let receipt = match pay.run(charge)? {
///     OnceOutcome::AlreadyDone { remembered: Some(told), .. } => told.value::<(String, u32)>()?.1,
///     other => unreachable!("{other:?}"),
/// };
/// assert_eq!(receipt, 4711);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "it is only a description: run something"]
pub struct Once(crate::Once);

impl Once {
    mirror! { "Once"
        option remember(lasting: Duration);
        option tz(zone: impl AsRef<str>);
        option after(after: OnceAfter);
        option ttl(ttl: Duration);
        option max_hold(most: Duration);
        option note(note: impl AsRef<str>);
        wait forget() -> Result<bool>;
    }

    /// As [`Once::run`](crate::Once::run): does it, unless it was done before or somebody is at it.
    ///
    /// Work that has begun goes on to its end even if its lease is lost meanwhile: it is given the run, to
    /// [check](OnceRun::check) before each step that matters. What was lost is not marked as done.
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Panics
    ///
    /// If the work does; no mark is left then, and the lease is given back.
    pub fn run<T, E>(&self, work: impl FnOnce(&OnceRun) -> Result<T, E>) -> Result<OnceOutcome<T, E>> {
        self.run_when(None, work)
    }

    /// As [`run`](Self::run), but waits for at most `most` for the end of a run in progress.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_within<T, E>(
        &self,
        most: Duration,
        work: impl FnOnce(&OnceRun) -> Result<T, E>,
    ) -> Result<OnceOutcome<T, E>> {
        self.run_when(Some(most), work)
    }

    fn run_when<T, E>(
        &self,
        most: Option<Duration>,
        work: impl FnOnce(&OnceRun) -> Result<T, E>,
    ) -> Result<OnceOutcome<T, E>> {
        let (slot, run) = match wait(self.0.begin(most))? {
            ControlFlow::Continue(begun) => begun,
            ControlFlow::Break(outcome) => return Ok(outcome),
        };
        let view = run.lease().view().into();
        let run = OnceRun(run, view);
        let result = work(&run);
        run.check()?;
        wait(self.0.end(&slot, run.0, result))
    }
}

both_ways!(Once);

/// As [`crate::OnceRun`]: one run of a [`Once`], as its work sees it.
pub struct OnceRun(crate::OnceRun, Lease);

impl OnceRun {
    mirror! { "OnceRun"
        look token() -> Token;
        call remember_text(text: impl Into<String>) -> Result<()>;
        call remember_value(value: &impl Serialize) -> Result<()>;
    }

    /// As [`OnceRun::lease`](crate::OnceRun::lease): it keeps others from doing it meanwhile.
    pub fn lease(&self) -> &Lease {
        &self.1
    }

    /// As [`OnceRun::check`](crate::OnceRun::check): the token, if it may still go on.
    ///
    /// # Errors
    ///
    /// [`Lost`], for good.
    pub fn check(&self) -> Result<Token, Lost> {
        self.0.check()
    }
}

impl fmt::Debug for OnceRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
