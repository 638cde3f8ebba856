//! How several claims are judged as one: all or none.

use std::sync::Arc;

use super::{Line, Moment, Overruled};
use crate::{Claim, Counter, State, Turn};

/// What several claims came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Joint {
    /// All of them hold.
    All(Vec<State>),
    /// None of them does by this step, and the lines are as they were.
    None {
        /// The first that was in the way.
        index: usize,
        /// Where it stands.
        state: State,
    },
}

impl Line {
    /// Judges several claims, each with the line of its name, as one. The lines must have been
    /// [swept](Self::sweep) at this moment.
    ///
    /// # Errors
    ///
    /// When one of them is not judged at all, by its place; nothing has changed then.
    pub fn claim_all(
        at: Moment,
        pairs: &mut [(Self, &Claim)],
        counter: &mut Counter,
        life: Option<&Arc<str>>,
    ) -> Result<Joint, (usize, Overruled)> {
        let before: Vec<Self> = pairs.iter().map(|(line, _)| line.clone()).collect();
        let counted = *counter;
        let mut states = Vec::with_capacity(pairs.len());
        let mut failed = None;
        for (index, (line, claim)) in pairs.iter_mut().enumerate() {
            // Whatever their turn: a place in one line, kept while others are waited for, is half of it left behind.
            let now = Claim { turn: Turn::Now, ..(*claim).clone() };
            match line.claim(at, &now, counter, life.cloned()) {
                Ok(state @ State::Granted(_)) => states.push(state),
                Ok(state) => failed = Some(Ok(Joint::None { index, state })),
                Err(overruled) => failed = Some(Err((index, overruled))),
            }
            if failed.is_some() {
                break;
            }
        }
        let Some(answer) = failed else { return Ok(Joint::All(states)) };
        if !crate::fault!("half_of_all_stays") {
            for ((line, _), before) in pairs.iter_mut().zip(before) {
                *line = before;
            }
            *counter = counted;
        }
        answer
    }
}
