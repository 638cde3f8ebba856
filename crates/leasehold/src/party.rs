//! The tasks of this process that want one name: a line of their own, with one claim in the store.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{BootTime, Error, LockName};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::nesting::Asker;
use crate::terms::Terms;
use crate::ticket::Ticket;

/// One task that waits.
#[derive(Debug, Clone)]
pub(crate) struct Waiter {
    /// Tells the acquires of one client apart.
    pub(crate) seq: u64,
    pub(crate) ticket: Arc<Ticket>,
    pub(crate) terms: Arc<Terms>,
    pub(crate) asked: BootTime,
    /// How long he will wait, from `asked`.
    pub(crate) wait: Option<Duration>,
    /// Whether a "no" should say who has it.
    pub(crate) wants_busy: bool,
    pub(crate) asker: Arc<Asker>,
}

/// What the party does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing is under way.
    Idle,
    /// A claim is in the store for the first of the line.
    Pursuing,
    /// One of them has the lease.
    Held,
}

/// The tasks of this process that want one name.
#[derive(Debug)]
pub(crate) struct Party {
    pub(crate) name: LockName,
    /// Whether later tasks may join: a try, a reader or a taker of permits stands alone.
    pub(crate) open: bool,
    pub(crate) stage: Cell<Stage>,
    line: RefCell<VecDeque<(Waiter, Option<AbortHandle>)>>,
    moved: Notify,
    /// The last failure of the store that no good answer has followed.
    pub(crate) trouble: RefCell<Option<Error>>,
    /// Whether the store has answered at all since the present pursuit began.
    pub(crate) heard: Cell<bool>,
    /// How many the store last said are before the party's claim.
    pub(crate) ahead: Cell<Option<u32>>,
}

impl Party {
    pub(crate) fn new(name: LockName, open: bool) -> Self {
        Self {
            name,
            open,
            stage: Cell::new(Stage::Idle),
            line: RefCell::default(),
            moved: Notify::new(),
            trouble: RefCell::default(),
            heard: Cell::new(true),
            ahead: Cell::default(),
        }
    }

    /// Joins at the end. `deadline` is stopped once the waiter has left.
    pub(crate) fn join(&self, waiter: Waiter, deadline: Option<AbortHandle>) {
        self.line.borrow_mut().push_back((waiter, deadline));
        self.moved.notify_one();
    }

    /// The first who still waits.
    pub(crate) fn head(&self) -> Option<Waiter> {
        let mut line = self.line.borrow_mut();
        while line.front().is_some_and(|(waiter, _)| waiter.ticket.is_over()) {
            line.pop_front().into_iter().for_each(stop);
        }
        // Somebody who was handed a lease and has not taken it yet keeps his place: it may be taken back.
        let first = line.iter().find(|(waiter, _)| waiter.ticket.is_waiting());
        first.map(|(waiter, _)| waiter.clone())
    }

    /// The first who still waits and agrees with these terms.
    pub(crate) fn first_on(&self, terms: &Terms) -> Option<Waiter> {
        let line = self.line.borrow();
        let fits = |(waiter, _): &&(Waiter, _)| waiter.ticket.is_waiting() && waiter.terms.agree(terms);
        line.iter().find(fits).map(|(waiter, _)| waiter.clone())
    }

    /// Takes somebody out of the line; says whether he stood there.
    pub(crate) fn leave(&self, seq: u64) -> bool {
        let mut line = self.line.borrow_mut();
        let found = line.iter().position(|(waiter, _)| waiter.seq == seq);
        found.and_then(|index| line.remove(index)).into_iter().for_each(stop);
        self.moved.notify_one();
        found.is_some()
    }

    /// Somebody who stands in the line.
    pub(crate) fn find(&self, seq: u64) -> Option<Waiter> {
        self.line.borrow().iter().find(|(waiter, _)| waiter.seq == seq).map(|(waiter, _)| waiter.clone())
    }

    /// Takes somebody out of the line whose deadline is what is running: it must not be stopped.
    pub(crate) fn leave_at_deadline(&self, seq: u64) {
        self.line.borrow_mut().retain(|(waiter, _)| waiter.seq != seq);
        self.moved.notify_one();
    }

    /// Puts somebody who did not take what he got at the end.
    pub(crate) fn to_the_end(&self, seq: u64) {
        let mut line = self.line.borrow_mut();
        if let Some(index) = line.iter().position(|(waiter, _)| waiter.seq == seq) {
            let moved = line.remove(index);
            line.extend(moved);
        }
    }

    /// Who waits.
    pub(crate) fn waiting(&self) -> Vec<Waiter> {
        let line = self.line.borrow();
        line.iter().map(|(waiter, _)| waiter).filter(|waiter| waiter.ticket.is_waiting()).cloned().collect()
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.line.borrow().len()
    }

    /// Answers all with this error; gives those who still waited for it.
    pub(crate) fn fail(&self, error: &Error) -> Vec<Waiter> {
        let mut told = Vec::new();
        for (waiter, deadline) in self.line.take() {
            if waiter.ticket.answer(Err(error.clone())).is_ok() {
                told.push(waiter.clone());
            }
            stop((waiter, deadline));
        }
        told
    }

    /// How many are before somebody of the line, holders included, as far as it is known.
    pub(crate) fn ahead_of(&self, seq: u64) -> Option<u32> {
        let others = match self.stage.get() {
            Stage::Idle => return None,
            Stage::Pursuing => self.ahead.get()?,
            Stage::Held => 1,
        };
        let line = self.line.borrow();
        let before = line.iter().take_while(|(waiter, _)| waiter.seq != seq);
        let before = before.filter(|(waiter, _)| waiter.ticket.is_waiting()).count();
        Some(others.saturating_add(u32::try_from(before).unwrap_or(u32::MAX)))
    }

    /// Returns once nobody is left who agrees with these terms and could be the first.
    pub(crate) async fn turned_away_from(&self, terms: &Terms) {
        while self.head().is_some_and(|head| head.terms.agree(terms)) {
            self.moved.notified().await;
        }
    }

    /// Somebody's future was dropped.
    pub(crate) fn look_again(&self) {
        self.moved.notify_one();
    }
}

fn stop((_, deadline): (Waiter, Option<AbortHandle>)) {
    if let Some(deadline) = deadline {
        deadline.abort();
    }
}
