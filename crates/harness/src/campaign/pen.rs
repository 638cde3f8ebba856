//! What one client saw, written down as it happens: by its task, and by its engine's own thread.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::{Clock, Event, Lease, LockName, Observer, Share, Token};
use leasehold_conformance::{Happened, Record};
use leasehold_core::{BootTime, Turn};

/// The records of one client, whose task asks for one lock at a time.
#[derive(Debug)]
pub(super) struct Pen {
    clock: Clock,
    process: u32,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    records: Vec<Record>,
    claim: u64,
    /// The lease that is held, as far as its holder knows: its token, and until when.
    held: Option<(Token, BootTime)>,
    endangered: u64,
}

impl Inner {
    fn write(&mut self, at: BootTime, process: u32, what: Happened) {
        let claim = self.claim;
        self.records.push(Record { at, process, claim, what });
    }
}

impl Pen {
    pub(super) fn new(process: u32) -> Self {
        Self { clock: Clock::system(), process, inner: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is about to be asked for.
    pub(super) fn asks(&self, name: &LockName) {
        let mut inner = self.lock();
        inner.claim += 1;
        let (name, share) = (name.clone(), Share::EXCLUSIVE);
        inner.write(
            self.clock.now(),
            self.process,
            Happened::Asked { name, attempt: 1, turn: Turn::Any, share },
        );
    }

    pub(super) fn gives_up(&self) {
        self.lock().write(self.clock.now(), self.process, Happened::GaveUp);
    }

    pub(super) fn got(&self, lease: &Lease) {
        let mut inner = self.lock();
        let at = self.clock.now();
        let (token, valid_until) = (lease.token(), at.after(lease.remaining()));
        inner.held = Some((token, valid_until));
        inner.write(at, self.process, Happened::Granted { token, valid_until });
    }

    /// Its holder has noticed that it is lost, if that was not written down yet.
    pub(super) fn loses(&self) {
        let mut inner = self.lock();
        if inner.held.take().is_some() {
            inner.write(self.clock.now(), self.process, Happened::Lost);
        }
    }

    /// It is about to be given back. No: its holder has lost it, and was told.
    pub(super) fn gives_back(&self) -> bool {
        let mut inner = self.lock();
        let held = inner.held.take().is_some();
        if held {
            inner.write(self.clock.now(), self.process, Happened::ReleaseCalled);
        }
        held
    }

    pub(super) fn given_back(&self) {
        self.lock().write(self.clock.now(), self.process, Happened::Released);
    }

    /// How long after this moment it first got a lease.
    pub(super) fn granted_after(&self, moment: BootTime) -> Option<Duration> {
        let inner = self.lock();
        let later = inner.records.iter().rev().take_while(|record| record.at >= moment);
        let mut grants: Vec<BootTime> = Vec::new();
        for record in later {
            if matches!(record.what, Happened::Granted { .. }) {
                grants.push(record.at);
            }
        }
        grants.last().map(|at| at.since(moment))
    }

    pub(super) fn endangered(&self) -> u64 {
        self.lock().endangered
    }

    /// All records.
    pub(super) fn take(&self) -> Vec<Record> {
        std::mem::take(&mut self.lock().records)
    }
}

impl Observer for Pen {
    fn on(&self, event: &Event) {
        let mut inner = self.lock();
        let now = self.clock.now();
        let Some((held, until)) = inner.held else { return };
        match event {
            // One of a lease that its holder is giving back says nothing any more.
            Event::Renewed { token, left, remaining, .. } if *token == held => {
                let valid_until = now.after(*remaining);
                inner.held = Some((held, valid_until));
                // It came in time if anything was left, however long this thread took to say so.
                let at = if left.is_zero() { now } else { now.min(until) };
                inner.write(at, self.process, Happened::Renewed { valid_until });
            }
            Event::Lost { token, .. } if *token == held => {
                inner.held = None;
                inner.write(now, self.process, Happened::Lost);
            }
            Event::Endangered { .. } => inner.endangered += 1,
            _ => {}
        }
    }
}
