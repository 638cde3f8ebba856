//! The search against histories that are true but for one mutation: it rejects each, save those that are true again,
//! which brute force has to say.

use std::collections::BTreeMap;

use super::brute::{KINDS, allowed, some_want, true_history};
use super::model::{Kind, Step, Want};
use super::sites::memory_with_faults;
use super::suite;
use super::wgl::{NEVER, Operation, Stamp, search};

/// What is done to a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mutation {
    /// Two grants have each other's tokens.
    TokensSwapped,
    /// Two grants have one token.
    TokenTwice,
    /// A grant has a token from before.
    TokenFell,
    /// Somebody else gets it as well.
    GrantedTwice,
    /// A grant is missing.
    GrantLost,
    /// A lease ended, and nobody says so.
    EndLost,
    /// A lease ended later.
    EndLate,
    /// A lease ended twice.
    EndTwice,
    /// A grant came earlier.
    GrantEarly,
    /// Somebody was told that it is taken.
    BusyFromNowhere,
    /// A holder was told that it holds after it had ended.
    HoldsAfterEnd,
    /// A holder was told another token.
    HoldsOther,
    /// Somebody got more than was written down.
    GotMore,
    /// What is done is done again.
    DoneAgain,
    /// Somebody was told that it is done before it was.
    DoneEarly,
}

use Mutation::{
    BusyFromNowhere, DoneAgain, DoneEarly, EndLate, EndLost, EndTwice, GotMore, GrantEarly, GrantLost,
    GrantedTwice, HoldsAfterEnd, HoldsOther, TokenFell, TokenTwice, TokensSwapped,
};

const ALL: [Mutation; 15] = [
    TokensSwapped,
    TokenTwice,
    TokenFell,
    GrantedTwice,
    GrantLost,
    EndLost,
    EndLate,
    EndTwice,
    GrantEarly,
    BusyFromNowhere,
    HoldsAfterEnd,
    HoldsOther,
    GotMore,
    DoneAgain,
    DoneEarly,
];

fn places(operations: &[Operation], wanted: fn(Step) -> bool) -> Vec<usize> {
    (0..operations.len()).filter(|at| wanted(operations[*at].step)).collect()
}

fn granted(step: Step) -> bool {
    matches!(step, Step::Granted { .. })
}

fn ended(step: Step) -> bool {
    matches!(step, Step::Ended { .. })
}

fn token(step: &mut Step) -> Option<&mut u64> {
    match step {
        Step::Granted { token, .. } | Step::Holds { token, .. } | Step::Changed { token, .. } => Some(token),
        _ => None,
    }
}

