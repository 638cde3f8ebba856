//! What a `run` does beside its lock: looks for pauses and marks, makes marks, keeps the account of itself.

use std::cell::RefCell;
use std::time::Duration;

use leasehold::config::{OnFail, OnceAfter, exact};
use leasehold::{BootTime, Busy, Clock, Lease, Leasehold, Mark, MarkKind, MarkOutcome, Result};
use serde_json::json;

use crate::account::{Account, Skipped};
use crate::books::{self, Conclude, Look, Make, Take};
use crate::failure::Failure;
use crate::history::History;
use crate::options::Once;
use crate::overdue;
use crate::pause;
use crate::plan::Plan;
use crate::supervise::{Ended, Why};
use crate::talk::Talk;
use crate::{exit, human};

/// The part of one run that is not its lock.
pub(crate) struct Beside<'a> {
    plan: &'a Plan,
    clock: Clock,
    talk: Talk,
    asked: BootTime,
    /// The slot of `--once`, found out once: a long wait must not move a run into the next.
    slot: Option<String>,
    account: RefCell<Account>,
}

impl<'a> Beside<'a> {
    pub(crate) fn new(plan: &'a Plan, clock: Clock, talk: Talk) -> Self {
        let wall = clock.wall_micros();
        let slot = plan.options.once.as_ref().map(|once| once.slot(wall));
        let account =
            Account { asked_at: wall, slot: slot.clone().map(|slot| (slot, false)), ..Account::default() };
        Self { plan, asked: clock.now(), clock, talk, slot, account: RefCell::new(account) }
    }

    /// Whether to ask for the lock at all. Who neither waits nor has a period finds out under the lock, in one look
    /// rather than two: it takes the lock at once or never.
    pub(crate) async fn may_ask(&self, client: &Leasehold) -> Result<bool> {
        if self.looks_late() { Ok(true) } else { self.may_run(client).await }
    }

    fn looks_late(&self) -> bool {
        self.slot.is_none() && self.plan.wait.is_none()
    }

    /// Whether the name of a run that found it busy is paused too: that is no failure, whatever `--busy` says.
    pub(crate) async fn is_paused_too(&self, client: &Leasehold) -> bool {
        self.looks_late() && matches!(self.may_run(client).await, Ok(false))
    }

    /// Whether nothing stands in the way: neither a pause nor the mark of the slot. If something does, it is said
    /// to whoever may want to know.
    async fn may_run(&self, client: &Leasehold) -> Result<bool> {
        let look = books::look(client, &self.plan.name, self.slot.as_deref(), false).await?;
        let Look { paused, done, .. } = look;
        if let Some(mark) = paused {
            self.talk.tell(format_args!(
                "skipped, {} is {}",
                self.plan.name,
                pause::said(&mark, &self.clock)
            ));
            self.skip(Skipped::Paused);
            return Ok(false);
        }
        if let Some(mark) = done {
            self.tell_done(&mark);
            return Ok(false);
        }
        Ok(true)
    }

    /// The same under the lock: whoever held it before may just have done it. With `--once-after start` it is
    /// marked now.
    pub(crate) async fn may_start(&self, client: &Leasehold, lease: &Lease) -> Result<bool> {
        {
            let mut account = self.account.borrow_mut();
            account.waited = Some(self.clock.now().since(self.asked));
            account.token = Some(lease.token().get());
            account.holder = Some(lease.owner_id().to_owned());
        }
        if !self.may_run(client).await? {
            return Ok(false);
        }
        if self.once().is_some_and(|once| once.after == OnceAfter::Start)
            && let Some(standing) = self.mark(client).await?
        {
            self.tell_done(&standing);
            return Ok(false);
        }
        Ok(true)
    }

    fn once(&self) -> Option<&Once> {
        self.plan.options.once.as_ref()
    }

    fn tell_done(&self, mark: &Mark) {
        if let Some((_, done)) = &mut self.account.borrow_mut().slot {
            *done = true;
        }
        self.skip(Skipped::Done);
        let (name, slot) = (&self.plan.name, human::harmless(&mark.key));
        let (by, ago) = (human::harmless(host_of(&mark.by)), human::rough(mark.age));
        let once =
            self.once().map_or_else(String::new, |once| human::quoted(once.period.to_string().as_ref()));
        self.talk.tell(format_args!(
            "skipped, {name} is done for {slot}, by {by} {ago} ago\n  again    leasehold forget {name} --once {once}"
        ));
    }

    /// Makes the mark of the slot; answers the one that stands already.
    async fn mark(&self, client: &Leasehold) -> Result<Option<Mark>> {
        let (Some(once), Some(slot)) = (self.once(), self.slot.clone()) else { return Ok(None) };
        let text =
            json!({"v": 1, "period": once.period.to_string(), "tz": once.zone.to_string()}).to_string();
        let mark = Mark {
            kind: MarkKind::Once,
            name: books::full(client, &self.plan.name)?,
            key: slot,
            by: client.owner().id(),
            text,
            lasting: once.keep,
            age: Duration::ZERO,
        };
        let outcome = client.with_ledger(Make(mark)).await?;
        if let Some((_, done)) = &mut self.account.borrow_mut().slot {
            *done = true;
        }
        Ok(match outcome {
            MarkOutcome::Made => None,
            MarkOutcome::Already(standing) => Some(*standing),
        })
    }

