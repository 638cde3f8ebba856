//! Somebody who asks for a name again and again until it is granted, as the engine does.

use std::cell::RefCell;

use leasehold_core::{Claim, Grant, State};

use crate::Check;
use crate::bench::Bench;
use crate::client::Client;

/// One claim that is asked for until it is granted. Where the store is made of several, some of which had taken it
/// before the others and were told to let go, its id is spent: then it goes on under another.
pub(crate) struct Asking<'a> {
    bench: &'a Bench,
    client: &'a Client,
    claim: RefCell<Claim>,
}

impl<'a> Asking<'a> {
    pub(crate) fn new(bench: &'a Bench, client: &'a Client, claim: Claim) -> Self {
        Self { bench, client, claim: RefCell::new(claim) }
    }

    /// The claim as it was asked for last.
    pub(crate) fn claim(&self) -> Claim {
        self.claim.borrow().clone()
    }

    /// Asks once.
    pub(crate) async fn ask(&self) -> Check<State> {
        let claim = self.claim();
        let state = self.client.claim(&claim).await?.state;
        if state != State::Spent || !self.bench.offer.of_several {
            return Ok(state);
        }
        let next = Claim { id: self.bench.claim(&claim.name).id, ..claim };
        self.claim.replace(next.clone());
        Ok(self.client.claim(&next).await?.state)
    }

    /// Asks once, for what may be granted now.
    pub(crate) async fn granted(&self) -> Check<Option<Grant>> {
        Ok(if let State::Granted(grant) = self.ask().await? { Some(grant) } else { None })
    }

    /// Asks once, for what must be granted now.
    pub(crate) async fn gets(&self) -> Check<Grant> {
        match self.ask().await? {
            State::Granted(grant) => Ok(grant),
            other => Err(crate::Failure::new(format!("it should be granted: {other:?}"))),
        }
    }
}