/// Does it; `None` where there is nothing to do it to.
fn mutate(
    mutation: Mutation,
    dice: &mut fastrand::Rng,
    kind: Kind,
    operations: &[Operation],
) -> Option<Vec<Operation>> {
    let mut next = operations.to_vec();
    let pick = |dice: &mut fastrand::Rng, places: &[usize]| {
        (!places.is_empty()).then(|| places[dice.usize(..places.len())])
    };
    let grants = places(operations, granted);
    let end = operations.iter().map(|one| one.to).filter(|to| *to != NEVER).max()?;
    let point = |at: Stamp, step| Operation { from: at, to: at, step };
    match mutation {
        TokensSwapped => {
            let one = pick(dice, &grants)?;
            let other = pick(dice, &grants.iter().copied().filter(|at| *at != one).collect::<Vec<_>>())?;
            let (mine, theirs) = (*token(&mut next[one].step)?, *token(&mut next[other].step)?);
            *token(&mut next[one].step)? = theirs;
            *token(&mut next[other].step)? = mine;
        }
        TokenTwice => {
            let one = pick(dice, &grants)?;
            let other = pick(dice, &grants.iter().copied().filter(|at| *at != one).collect::<Vec<_>>())?;
            *token(&mut next[one].step)? = *token(&mut next[other].step)?;
        }
        TokenFell => *token(&mut next[*grants.last()?].step)? = 0,
        GrantedTwice => {
            let Operation { from, to, step: Step::Granted { want, token, .. } } = next[pick(dice, &grants)?]
            else {
                return None;
            };
            next.push(Operation { from, to, step: Step::Granted { hold: 99, want, token: token + 1 } });
        }
        GrantLost => drop(next.remove(pick(dice, &grants)?)),
        EndLost => drop(next.remove(pick(dice, &places(operations, ended))?)),
        EndLate => {
            let at = pick(dice, &places(operations, ended))?;
            (next[at].from, next[at].to) = (end + 1, end + 2);
        }
        EndTwice => {
            let at = pick(dice, &places(operations, ended))?;
            next.push(Operation { to: end.max(next[at].from), ..next[at] });
        }
        GrantEarly => {
            let at = pick(dice, &grants)?;
            (next[at].from, next[at].to) = (0, 0);
        }
        BusyFromNowhere => {
            next.push(point(dice.u32(..=end + 1), Step::Busy { want: some_want(dice, kind) }));
        }
        HoldsAfterEnd => {
            let Step::Ended { hold } = next[pick(dice, &places(operations, ended))?].step else {
                return None;
            };
            let of = |step: Step| {
                if let Step::Granted { hold: other, token, .. } = step {
                    (other == hold).then_some(token)
                } else {
                    None
                }
            };
            let token = next.iter().find_map(|one| of(one.step))?;
            next.push(point(end + 1, Step::Holds { hold, token }));
        }
        HoldsOther => {
            let at = pick(dice, &places(operations, |step| matches!(step, Step::Holds { .. })))?;
            *token(&mut next[at].step)? += 1;
        }
        GotMore => {
            let at = pick(dice, &grants)?;
            let Step::Granted { want, .. } = &mut next[at].step else { return None };
            *want = match (kind, *want) {
                (Kind::ReadWrite, Want::Read | Want::Upgradeable) => Want::Write,
                (Kind::Permits(all), Want::Permits(some)) if some < all => Want::Permits(all),
                (Kind::Reentrant, Want::Scope(scope)) => Want::Scope(scope + 7),
                _ => return None,
            };
        }
        DoneAgain => {
            let at = pick(dice, &places(operations, |step| matches!(step, Step::Done { .. })))?;
            let after = next[at].to;
            next.push(point(after + 1, Step::Granted { hold: 99, want: Want::All, token: 999 }));
        }
        DoneEarly => {
            pick(dice, &places(operations, |step| step == Step::AlreadyDone))?;
            next.push(point(0, Step::AlreadyDone));
        }
    }
    Some(next)
}

#[test]
fn a_mutated_history_is_rejected_unless_brute_force_finds_an_order_for_it() {
    let mut met: BTreeMap<Mutation, (u32, u32)> = BTreeMap::new();
    for seed in 0..6_000 {
        let mut dice = fastrand::Rng::with_seed(seed);
        let kind = KINDS[dice.usize(..KINDS.len())];
        let operations = true_history(&mut dice, kind, 6);
        assert!(search(kind, &operations, 100_000).is_allowed(), "seed {seed}: {kind:?} {operations:#?}");
        for mutation in ALL {
            let Some(mutated) = mutate(mutation, &mut dice, kind, &operations) else { continue };
            let (found, brute) = (search(kind, &mutated, 100_000), allowed(kind, &mutated));
            assert_eq!(
                found.is_allowed(),
                brute,
                "seed {seed}, {mutation:?}: {kind:?} {mutated:#?} {found:?}"
            );
            let (rejected, legal) = met.entry(mutation).or_default();
            *if brute { legal } else { rejected } += 1;
        }
    }
    let sum = |of: fn(&(u32, u32)) -> u32| met.values().map(of).sum::<u32>();
    let (rejected, legal) = (sum(|met| met.0), sum(|met| met.1));
    println!("{rejected} mutants rejected, {legal} true all the same: {met:?}");
    assert_eq!(met.len(), ALL.len(), "{met:?}");
    assert!(met.values().all(|(rejected, _)| *rejected >= 100), "each must be met often: {met:?}");
}

