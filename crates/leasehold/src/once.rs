//! Doing something once: a mark in the store says that it was done, and a lock that only one does it at a time.

use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{Busy, Code, ConfigError, Error, LockName, Lost, Mark, NameError, Result, Token};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::Leasehold;
use crate::config::OnceAfter;
use crate::lease::Lease;
use crate::lock::{Lock, work_under};
use crate::marks::{self, Slot};
use crate::period::{Period, Zone};

/// The mark of something that is done once and for all, rather than once in a period. The command's
/// `run NAME --once done` makes the same.
const DONE: &str = "done";
/// For more there are databases.
const MOST_REMEMBERED: usize = 64 << 10;

/// Describes something that is to be done once. It does nothing until asked, and may be used any number of times.
///
/// | verb | when somebody is at it |
/// |---|---|
/// | [`run`](Self::run) | [`OnceOutcome::InProgress`] |
/// | [`run_within`](Self::run_within) | waits for the end, then knows that it is done, or does it |
///
/// # What *once* means
///
/// Nobody starts it after it was marked as done, and no two do it at a time (as far as leases can tell). Who dies
/// between the effect and the mark leaves no mark, and the next one starts again: *started* may be more than once. So
/// send [`OnceRun::token`] with the effect, and let what you write to refuse smaller tokens, and a second effect for
/// the same key: then the effect is there once.
///
/// # With the command
///
/// The marks are those of `leasehold run NAME --once PERIOD`, so that the library and the command keep each other from
/// doing it twice; `leasehold status NAME` shows them.
#[derive(Debug, Clone)]
#[must_use = "it is only a description: run something"]
pub struct Once {
    client: Leasehold,
    lock: Lock,
    name: Result<LockName, NameError>,
    period: Result<Period, ConfigError>,
    zone: Result<Zone, ConfigError>,
    remember: Option<Duration>,
    after: OnceAfter,
}

impl Leasehold {
    /// Describes something that is done once for this key, such as an order or a report of a day; nothing happens until
    /// it is asked for. The key is a lock's name too. A bad one is reported then.
    ///
    /// ```
    /// # leasehold::doc_test(async {
    /// use std::time::Duration;
    /// use leasehold::{OnceOutcome, OnceRun};
    ///
    /// async fn build_report(run: &OnceRun) -> Result<u32, std::fmt::Error> {
    ///     println!("building under token {}", run.token());
    ///     Ok(17)
    /// }
    ///
    /// let client = leasehold::Leasehold::memory();
    /// let report = client.once("report:2025-06-03").remember(Duration::from_secs(3 * 86_400));
    /// match report.run(build_report).await? {
    ///     // An error leaves no mark: the next one may try.
    ///     OnceOutcome::Ran(result) => assert_eq!(result, Ok(17)),
    ///     OnceOutcome::AlreadyDone { by, .. } => println!("done by {by}"),
    ///     OnceOutcome::InProgress(busy) => println!("running elsewhere: {busy}"),
    /// }
    /// assert!(matches!(report.run(build_report).await?, OnceOutcome::AlreadyDone { .. }));
    /// # Ok(()) });
    /// ```
    pub fn once(&self, key: impl AsRef<str>) -> Once {
        self.once_in(key.as_ref(), Ok(Period::Text(DONE.to_owned())))
    }

    /// Describes something that is done once in each period: `hourly`, `daily`, `weekly`, `monthly`, a duration such as
    /// `15m`, or any text. A bad period or name is reported when it is asked for.
    ///
    /// The slot is told by this host's wall clock at the moment of asking (cron fires by that), in [UTC unless told
    /// otherwise](Once::tz). The marks are those of `leasehold run NAME --once PERIOD`.
    ///
    /// ```
    /// # leasehold::doc_test(async {
    /// use leasehold::{OnceOutcome, OnceRun};
    ///
    /// let client = leasehold::Leasehold::memory();
    /// let outcome = client
    ///     .once_per("daily", "report")
    ///     .run(async |run: &OnceRun| {
    ///         run.remember_text("17 pages")?; // read by who comes later today
    ///         Ok::<_, leasehold::Error>(())
    ///     })
    ///     .await?;
    /// assert!(matches!(outcome, OnceOutcome::Ran(Ok(()))));
    /// # Ok(()) });
    /// ```
    pub fn once_per(&self, period: impl AsRef<str>, name: impl AsRef<str>) -> Once {
        self.once_in(name.as_ref(), period.as_ref().parse())
    }

