//! The future behind every acquire: leaves an order with the engine and waits for the answer, on any executor.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use leasehold_core::{Leave, Result, Turn, fault};
use tracing::Span;

use crate::client::Client;
use crate::engine::{Command, Request};
use crate::event;
use crate::hold::Hold;
use crate::lease::Lease;
use crate::nesting::{Asker, ScopeMark};
use crate::terms::Terms;
use crate::ticket::Ticket;

/// An acquire under way. Dropping it leaves the line and gives back whatever was granted meanwhile.
#[derive(Debug)]
pub(crate) struct Acquire {
    client: Arc<Client>,
    stage: Stage,
    ticket: Arc<Ticket>,
    seq: u64,
    terms: Arc<Terms>,
    wait: Option<Duration>,
    wants_busy: bool,
    scope: Option<ScopeMark>,
    /// Who asks, once it has asked.
    asker: Option<Arc<Asker>>,
    span: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Not polled yet: nothing was asked for.
    New,
    Asked,
    Done,
}

impl Acquire {
    pub(crate) fn new(client: Arc<Client>, terms: Terms, wait: Option<Duration>, wants_busy: bool) -> Self {
        let seq = client.next_seq();
        let (ticket, terms) = (Ticket::new(), Arc::new(terms));
        let span = event::acquire_span(&client, &terms, wait);
        let (scope, asker) = (None, None);
        Self { client, stage: Stage::New, ticket, seq, terms, wait, wants_busy, scope, asker, span }
    }

    /// Has it asked for by a scope.
    pub(crate) fn of(mut self, scope: ScopeMark) -> Self {
        self.scope = Some(scope);
        self
    }

    fn ask(&mut self, context: &Context<'_>) -> Result<()> {
        let Terms { name, share, .. } = &*self.terms;
        let scope = self.scope.take();
        let (asker, waits_for_itself) = Asker::now(context.waker(), &self.client, name, *share, scope);
        if waits_for_itself && !fault!("waits_for_itself") {
            // The run around this holds the name until its work ends, and this is part of that work. It is tried, so
            // that the store and nobody else says who has it.
            self.terms = Arc::new(Terms { turn: Turn::Now, ..(*self.terms).clone() });
            (self.wait, self.wants_busy) = (None, true);
        }
        let asker = self.asker.insert(Arc::new(asker)).clone();
        self.client.send(Command::Acquire(Request {
            seq: self.seq,
            ticket: self.ticket.clone(),
            terms: self.terms.clone(),
            wait: self.wait,
            wants_busy: self.wants_busy,
            asker,
        }))
    }

    fn finish(&mut self, answer: Result<Arc<Hold>>) -> Poll<Result<Lease>> {
        self.stage = Stage::Done;
        if let (Ok(hold), Some(asker)) = (&answer, self.asker.take()) {
            hold.asked_by(asker);
        }
        event::record_acquire(&self.span, &answer);
        Poll::Ready(answer.map(|hold| Lease::new(hold, self.client.clone())))
    }
}

impl Future for Acquire {
    type Output = Result<Lease>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.stage == Stage::New {
            if let Err(error) = self.ask(context) {
                return self.finish(Err(error));
            }
            self.stage = Stage::Asked;
        }
        let answer = self.span.in_scope(|| self.ticket.poll(context));
        match answer {
            Poll::Ready(answer) => self.finish(answer),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        if self.stage != Stage::Asked || leasehold_core::fault!("no_release_on_drop") {
            return;
        }
        let (tell, hold) = self.ticket.abandon();
        // An engine that has ended has nothing to give back.
        if let Some(hold) = hold {
            hold.was_idle();
            drop(self.client.send(Command::Release { hold, leave: Leave::Open, reply: None }));
        }
        if tell {
            drop(self.client.send(Command::Abandon { name: self.terms.name.clone(), seq: self.seq }));
        }
    }
}
