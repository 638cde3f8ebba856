//! Elections for those who block.

use std::time::Duration;

use leasehold_core::Result;

use super::leader::LeaderWatch;
use super::mirror::{both_ways, mirror};
use super::term::Term;
use super::wait;
use crate::election::{self, AfterTerm};

/// As [`crate::Election`]: one leader of many. It does nothing until asked, and may be used any number of times.
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// use std::ops::ControlFlow;
/// use std::time::Duration;
///
/// let client = leasehold::blocking::Leasehold::memory();
/// let mut leader = client.election("indexer").watch();
/// assert!(leader.changed()?.is_none(), "nobody leads yet");
///
/// let mut parts = 0..3;
/// let served = client.election("indexer").ttl(Duration::from_secs(15)).lead(|term| {
///     while !term.is_cancelled() {
///         match parts.next() {
///             Some(part) => println!("part {part} under {}", term.token()), // send it with every write
///             None => return ControlFlow::Break("all of it"),
///         }
///     }
///     ControlFlow::Continue(()) // the term is over: campaign again
/// })?;
/// assert_eq!(served, "all of it");
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "an election is only a description: lead, campaign or watch"]
pub struct Election(crate::Election);

impl Election {
    mirror! { "Election"
        option ttl(ttl: Duration);
        option grace(grace: Duration);
        option note(note: impl AsRef<str>);
        lease campaign() -> Term;
    }

    /// As [`Election::lead`](crate::Election::lead): campaigns, calls `work` with each term, and campaigns again when
    /// it comes back, unless it answers [`ControlFlow::Break`](std::ops::ControlFlow::Break) (see [`AfterTerm`]).
    ///
    /// **Nothing stops the work when its term is over**, and until it comes back nobody campaigns here. So it has to
    /// look: [`Term::check`] before each step that matters, [`Term::is_cancelled`] to wind down in time, and
    /// [`Term::ends_within`] instead of a sleep. What it answers counts, even after the end of its term:
    /// `Break` ends `lead`, also for a program that is told to stop while another one leads already. If it
    /// carries a result that only a leader may give, check first.
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Panics
    ///
    /// If the work does; the term is given up then.
    pub fn lead<V: AfterTerm>(&self, mut work: impl FnMut(Term) -> V) -> Result<V::Stop> {
        loop {
            let term = wait(self.0.next_term())?;
            let verdict = work(term.view().into());
            if term.check().is_ok() {
                wait(election::give_up(term));
            } else {
                // In the background: the store does not answer, or knows already.
                drop(term);
            }
            if let Some(stop) = verdict.stop() {
                return Ok(stop);
            }
        }
    }

    /// As [`Election::watch`](crate::Election::watch): tells who leads from now on, without taking part.
    #[must_use = "it tells only until it is dropped"]
    pub fn watch(&self) -> LeaderWatch {
        self.0.watch().into()
    }
}

both_ways!(Election);