/// What cannot be true of a history whatever the rest of it is; twice the events, so that there is room between them.
fn surely_false(operations: &[Operation], kind: Kind) -> Vec<(Mutation, Vec<Operation>)> {
    let wide = |stamp: Stamp| if stamp == NEVER { NEVER } else { 10 + stamp * 2 };
    let wider = |one: &Operation| Operation { from: wide(one.from), to: wide(one.to), step: one.step };
    let all: Vec<Operation> = operations.iter().map(wider).collect();
    let end = all.iter().map(|one| one.to).filter(|to| *to != NEVER).max().unwrap_or(0);
    let mut found = Vec::new();
    let with = |more: Operation| [&all[..], &[more]].concat();
    let point = |at: Stamp, step| Operation { from: at, to: at, step };
    found.push((
        BusyFromNowhere,
        with(point(1, Step::Busy { want: some_want(&mut fastrand::Rng::with_seed(1), kind) })),
    ));
    for (at, one) in all.iter().enumerate() {
        match one.step {
            Step::Holds { hold, token } => {
                let mut other = all.clone();
                other[at].step = Step::Holds { hold, token: token + 1 };
                found.push((HoldsOther, other));
                let rest = all.iter().copied();
                let ungranted =
                    |other: &Operation| !matches!(other.step, Step::Granted { hold: had, .. } if had == hold);
                found.push((GrantLost, rest.filter(ungranted).collect()));
                let again = |other: &&Operation| {
                    other.from > one.to
                        && matches!(other.step, Step::Holds { hold: held, .. } if held == hold)
                };
                let want = match kind {
                    Kind::Mutex | Kind::Once => Want::All,
                    Kind::ReadWrite => Want::Write,
                    Kind::Permits(all) => Want::Permits(all),
                    Kind::Reentrant => Want::Scope(99),
                };
                if all.iter().any(|other| again(&other)) {
                    let intruder = Step::Granted { hold: 9999, want, token: token + 1 };
                    found.push((GrantedTwice, with(point(one.to + 1, intruder))));
                }
            }
            Step::Ended { hold } => {
                if one.to != NEVER {
                    let token = all.iter().find_map(|other| match other.step {
                        Step::Granted { hold: had, token, .. } if had == hold => Some(token),
                        _ => None,
                    });
                    let holds = Step::Holds { hold, token: token.unwrap_or(1) };
                    found.push((HoldsAfterEnd, with(point(end + 1, holds))));
                    found.push((EndTwice, with(Operation { from: one.from, to: end, step: one.step })));
                }
                let exclusive = |other: &&Operation| {
                    let want = if let Step::Granted { want, .. } = other.step { Some(want) } else { None };
                    other.from > one.to && matches!(want, Some(Want::All | Want::Write))
                };
                if all.iter().any(|other| exclusive(&other)) {
                    let mut lost = all.clone();
                    lost.remove(at);
                    found.push((EndLost, lost));
                }
            }
            Step::Granted { token, .. } if kind != Kind::Reentrant => {
                for (place, other) in all.iter().enumerate().filter(|(_, other)| other.from > one.to) {
                    if let Step::Granted { hold, want, token: theirs } = other.step {
                        let mut twice = all.clone();
                        twice[place].step = Step::Granted { hold, want, token };
                        found.push((TokenTwice, twice.clone()));
                        if let Step::Granted { token, .. } = &mut twice[at].step {
                            *token = theirs;
                        }
                        found.push((TokensSwapped, twice));
                        break;
                    }
                }
            }
            _ => {}
        }
    }
    found
}

#[test]
fn what_cannot_be_true_of_a_real_history_is_rejected_always() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut met: BTreeMap<Mutation, u32> = BTreeMap::new();
    for seed in 1..=25 {
        let (_, histories) = runtime.block_on(suite::one(&memory_with_faults(), seed)).unwrap();
        for history in histories {
            for (mutation, mutated) in surely_false(&history.operations, history.kind) {
                let found = search(history.kind, &mutated, 1_000_000);
                assert!(
                    matches!(found, super::wgl::Verdict::Forbidden { .. }),
                    "seed {seed}, {mutation:?}: {:?} {mutated:#?} {found:?}",
                    history.kind
                );
                *met.entry(mutation).or_default() += 1;
            }
        }
    }
    println!("rejected: {met:?}");
    assert!(met.len() >= 8 && met.values().all(|times| *times >= 20), "{met:?}");
}
