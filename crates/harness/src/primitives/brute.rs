//! The search against brute force on small histories: every order, and the promises said again in the plainest way.

use std::collections::BTreeMap;

use super::model::{Hold, Kind, Step, Want};
use super::wgl::{NEVER, Operation, Stamp, search};

/// All kinds, with few permits.
pub(super) const KINDS: [Kind; 5] =
    [Kind::Mutex, Kind::ReadWrite, Kind::Permits(3), Kind::Reentrant, Kind::Once];

/// Whether there is an order that is allowed: each one is tried.
pub(super) fn allowed(kind: Kind, operations: &[Operation]) -> bool {
    let known: Vec<&Operation> = operations.iter().filter(|one| !lurks(one)).collect();
    let (must, may): (Vec<&Operation>, Vec<&Operation>) = known.iter().partition(|one| one.to != NEVER);
    // Any of those that may not have happened may have.
    (0..1_u32 << may.len()).any(|some| {
        let chosen = may.iter().enumerate().filter(|(at, _)| some & (1 << at) != 0).map(|(_, one)| *one);
        let all: Vec<&Operation> = must.iter().copied().chain(chosen).collect();
        orders(kind, operations, &mut Vec::new(), &all)
    })
}

fn lurks(operation: &Operation) -> bool {
    matches!(operation.step, Step::Lurks { .. })
}

/// Whether the rest can follow in some order.
fn orders<'a>(
    kind: Kind,
    all: &'a [Operation],
    before: &mut Vec<&'a Operation>,
    rest: &[&'a Operation],
) -> bool {
    if rest.is_empty() {
        return true;
    }
    (0..rest.len()).any(|at| {
        let mut left = rest.to_vec();
        let next = left.remove(at);
        if left.iter().any(|other| other.to < next.from) {
            return false;
        }
        let good = follows(kind, all, before, next, rest);
        good && {
            before.push(next);
            let found = orders(kind, all, before, &left);
            before.pop();
            found
        }
    })
}

/// Who holds what after these.
fn holders(before: &[&Operation]) -> Vec<(Hold, Want, u64)> {
    let mut found: Vec<(Hold, Want, u64)> = Vec::new();
    for (at, operation) in before.iter().enumerate() {
        let Step::Granted { hold, want, token } = operation.step else { continue };
        let later = || before[at + 1..].iter().map(|other| other.step);
        if later().any(|step| step == Step::Ended { hold }) {
            continue;
        }
        let mut changed = later().filter_map(|step| match step {
            Step::Changed { hold: other, want, token } if other == hold => Some((want, token)),
            _ => None,
        });
        let (want, token) = changed.next_back().unwrap_or((want, token));
        found.push((hold, want, token));
    }
    found
}

fn excludes(kind: Kind, one: Want, other: Want) -> bool {
    match kind {
        Kind::Mutex | Kind::Once => true,
        Kind::ReadWrite => !matches!(
            (one, other),
            (Want::Read, Want::Read | Want::Upgradeable) | (Want::Upgradeable, Want::Read)
        ),
        Kind::Permits(_) => false,
        Kind::Reentrant => one != other,
    }
}

fn fit(kind: Kind, wants: &[Want]) -> bool {
    let taken: u32 = wants.iter().map(|want| if let Want::Permits(some) = want { *some } else { 0 }).sum();
    let pairs =
        wants.iter().enumerate().flat_map(|(at, one)| wants[..at].iter().map(move |other| (one, other)));
    let excluded = pairs.into_iter().any(|(one, other)| excludes(kind, *one, *other));
    !excluded && if let Kind::Permits(all) = kind { taken <= all } else { true }
}

