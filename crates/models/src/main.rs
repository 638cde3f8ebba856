//! Searches a model: `leasehold-models quorum --states 200000 --steps 1000000`.
//!
//! Exits with 1 if something was found that must never happen, if a mutant was not found, or if less happened than the
//! model says must happen somewhere.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use leasehold_models::quorum::{Mutant, Quorum, WON_AGAIN, WON_HIGHER, WON_TWICE};
use stateright::{Checker, HasDiscoveries, Model, UniformChooser};

/// So many steps are walked in search of a mutant.
const WALKED: usize = 30_000_000;

/// Searches the model of the quorum, and for its mutants.
#[derive(Debug, Parser)]
struct Args {
    /// How many unique states of the small world are searched.
    #[arg(long, default_value_t = 200_000)]
    states: usize,
    /// How many steps are walked at random through the large world.
    #[arg(long, default_value_t = 1_000_000)]
    steps: usize,
    /// The seed of the walks.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long a mutant may go unfound.
    #[arg(long, default_value_t = 120)]
    patience: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    // Most steps lead to a state that is known.
    // Without a bound, which is what zero means there, it would go on until no memory is left.
    let most = (args.states * 4).max(1);
    let search = Quorum::small(None).checker().target_state_count(most).spawn_bfs().join();
    let mut sound = search.unique_state_count() >= args.states || search.is_done();
    sound &= judge("three nodes, two clients", &search, &[]);
    let walk = |world: Quorum, steps: usize| {
        world.checker().target_state_count(steps.max(1)).spawn_simulation(args.seed, UniformChooser).join()
    };
    let large = walk(Quorum::large(None), args.steps);
    sound &= judge("five nodes, three clients, at random", &large, &[WON_TWICE, WON_HIGHER]);
    // Seldom does so much come together in a large world.
    let again = walk(Quorum::asks_again(), args.steps.min(WALKED));
    sound &= judge("three nodes, two clients that ask again, at random", &again, &[WON_AGAIN]);
    for mutant in Mutant::ALL {
        sound &= is_found(mutant, &args);
    }
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Says what was found, and whether nothing is wrong and whatever must be seen was.
fn judge(what: &str, checker: &impl Checker<Quorum>, must_see: &[&str]) -> bool {
    println!(
        "quorum: {what}: {} unique states, {} steps",
        checker.unique_state_count(),
        checker.state_count()
    );
    let mut sound = true;
    for property in Quorum::small(None).properties() {
        let found = checker.discovery(property.name);
        let always = property.expectation == stateright::Expectation::Always;
        match found {
            Some(path) if always => {
                sound = false;
                println!("  NOT TRUE: {}\n{path}", property.name);
            }
            None if must_see.contains(&property.name) => {
                sound = false;
                println!("  NEVER SEEN: {}", property.name);
            }
            None if !always => println!("  not so far: {}", property.name),
            _ => println!("  {}", property.name),
        }
    }
    sound
}

/// Walks through the smallest world in which it can be seen.
fn is_found(mutant: Mutant, args: &Args) -> bool {
    let wrong = ["one holds it", "tokens rise", "what is given up is given back"];
    let world = Quorum::for_mutant(mutant).checker().finish_when(HasDiscoveries::AnyFailures);
    let world = world.timeout(Duration::from_secs(args.patience)).target_state_count(WALKED);
    let walk = world.spawn_simulation(args.seed, UniformChooser).join();
    let steps = walk.state_count();
    match wrong.into_iter().find(|name| walk.discovery(name).is_some()) {
        Some(name) => println!("  {mutant:?}: found after {steps} steps: not true that {name}"),
        None => println!("  {mutant:?}: NOT FOUND in {steps} steps"),
    }
    wrong.into_iter().any(|name| walk.discovery(name).is_some())
}
