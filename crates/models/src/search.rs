//! How a model is searched, and what is said of it.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use clap::Args;
use stateright::{Checker, Expectation, HasDiscoveries, Model, Property, UniformChooser};

/// So many steps are walked in search of a mutant.
const WALKED: usize = 30_000_000;

/// A model that can be searched.
pub trait Searched:
    Model<
        State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
        Action: Clone + Debug + PartialEq + Send + Sync,
    > + Clone
    + Send
    + Sync
    + 'static
{
}

impl<M> Searched for M where
    M: Model<
            State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
            Action: Clone + Debug + PartialEq + Send + Sync,
        > + Clone
        + Send
        + Sync
        + 'static
{
}

/// How long is searched.
#[derive(Debug, Clone, Args)]
pub struct Effort {
    /// How many unique states of a small world are searched.
    #[arg(long, default_value_t = 200_000)]
    pub states: usize,
    /// How many steps are walked at random through a large world.
    #[arg(long, default_value_t = 1_000_000)]
    pub steps: usize,
    /// The seed of the walks.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// For how many seconds a mutant may go unfound.
    #[arg(long, default_value_t = 120)]
    pub patience: u64,
}

impl Effort {
    /// As much, and for at most so many steps.
    #[must_use]
    pub fn at_most(&self, steps: usize) -> Self {
        Self { steps: self.steps.min(steps), ..self.clone() }
    }

    /// At most as many steps as are walked in search of a mutant: seldom does so much come together in a large world.
    #[must_use]
    pub fn as_for_a_mutant(&self) -> Self {
        self.at_most(WALKED)
    }

    /// Searches a small world state by state, and answers whether nothing is wrong.
    pub fn search<M: Searched>(&self, model: &str, what: &str, world: M) -> bool {
        let properties = world.properties();
        // Most steps lead to a state that is known.
        // Without a bound, which is what zero means there, it would go on until no memory is left.
        let most = (self.states * 4).max(1);
        let search = world.checker().target_state_count(most).spawn_bfs().join();
        let far = search.unique_state_count() >= self.states || search.is_done();
        judge(model, what, &search, properties, &[]) && far
    }

    /// Walks through a large world at random, and answers whether nothing is wrong and whatever must be seen was.
    pub fn walk<M: Searched>(&self, model: &str, what: &str, world: M, must_see: &[&str]) -> bool {
        let properties = world.properties();
        let world = world.checker().target_state_count(self.steps.max(1));
        let walk = world.spawn_simulation(self.seed, UniformChooser).join();
        judge(model, what, &walk, properties, must_see)
    }

    /// Walks through the smallest world in which a mutant can be seen, and answers whether it was.
    pub fn finds<M: Searched>(&self, mutant: impl Debug, world: M) -> bool {
        let properties = world.properties();
        let world = world.checker().finish_when(HasDiscoveries::AnyFailures);
        let world = world.timeout(Duration::from_secs(self.patience)).target_state_count(WALKED);
        let walk = world.spawn_simulation(self.seed, UniformChooser).join();
        let steps = walk.state_count();
        let mut wrong = properties.iter().filter(|property| property.expectation == Expectation::Always);
        let found = wrong.find(|property| walk.discovery(property.name).is_some());
        match found {
            Some(property) => {
                println!("  {mutant:?}: found after {steps} steps: not true that {}", property.name)
            }
            None => println!("  {mutant:?}: NOT FOUND in {steps} steps"),
        }
        found.is_some()
    }
}

/// Says what was found, and whether nothing is wrong and whatever must be seen was.
fn judge<M: Searched>(
    model: &str,
    what: &str,
    checker: &impl Checker<M>,
    properties: Vec<Property<M>>,
    must_see: &[&str],
) -> bool {
    println!(
        "{model}: {what}: {} unique states, {} steps",
        checker.unique_state_count(),
        checker.state_count()
    );
    let mut sound = true;
    for property in properties {
        let always = property.expectation == Expectation::Always;
        match checker.discovery(property.name) {
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