fn follows(
    kind: Kind,
    all: &[Operation],
    before: &[&Operation],
    next: &Operation,
    rest: &[&Operation],
) -> bool {
    let held = holders(before);
    let wants = |others: &mut dyn Iterator<Item = Want>, mine: Want| -> Vec<Want> {
        held.iter().map(|(_, want, _)| *want).chain(others).chain([mine]).collect()
    };
    let given = before.iter().filter_map(|operation| match operation.step {
        Step::Granted { token, .. } | Step::Changed { token, .. } => Some(token),
        _ => None,
    });
    let highest = given.max().unwrap_or(0);
    let mut turns = before.iter().map(|operation| operation.step).filter_map(|step| match step {
        Step::Done { .. } | Step::DoneLate => Some(true),
        Step::Forgotten => Some(false),
        _ => None,
    });
    let done = turns.next_back().unwrap_or(false);
    let mine = |hold: Hold| held.iter().find(|(other, ..)| *other == hold);
    match next.step {
        Step::Granted { hold, want, token } => {
            let again = kind == Kind::Reentrant && !held.is_empty();
            let right = if again { held.iter().all(|(.., has)| *has == token) } else { token > highest };
            right && !done && mine(hold).is_none() && fit(kind, &wants(&mut std::iter::empty(), want))
        }
        Step::Busy { want } => {
            // The moment must come before the end of everything that is still to come.
            let moment = rest.iter().map(|operation| operation.to).min().unwrap_or(NEVER);
            let others = all.iter().filter(|other| other.from <= moment).filter_map(|other| {
                let to_come = rest.iter().any(|one| std::ptr::eq(*one, other));
                match other.step {
                    Step::Granted { want, .. } | Step::Changed { want, .. } if to_come => Some(want),
                    Step::Lurks { want } if other.to >= next.from => Some(want),
                    _ => None,
                }
            });
            let others: Vec<Want> = others.collect();
            let own = kind == Kind::Reentrant && !others.is_empty();
            !done && (own || !fit(kind, &wants(&mut others.into_iter(), want)))
        }
        Step::Holds { hold, token } => mine(hold).is_some_and(|(.., has)| *has == token),
        Step::Changed { hold, want, token } => {
            let Some((_, had, old)) = mine(hold).copied() else { return false };
            let grows =
                had != Want::Write && (want == Want::Write || had == Want::Read && want != Want::Read);
            let others: Vec<Want> = held
                .iter()
                .filter(|(other, ..)| *other != hold)
                .map(|(_, want, _)| *want)
                .chain([want])
                .collect();
            fit(kind, &others) && if grows { token > highest } else { token == old }
        }
        Step::Ended { hold } => mine(hold).is_some(),
        Step::Done { hold } => !done && mine(hold).is_some(),
        Step::AlreadyDone | Step::Forgotten => done,
        Step::NotDone | Step::DoneLate => !done,
        Step::Lurks { .. } => false,
    }
}

/// Something that somebody may ask of a name of this kind.
pub(super) fn some_want(dice: &mut fastrand::Rng, kind: Kind) -> Want {
    match kind {
        Kind::Mutex | Kind::Once => Want::All,
        Kind::ReadWrite => [Want::Read, Want::Upgradeable, Want::Write][dice.usize(..3)],
        Kind::Permits(all) => Want::Permits(dice.u32(1..=all)),
        Kind::Reentrant => Want::Scope(dice.u32(1..3)),
    }
}

/// Any step of few leases.
fn some_step(dice: &mut fastrand::Rng, kind: Kind) -> Step {
    let (hold, token, want) = (dice.u32(1..4), dice.u64(1..5), some_want(dice, kind));
    let turns = kind == Kind::Once;
    match dice.u8(..20) {
        0..8 => Step::Granted { hold, want, token },
        8..10 => Step::Busy { want },
        10..12 => Step::Holds { hold, token },
        12 if kind == Kind::ReadWrite => Step::Changed { hold, want, token },
        13 => Step::Lurks { want },
        14 if turns => Step::Done { hold },
        15 if turns => Step::AlreadyDone,
        16 if turns => Step::Forgotten,
        17 if turns => [Step::NotDone, Step::DoneLate][dice.usize(..2)],
        _ => Step::Ended { hold },
    }
}