    fn once_in(&self, typed: &str, period: Result<Period, ConfigError>) -> Once {
        let settings = self.config.as_ref().map(|config| config.lock(typed)).unwrap_or_default();
        Once {
            client: self.clone(),
            lock: self.lock(typed),
            name: LockName::parse(typed).and_then(|name| name.within(&self.namespace)),
            period,
            zone: settings.tz.map_or_else(|| Ok(Zone::default()), |zone| zone.value.parse()),
            remember: settings.once_keep.map(|keep| keep.value),
            after: settings.once_after.map_or(OnceAfter::Success, |after| after.value),
        }
    }
}

/// What became of a [`Once`].
#[derive(Debug, Clone)]
pub enum OnceOutcome<T, E> {
    /// It ran here. An `Err` left no mark, unless it [counts from its start](Once::after).
    Ran(Result<T, E>),
    /// It was done before.
    #[non_exhaustive]
    AlreadyDone {
        /// By whom: the public id `host/pid/tag`.
        by: String,
        /// How long ago.
        age: Duration,
        /// What was left to be remembered.
        remembered: Option<Remembered>,
    },
    /// Somebody is at it.
    InProgress(Box<Busy>),
}

/// What a run left for those who come later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered(String);

impl Remembered {
    /// As it was given to [`OnceRun::remember_text`]; JSON if it was [`OnceRun::remember_value`].
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// What was given to [`OnceRun::remember_value`].
    ///
    /// # Errors
    ///
    /// When it is something else.
    pub fn value<T: DeserializeOwned>(&self) -> Result<T> {
        let wrong = |error| ConfigError::new(format!("what was remembered is something else: {error}"));
        let help = "was it remembered by another version of the program?";
        Ok(serde_json::from_str(&self.0).map_err(|error| wrong(error).code(Code::VALUE).help(help))?)
    }
}

/// One run of a [`Once`], as its work sees it.
#[derive(Debug)]
pub struct OnceRun {
    lease: Lease,
    remembered: Mutex<Option<String>>,
}

impl OnceRun {
    /// The lease that keeps others from doing it meanwhile.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// The fencing token: send it with every effect.
    #[must_use]
    pub fn token(&self) -> Token {
        self.lease.token()
    }

    /// The token, if it may still go on; put it before each step that matters.
    ///
    /// # Errors
    ///
    /// As [`Lease::check`].
    pub fn check(&self) -> Result<Token, Lost> {
        self.lease.check()
    }

    fn remembered(&self) -> Option<String> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Leaves a text for those who ask once it is done, such as a receipt: at most 64 KiB. The last one counts. Everybody
    /// who may read the store may read it.
    ///
    /// # Errors
    ///
    /// When it is longer.
    pub fn remember_text(&self, text: impl Into<String>) -> Result<()> {
        let text = text.into();
        if text.len() > MOST_REMEMBERED {
            let message =
                format!("{} bytes are to be remembered, and {MOST_REMEMBERED} are the most", text.len());
            let help = "keep it elsewhere, and remember where";
            return Err(ConfigError::new(message).code(Code::VALUE).help(help).into());
        }
        *self.remembered.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
        Ok(())
    }

    /// Leaves a value for those who ask once it is done, as [`remember_text`](Self::remember_text); it is read by
    /// [`Remembered::value`].
    ///
    /// # Errors
    ///
    /// When it cannot be written as JSON, or is longer than 64 KiB as such.
    pub fn remember_value(&self, value: &impl Serialize) -> Result<()> {
        let wrong = |error| ConfigError::new(format!("it cannot be remembered: {error}")).code(Code::VALUE);
        self.remember_text(serde_json::to_string(value).map_err(wrong)?)
    }
}