    /// Takes back the mark that was made before the start: the command never ran, or another host may try.
    pub(crate) async fn unmark(&self, client: &Leasehold) {
        let (Some(once), Some(slot)) = (self.once(), self.slot.clone()) else { return };
        if once.after != OnceAfter::Start {
            return;
        }
        let taken = match books::full(client, &self.plan.name) {
            Ok(name) => client.with_ledger(Take { kind: MarkKind::Once, name, key: slot }).await,
            Err(error) => Err(error.into()),
        };
        match taken {
            Ok(_) => {
                if let Some((_, done)) = &mut self.account.borrow_mut().slot {
                    *done = false;
                }
            }
            Err(error) => self.talk.warn(format_args!("{} stays marked as done: {error}", self.plan.name)),
        }
    }

    pub(crate) fn skip(&self, why: Skipped) {
        self.account.borrow_mut().skipped = Some(why);
    }

    pub(crate) fn held_by(&self, busy: &Busy) {
        let mut account = self.account.borrow_mut();
        account.waited = Some(self.clock.now().since(self.asked));
        account.busy = Some(busy.clone());
    }

    pub(crate) fn started(&self) {
        self.account.borrow_mut().started = Some((self.clock.now(), self.clock.wall_micros()));
    }

    pub(crate) fn ended(&self, ended: &Ended) {
        let mut account = self.account.borrow_mut();
        account.ran = account.started.map(|(start, _)| self.clock.now().since(start));
        account.status = Some(ended.status);
        account.cut_short = matches!(ended.stopped, Some((Why::AtMost, _)));
    }

    /// What follows from how the command ended, while the lease still holds.
    pub(crate) async fn settle(&self, client: &Leasehold, code: u8, stands: bool) {
        if code != exit::OK {
            if self.plan.options.on_fail == OnFail::Release {
                self.unmark(client).await;
            }
            return;
        }
        if stands
            && self.once().is_some_and(|once| once.after == OnceAfter::Success)
            && let Err(error) = self.mark(client).await
        {
            self.talk.warn(format_args!(
                "{} is done, but could not be marked as done, so that it may run again: {error}",
                self.plan.name
            ));
        }
    }

    /// Gives the lease back after the command has ended with this code; shut, if it is too early for others.
    pub(crate) async fn release(&self, lease: Lease, code: u8) -> Result<()> {
        let options = &self.plan.options;
        let started = self.account.borrow().started;
        let ran = started.map_or(Duration::MAX, |(start, _)| self.clock.now().since(start));
        let left = options.at_least.saturating_sub(ran);
        if left.is_zero() || (code != exit::OK && options.on_fail == OnFail::Release) {
            // Not shut at all, or somebody else may try: `at_least` has been dealt with.
            return lease.unused().release().await;
        }
        self.account.borrow_mut().shut = Some(left);
        lease.release_closed(left, &format!("at-least {}", exact(options.at_least))).await
    }

    /// What happened before, for a message. What cannot be found out is left out.
    pub(crate) async fn history(&self, client: &Leasehold) -> History {
        books::look(client, &self.plan.name, None, true).await.map(|look| look.history).unwrap_or_default()
    }

    /// Writes the report.
    pub(crate) fn report(&self, report: crate::report::Report, store: &str, result: &Result<u8, Failure>) {
        let period = self.once().map(|once| once.period.to_string());
        let account = self.account.borrow().report(result, self.plan.name.as_str(), store, period.as_deref());
        if let Err(error) = report.write(&account) {
            self.talk.warn(error);
        }
    }

    /// Writes the record, and complains if the name is overdue; for so long at most.
    pub(crate) async fn conclude(&self, client: &Leasehold, result: &Result<u8, Failure>, most: Duration) {
        let owner = client.owner();
        let (kind, text, busy) = {
            let account = self.account.borrow();
            let Some(kind) = account.kind(result) else { return };
            (kind, account.record(result, &owner.host), account.busy.clone())
        };
        let Ok(name) = books::full(client, &self.plan.name) else { return };
        let (by, host, limit) = (owner.id(), owner.host.clone(), self.plan.options.overdue);
        let conclude = client.with_ledger(Conclude { kind, name, by, host, text, limit });
        match tokio::time::timeout(most, conclude).await {
            Ok(Ok(Some(overdue))) => {
                overdue::complain(&self.plan.name, &overdue, busy.as_ref(), &self.clock, self.talk);
            }
            Ok(Ok(None)) => {}
            // It has no bearing on what was done, and a store in trouble was told of before.
            Ok(Err(error)) => self.talk.explain(format_args!("no record of this run: {error}")),
            Err(_) => self.talk.explain("no record of this run: no answer"),
        }
    }
}

/// The host of `host/pid/tag`.
pub(crate) fn host_of(id: &str) -> &str {
    id.split('/').next().unwrap_or(id)
}