/// A history that may have happened: steps that follow each other, each with some time around it.
pub(super) fn true_history(dice: &mut fastrand::Rng, kind: Kind, most: usize) -> Vec<Operation> {
    let mut operations: Vec<Operation> = Vec::new();
    let mut next = (1, 1);
    for _ in 0..400 {
        if operations.len() == most {
            break;
        }
        let at = 100 + 10 * Stamp::try_from(operations.len()).unwrap();
        let before: Vec<&Operation> = operations.iter().collect();
        let held = holders(&before);
        let mut step = some_step(dice, kind);
        // Names and tokens that fit, so that not every try is in vain.
        match (&mut step, held.get(dice.usize(..held.len().max(1)))) {
            (Step::Granted { hold, token, .. }, of) => {
                *hold = next.0;
                *token = of.filter(|_| kind == Kind::Reentrant).map_or(next.1, |(.., token)| *token);
            }
            (Step::Holds { hold, token }, Some((has, _, under))) => (*hold, *token) = (*has, *under),
            (Step::Changed { hold, want, token }, Some((has, had, under))) => {
                *hold = *has;
                *token = if *had != Want::Write && *had < *want { next.1 } else { *under };
            }
            (Step::Ended { hold } | Step::Done { hold }, Some((has, ..))) => *hold = *has,
            _ => {}
        }
        let operation = Operation { from: at, to: at, step };
        let rest = [&operation];
        if !lurks(&operation) && follows(kind, &operations, &before, &operation, &rest) {
            if let Step::Granted { token, .. } | Step::Changed { token, .. } = step {
                next = (next.0 + 1, next.1.max(token + 1));
            }
            operations.push(operation);
        }
    }
    for operation in &mut operations {
        operation.from -= dice.u32(..25);
        operation.to += dice.u32(..25);
        if matches!(operation.step, Step::Ended { .. } | Step::Forgotten) && dice.u8(..4) == 0 {
            operation.to = NEVER;
        }
    }
    if dice.u8(..4) == 0 {
        let (from, want) = (dice.u32(90..160), some_want(dice, kind));
        operations.push(Operation { from, to: from + dice.u32(..80), step: Step::Lurks { want } });
    }
    operations
}

/// Any operations at all.
fn wild_history(dice: &mut fastrand::Rng, kind: Kind) -> Vec<Operation> {
    let operation = |dice: &mut fastrand::Rng| {
        let from = dice.u32(..30);
        let step = some_step(dice, kind);
        let open =
            dice.u8(..6) == 0 && matches!(step, Step::Ended { .. } | Step::Lurks { .. } | Step::Forgotten);
        Operation { from, to: if open { NEVER } else { from + dice.u32(..12) }, step }
    };
    (0..dice.usize(1..=6)).map(|_| operation(dice)).collect()
}

#[test]
fn the_search_finds_what_brute_force_finds() {
    let mut met: BTreeMap<(Kind, bool), u32> = BTreeMap::new();
    for seed in 0..20_000 {
        let mut dice = fastrand::Rng::with_seed(seed);
        let kind = KINDS[dice.usize(..KINDS.len())];
        let mut operations = match dice.u8(..3) {
            0 => wild_history(&mut dice, kind),
            _ => true_history(&mut dice, kind, 6),
        };
        if dice.u8(..3) > 0 {
            // One that is nearly true is harder to judge than any.
            let at = dice.usize(..operations.len());
            operations[at].from = dice.u32(..=operations[at].from);
            operations.swap_remove(dice.usize(..operations.len()));
        }
        let (found, brute) = (search(kind, &operations, 100_000), allowed(kind, &operations));
        assert_eq!(found.is_allowed(), brute, "seed {seed}: {kind:?} {operations:#?} {found:?}");
        *met.entry((kind, brute)).or_default() += 1;
    }
    println!("20000 small histories: {met:?}");
    assert_eq!(met.len(), KINDS.len() * 2, "{met:?}");
    assert!(met.values().all(|times| *times >= 300), "each verdict must be met often: {met:?}");
}
