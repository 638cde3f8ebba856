//! The marks that say that something was done once: read, made until they are acknowledged, and taken away.

use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold_core::{
    Code, Error, Ledger, LockName, Lost, Mark, MarkKind, MarkOutcome, Op, Result, StoreError, StoreErrorKind,
    fault,
};
use serde_json::{Value, json};

use crate::client::{AsyncLedger, Leasehold};
use crate::config::OnceAfter;
use crate::lease::Lease;
use crate::period::{Period, Zone};
use crate::terms;

/// How long to wait before a mark that was not acknowledged is made again; it doubles up to [`MOST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MOST_PAUSE: Duration = Duration::from_secs(1);

/// One slot of something that is done once in each: where its mark is, and what it says.
pub(crate) struct Slot {
    pub(crate) client: Leasehold,
    /// With its namespace.
    pub(crate) name: LockName,
    pub(crate) period: Period,
    pub(crate) zone: Zone,
    /// Of the mark.
    pub(crate) key: String,
    pub(crate) keep: Duration,
    pub(crate) after: OnceAfter,
}

/// Work with a ledger, as a closure.
fn visit<T>(
    work: impl for<'a> FnOnce(&'a dyn Ledger) -> BoxFuture<'a, Result<T>> + Send + 'static,
) -> impl AsyncLedger<T> {
    work
}

impl Slot {
    /// The mark, if it stands.
    pub(crate) async fn mark(&self) -> Result<Option<Mark>> {
        let (name, key) = (self.name.clone(), self.key.clone());
        let look = visit(move |ledger| {
            Box::pin(async move {
                let marks = ledger.marks(MarkKind::Once, &name).await?;
                Ok(marks.into_iter().find(|mark| mark.key == key))
            })
        });
        let found = self.client.with_ledger(look).await?;
        Ok(found.filter(|_| !fault!("once_looks_away")))
    }

    /// Takes the mark away, and says whether it stood.
    pub(crate) async fn forget(&self) -> Result<bool> {
        let (name, key) = (self.name.clone(), self.key.clone());
        let forget =
            visit(move |ledger| Box::pin(async move { ledger.unmark(MarkKind::Once, &name, &key).await }));
        self.client.with_ledger(forget).await
    }

    /// Makes the mark, and again until the store acknowledges it, while the lease holds; answers another one that
    /// stands already.
    pub(crate) async fn make_mark(&self, lease: &Lease, remembered: Option<String>) -> Result<Option<Mark>> {
        let mark = self.new_mark(lease, remembered);
        let mut failed: Option<Error> = None;
        let mut tries = 0_u32;
        loop {
            if let Err(lost) = lease.check() {
                return Err(self.unmarked(failed, Some(lost)));
            }
            let made = mark.clone();
            let make = visit(move |ledger| Box::pin(async move { ledger.mark(&made).await }));
            match self.client.with_ledger(make).await {
                Ok(MarkOutcome::Made) => return Ok(None),
                // Ours, by an earlier try whose answer was lost: the token in it tells.
                Ok(MarkOutcome::Already(standing)) if standing.text == mark.text => return Ok(None),
                Ok(MarkOutcome::Already(standing)) => return Ok(Some(*standing)),
                Err(error) if error.is_retryable() || error.outcome_unknown() => failed = Some(error),
                Err(error) => return Err(self.unmarked(Some(error), None)),
            }
            let pause = FIRST_PAUSE.saturating_mul(1 << tries.min(10)).min(MOST_PAUSE);
            tries += 1;
            self.client.client.pause(terms::jitter(pause)).await?;
        }
    }

    fn new_mark(&self, lease: &Lease, remembered: Option<String>) -> Mark {
        let Self { client, name, period, zone, key, keep, after: _ } = self;
        // Period and zone as the command writes them, which finds the present slot of a name by them.
        let mut text = json!({
            "v": 1, "period": period.to_string(), "tz": zone.to_string(), "token": lease.token().get(),
        });
        if let Some(remembered) = remembered {
            text["remembered"] = remembered.into();
        }
        Mark {
            kind: MarkKind::Once,
            name: name.clone(),
            key: key.clone(),
            by: client.owner().id(),
            text: text.to_string(),
            lasting: *keep,
            age: Duration::ZERO,
        }
    }

    /// That somebody else has done it, and marked it, before the work that is done here could be marked.
    pub(crate) fn done_before(&self, mark: &Mark) -> Error {
        let message =
            format!("the work is done, but {} had marked it as done before: both have done it", mark.by);
        StoreError::new(StoreErrorKind::Unavailable, Op::Ledger, self.client.store())
            .about(&self.name)
            .saying(message)
            .code(Code::LOST)
            .help("see whether its effect is there twice; tokens sent with the effect would have kept one of them out")
            .into()
    }

    /// That there may be no mark although it was done, or was about to start.
    fn unmarked(&self, failed: Option<Error>, lost: Option<Lost>) -> Error {
        let (what, help) = match self.after {
            OnceAfter::Success => (
                "the work is done, but could not be marked as done, so that it may be done again",
                "see whether its effect is there before it is done again",
            ),
            OnceAfter::Start => ("the work was not started: it could not be marked as started", "ask again"),
        };
        let code = lost.as_ref().map(|_| Code::LOST).or(failed.as_ref().map(Error::code));
        let unknown = failed.as_ref().is_some_and(Error::outcome_unknown);
        // The end of the lease is what decided; what the store said before is why there was no mark by then.
        let why: Vec<String> =
            lost.iter().map(ToString::to_string).chain(failed.iter().map(ToString::to_string)).collect();
        let error = StoreError::new(StoreErrorKind::Unavailable, Op::Ledger, self.client.store())
            .about(&self.name)
            .saying(format!("{what}: {}", why.join(": ")))
            .code(code.unwrap_or(Code::UNREACHABLE))
            .help(help);
        let error = if unknown { error.unknown() } else { error };
        match failed {
            Some(failed) => error.because(failed).into(),
            None => error.into(),
        }
    }
}

/// What a run left in the text of its mark, to be remembered.
pub(crate) fn remembered(text: &str) -> Option<String> {
    let text: Value = serde_json::from_str(text).ok()?;
    text["remembered"].as_str().map(str::to_owned)
}
