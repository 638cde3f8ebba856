//! One client of the store under test, with steps that say what they expected when it does not happen.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Claim, Closure, Cursor, Error, Grant, Leave, LockName, Note, Release, Renew, Renewal, Snapshot, Standing,
    State, Store, Tenure, Together, Token,
};

use crate::{Check, Failure, ensure};

/// One client of the store under test. It is the store, and more.
#[derive(Debug, Clone)]
pub(crate) struct Client(pub(crate) Arc<dyn Store>);

impl Deref for Client {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl Client {
    /// The store itself, for what wraps or shares it.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.0)
    }

    pub(crate) async fn granted(&self, claim: &Claim) -> Check<Grant> {
        match self.claim(claim).await?.state {
            State::Granted(grant) => Ok(grant),
            other => {
                Err(Failure::new(format!("{} should be granted to {}: {other:?}", claim.name, who(claim))))
            }
        }
    }

    /// A claim that must wait, and the cursor to wait on.
    pub(crate) async fn waits(&self, claim: &Claim) -> Check<Cursor> {
        Ok(self.stands_behind(claim).await?.0)
    }

    /// A claim that must wait, the cursor to wait on, and how many are before it, if the store can tell.
    pub(crate) async fn stands_behind(&self, claim: &Claim) -> Check<(Cursor, Option<u32>)> {
        let standing = self.claim(claim).await?;
        match standing.state {
            State::Waiting { ahead, .. } => Ok((standing.cursor, ahead)),
            other => Err(Failure::new(format!("{} should have to wait: {other:?}", who(claim)))),
        }
    }

    /// Several claims that must be granted as one.
    pub(crate) async fn all(&self, claims: &[Claim]) -> Check<Vec<Grant>> {
        let standings = match self.claim_all(claims).await? {
            Together::All(standings) => standings,
            Together::None { index, standing } => {
                return Err(Failure::new(format!("all should be granted, but number {index}: {standing:?}")));
            }
        };
        ensure!(standings.len() == claims.len(), "an answer for each of {}: {standings:?}", claims.len());
        let grant = |standing: Standing| match standing.state {
            State::Granted(grant) => Ok(grant),
            other => Err(Failure::new(format!("all hold, but this one: {other:?}"))),
        };
        standings.into_iter().map(grant).collect()
    }

    /// Several claims none of which must be granted: which is in the way, and where it stands.
    pub(crate) async fn none(&self, claims: &[Claim]) -> Check<(usize, Standing)> {
        match self.claim_all(claims).await? {
            Together::None { index, standing } => Ok((index, standing)),
            Together::All(standings) => Err(Failure::new(format!("none should be granted: {standings:?}"))),
        }
    }

    /// A claim that must be refused with an error that says so: a known outcome, and asking again does not help.
    pub(crate) async fn refused(&self, claim: &Claim) -> Check<Error> {
        let Err(error) = self.claim(claim).await else {
            return Err(Failure::new(format!("{} should be refused as {}", who(claim), claim.share)));
        };
        ensure!(!error.outcome_unknown(), "a refusal is a known outcome: {error}");
        ensure!(!error.is_retryable(), "asking again does not help: {error}");
        ensure!(error.help().is_some(), "it says what to do: {error}");
        Ok(error)
    }

    pub(crate) async fn spent(&self, claim: &Claim) -> Check {
        let state = self.claim(claim).await?.state;
        ensure!(state == State::Spent, "{} has ended and must be spent: {state:?}", who(claim));
        Ok(())
    }

    pub(crate) async fn shut(&self, claim: &Claim) -> Check<Closure> {
        match self.claim(claim).await?.state {
            State::Closed(closure) => Ok(closure),
            other => Err(Failure::new(format!("{} should find the name shut: {other:?}", who(claim)))),
        }
    }

    pub(crate) async fn end(&self, claim: &Claim) -> Check<Release> {
        Ok(self.release(&claim.name, claim.id, Leave::Open).await?)
    }

    /// Gives back what must be held.
    pub(crate) async fn give_back(&self, claim: &Claim) -> Check {
        let ended = self.end(claim).await?;
        ensure!(
            ended == Release::Released,
            "{} should have held until it was released: {ended:?}",
            who(claim)
        );
        Ok(())
    }

    /// Gives back what must be held, and leaves the name shut.
    pub(crate) async fn give_back_shut(&self, claim: &Claim, lasting: Duration, note: &str) -> Check {
        let leave = Leave::Closed { lasting, note: Note::parse(note)? };
        let ended = self.release(&claim.name, claim.id, leave).await?;
        ensure!(
            ended == Release::Released,
            "{} should have held until it was released: {ended:?}",
            who(claim)
        );
        Ok(())
    }

    pub(crate) async fn prolong(&self, claim: &Claim, token: Token) -> Check<Renewal> {
        let mut answers = self.renew(&[renewal(claim, token)]).await;
        ensure!(answers.len() == 1, "one renewal should have one answer: {answers:?}");
        match answers.pop() {
            Some(answer) => Ok(answer?),
            None => Err(Failure::new("a renewal without an answer")),
        }
    }

    /// Renews what must be held, and says for how long it then is.
    pub(crate) async fn kept(&self, claim: &Claim, token: Token) -> Check<Duration> {
        match self.prolong(claim, token).await? {
            Renewal::Kept { ttl, .. } => Ok(ttl),
            Renewal::Lost => {
                Err(Failure::new(format!("{} should still be held when it is renewed", who(claim))))
            }
        }
    }

    /// Nobody holds the name or waits for it.
    pub(crate) async fn is_deserted(&self, name: &LockName) -> Check<Snapshot> {
        let snapshot = self.inspect(name).await?;
        let (holders, waiters) = (&snapshot.holders, &snapshot.waiters);
        ensure!(holders.is_empty() && waiters.is_empty(), "{name} should be deserted: {snapshot:?}");
        Ok(snapshot)
    }
}

/// A claim, as failures call it: the how-manieth of its case.
fn who(claim: &Claim) -> &str {
    &claim.owner.tag
}

/// The renewal of a claim in its first tenure.
pub(crate) fn renewal(claim: &Claim, token: Token) -> Renew {
    let tenure = Tenure { count: 1, token, note: claim.note.clone() };
    Renew { claim: Arc::new(claim.clone()), tenure }
}
