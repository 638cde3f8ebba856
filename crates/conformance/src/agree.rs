//! Whether a store and the model say the same, tokens by their order and times by the millisecond.

use std::collections::HashMap;
use std::time::Duration;

use leasehold_core::{Entry, Grant, LockName, Renewal, Result, Snapshot, State, Token};

use crate::{Check, Failure, ensure};

/// Stores keep whole milliseconds; the model keeps nanoseconds.
const APART: Duration = Duration::from_millis(2);

fn same_time(what: &str, one: Duration, model: Duration) -> Check {
    ensure!(one.abs_diff(model) <= APART, "{what} is {one:?}, by the model {model:?}");
    Ok(())
}

/// The last tokens that were granted of each name, by the store and by the model.
#[derive(Debug, Default)]
pub(crate) struct Agreed(HashMap<LockName, (Token, Token)>);

impl Agreed {
    /// A new grant: both have a token above all before, wherever their scales are.
    pub(crate) fn granted(&mut self, name: &LockName, one: &Grant, model: &Grant) -> Check {
        if let Some((last, last_model)) = self.0.get(name) {
            ensure!(one.token > *last, "{:?} does not rise above {last:?}", one.token);
            ensure!(
                model.token > *last_model,
                "the model's {:?} does not rise above {last_model:?}",
                model.token
            );
        }
        let last = |grant: &Grant| grant.token.after(grant.tokens.saturating_sub(1)).unwrap_or(grant.token);
        self.0.insert(name.clone(), (last(one), last(model)));
        Ok(())
    }
}

/// Compares two states, and names what they are.
pub(crate) fn standings(one: &State, model: &State) -> Check<&'static str> {
    match (one, model) {
        (State::Granted(one), State::Granted(model)) => {
            same_time("the ttl of a grant", one.ttl, model.ttl)?;
            Ok("granted")
        }
        (State::Waiting { ahead: one, .. }, State::Waiting { ahead: model, .. }) => {
            let counted = one.is_none() || model.is_none() || one == model;
            ensure!(counted, "{one:?} are ahead, by the model {model:?}");
            Ok("waiting")
        }
        (State::Closed(one), State::Closed(model)) => {
            same_time("what is left of a closure", one.left, model.left)?;
            ensure!((&one.by, &one.note) == (&model.by, &model.note), "{one:?}, by the model {model:?}");
            Ok("closed")
        }
        (State::Spent, State::Spent) => Ok("spent"),
        (State::Refused { .. }, State::Refused { .. }) => Ok("refused"),
        (one, model) => Err(Failure::new(format!("{one:?}, by the model {model:?}"))),
    }
}

/// Compares the answers to a batch of renewals, and names what they are.
pub(crate) fn renewals(one: Vec<Result<Renewal>>, model: Vec<Result<Renewal>>) -> Check<Vec<&'static str>> {
    ensure!(one.len() == model.len(), "{} answers to {} renewals", one.len(), model.len());
    let both = one.into_iter().zip(model);
    both.map(|(one, model)| match (one?, model?) {
        (Renewal::Kept { ttl: one, .. }, Renewal::Kept { ttl: model, .. }) => {
            same_time("the ttl of a renewal", one, model)?;
            Ok("kept")
        }
        (Renewal::Lost, Renewal::Lost) => Ok("lost"),
        (one, model) => Err(Failure::new(format!("{one:?}, by the model {model:?}"))),
    })
    .collect()
}

/// Compares two looks at one name.
pub(crate) fn snapshots(one: &Snapshot, model: &Snapshot) -> Check {
    // No `..`: what is added must be compared too, or be named here as what cannot be.
    let Snapshot { name, holders, waiters, closed, cursor: _, server_time: _ } = one;
    ensure!(*name == model.name, "{name}, by the model {}", model.name);
    entries("holders", holders, &model.holders)?;
    // Where both are wrong they agree, so the rule itself is asked as well.
    let taken: u64 = holders.iter().map(|entry| u64::from(entry.share.take())).sum();
    let fits = holders.iter().all(|entry| taken <= u64::from(entry.share.of()));
    ensure!(fits, "{name} is held against the rule: {holders:?}");
    entries("waiters", waiters, &model.waiters)?;
    match (closed, &model.closed) {
        (None, None) => Ok(()),
        (Some(one), Some(model)) => {
            standings(&State::Closed(one.clone()), &State::Closed(model.clone())).map(drop)
        }
        (one, model) => Err(Failure::new(format!("the closure is {one:?}, by the model {model:?}"))),
    }
}

fn entries(what: &str, one: &[Entry], model: &[Entry]) -> Check {
    ensure!(one.len() == model.len(), "{what} are {one:?}, by the model {model:?}");
    for (one, model) in one.iter().zip(model) {
        entry(one, model).map_err(|failure| failure.during(format!("{what}: {}", one.owner.tag)))?;
    }
    Ok(())
}

fn entry(one: &Entry, model: &Entry) -> Check {
    let Entry { id, owner, share, wanted, reshape, note, token, tenure, age, renewed, renewals, left, ttl } =
        one;
    let same = (id, owner, share, note) == (&model.id, &model.owner, &model.share, &model.note);
    ensure!(same, "{one:?}, by the model {model:?}");
    ensure!((wanted, reshape) == (&model.wanted, &model.reshape), "{one:?}, by the model {model:?}");
    ensure!(token.is_some() == model.token.is_some(), "{one:?}, by the model {model:?}");
    // A store that prolongs a lease without writing cannot count all.
    let counted = *renewals <= model.renewals;
    ensure!(*tenure == model.tenure && counted, "{one:?}, by the model {model:?}");
    same_time("the age", *age, model.age)?;
    same_time("the last renewal", *renewed, model.renewed)?;
    same_time("what is left", *left, model.left)?;
    same_time("the ttl", *ttl, model.ttl)
}