impl Once {
    /// How long it is known that it was done. Defaults to two periods, and to 30 days where there is no period.
    pub fn remember(mut self, lasting: Duration) -> Self {
        self.remember = Some(lasting);
        self
    }

    /// The zone of a period, such as `Europe/Berlin`. Defaults to UTC.
    pub fn tz(mut self, zone: impl AsRef<str>) -> Self {
        self.zone = zone.as_ref().parse();
        self
    }

    /// When it counts as done: once it has gone well (the default), or from its start, so that it is never started
    /// twice and may never be finished.
    pub fn after(mut self, after: OnceAfter) -> Self {
        self.after = after;
        self
    }

    /// If this machine dies while it runs, others get in after this long. As [`Lock::ttl`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.lock = self.lock.ttl(ttl);
        self
    }

    /// After this long the run is stopped and others may try. Defaults to no limit. As [`Lock::max_hold`].
    pub fn max_hold(mut self, most: Duration) -> Self {
        self.lock = self.lock.max_hold(most);
        self
    }

    /// What others may read while it runs. As [`Lock::note`].
    pub fn note(mut self, note: impl AsRef<str>) -> Self {
        self.lock = self.lock.note(note);
        self
    }

    /// Does it, unless it was done before or somebody is at it.
    ///
    /// The mark is made under the lease, and again until the store acknowledges it or the lease ends. Then the lease is
    /// given back; a release that fails is logged.
    ///
    /// # Errors
    ///
    /// As [`Lock::attempt`], except for [`Error::Busy`]; a store that keeps no marks; a bad period or zone.
    /// [`Error::Lost`] if the work was stopped since its lease was lost. And when the work is done but could not be
    /// marked: that is an [`Error::Store`] whose message says so, with [`Code::LOST`] if it was the lease that ended
    /// first; then somebody else may do it again, or has.
    ///
    /// # Cancel safety
    ///
    /// The work is dropped and the lease given back in the background; no mark is left, unless it
    /// [counts from its start](Self::after) or the mark was already under way.
    ///
    /// # Examples
    ///
    /// ```
    /// # leasehold::doc_test(async {
    /// # let client = leasehold::Leasehold::memory();
    /// use leasehold::{OnceOutcome, OnceRun};
    ///
    /// let pay = client.once("payment:10017");
    /// let charge = async |run: &OnceRun| {
    ///     // The card provider gets the business id as its idempotency key, and the database the token.
    ///     run.remember_value(&("receipt", 4711))?;
    ///     Ok::<_, leasehold::Error>(4711)
    /// };
    /// let receipt = match pay.run(charge).await? {
    ///     OnceOutcome::Ran(result) => result?,
    ///     OnceOutcome::AlreadyDone { remembered: Some(told), .. } => told.value::<(String, u32)>()?.1,
    ///     other => unreachable!("{other:?}"),
    /// };
    /// assert_eq!(receipt, 4711);
    /// # Ok(()) });
    /// ```
    pub async fn run<T, E>(
        &self,
        work: impl AsyncFnOnce(&OnceRun) -> Result<T, E>,
    ) -> Result<OnceOutcome<T, E>> {
        self.run_when(None, work).await
    }

    /// As [`run`](Self::run), but waits for at most `wait` for the end of a run in progress: then it knows that it is
    /// done, or does it. [`OnceOutcome::InProgress`] if that run is still not over.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run); while it waits, dropping it leaves the line.
    pub async fn run_within<T, E>(
        &self,
        wait: Duration,
        work: impl AsyncFnOnce(&OnceRun) -> Result<T, E>,
    ) -> Result<OnceOutcome<T, E>> {
        self.run_when(Some(wait), work).await
    }

    /// Forgets that it was done, so that the next one does it again; says whether it was.
    ///
    /// # Errors
    ///
    /// A bad name, period or zone, and a store that cannot be asked or keeps no marks.
    ///
    /// # Cancel safety
    ///
    /// It may have been forgotten.
    pub async fn forget(&self) -> Result<bool> {
        self.slot()?.forget().await
    }

    /// Finds out once which slot is meant: a long wait must not move a run into the next.
    fn slot(&self) -> Result<Slot> {
        let (period, zone) = (self.period.clone()?, self.zone.clone()?);
        let key = period.slot(self.client.clock().wall_micros(), &zone);
        let keep = self.remember.unwrap_or_else(|| period.keep());
        if keep.is_zero() {
            let error = ConfigError::new("what is remembered for no time would be done by everybody");
            return Err(error
                .code(Code::VALUE)
                .help("remember it for longer than anybody may ask for it")
                .into());
        }
        Ok(Slot {
            client: self.client.clone(),
            name: self.name.clone()?,
            period,
            zone,
            key,
            keep,
            after: self.after,
        })
    }

    async fn run_when<T, E>(
        &self,
        wait: Option<Duration>,
        work: impl AsyncFnOnce(&OnceRun) -> Result<T, E>,
    ) -> Result<OnceOutcome<T, E>> {
        let (slot, run) = match self.begin(wait).await? {
            ControlFlow::Continue(begun) => begun,
            ControlFlow::Break(outcome) => return Ok(outcome),
        };
        let result = work_under(&[&run.lease], work(&run)).await?;
        self.end(&slot, run, result).await
    }

    /// What comes before the work: a run, if there is anything to do.
    pub(crate) async fn begin<T, E>(
        &self,
        wait: Option<Duration>,
    ) -> Result<ControlFlow<OnceOutcome<T, E>, (Slot, OnceRun)>> {
        let slot = self.slot()?;
        if let Some(mark) = slot.mark().await? {
            return Ok(ControlFlow::Break(already(mark)));
        }
        let lease = match wait {
            None => self.lock.attempt().await,
            Some(wait) => self.lock.acquire_within(wait).await,
        };
        let lease = match lease {
            Ok(lease) => lease,
            Err(Error::Busy(busy) | Error::TimedOut { busy, .. }) => {
                return Ok(ControlFlow::Break(OnceOutcome::InProgress(busy)));
            }
            Err(error) => return Err(error),
        };
        // Whoever held it before may just have done it.
        if let Some(mark) = slot.mark().await? {
            unused(lease).await;
            return Ok(ControlFlow::Break(already(mark)));
        }
        let run = OnceRun { lease, remembered: Mutex::default() };
        if self.after == OnceAfter::Start
            && let Some(mark) = slot.make_mark(&run.lease, run.remembered()).await?
        {
            unused(run.lease).await;
            return Ok(ControlFlow::Break(already(mark)));
        }
        Ok(ControlFlow::Continue((slot, run)))
    }

    /// What comes after the work: the mark, if it is due, and the lease is given back.
    pub(crate) async fn end<T, E>(
        &self,
        slot: &Slot,
        run: OnceRun,
        result: Result<T, E>,
    ) -> Result<OnceOutcome<T, E>> {
        if result.is_ok() && self.after == OnceAfter::Success {
            // One that stands is of somebody who was let in when our lease ended while the mark was under way.
            if let Some(mark) = slot.make_mark(&run.lease, run.remembered()).await? {
                return Err(slot.done_before(&mark));
            }
        }
        let (name, token) = (run.lease.name().clone(), run.token());
        if let Err(error) = run.lease.release().await {
            tracing::warn!(%name, %token, %error, "the work is done, but its lease could not be given back");
        }
        Ok(OnceOutcome::Ran(result))
    }
}

/// Gives back a lease under which nothing was done.
async fn unused(lease: Lease) {
    let (name, token) = (lease.name().clone(), lease.token());
    if let Err(error) = lease.unused().release().await {
        tracing::warn!(%name, %token, %error, "a lease that was not needed could not be given back");
    }
}

fn already<T, E>(mark: Mark) -> OnceOutcome<T, E> {
    let Mark { by, text, age, .. } = mark;
    OnceOutcome::AlreadyDone { by, age, remembered: marks::remembered(&text).map(Remembered) }
}
