//! The cases, by the line of the contract that each holds a store to.

use std::pin::Pin;

use crate::Check;
use crate::bench::Bench;
use crate::need::Need;

mod aftermath;
mod clocks;
mod closures;
mod drops;
mod exclusion;
mod growth;
mod idempotence;
mod ledger;
mod looking;
mod places;
mod renewal;
mod reshaping;
mod succession;
mod together;
mod tokens;
mod trying;
mod waits;

/// One case.
#[derive(Debug)]
pub(crate) struct Case {
    /// `cNN_` and what must be so, NN being the line of the contract.
    pub(crate) name: &'static str,
    pub(crate) needs: &'static [Need],
    pub(crate) run: for<'a> fn(&'a Bench) -> Pin<Box<dyn Future<Output = Check> + 'a>>,
}

impl Case {
    /// The line of the contract that it holds a store to; `None` for what the contract numbers not.
    pub(crate) fn line(&self) -> Option<u8> {
        self.name.strip_prefix('c')?.get(..2)?.parse().ok()
    }
}

/// A list of cases: the name of each function, and what it needs.
macro_rules! cases {
    ($($case:ident [$($need:ident),*],)+) => {
        pub(crate) const CASES: &[$crate::cases::Case] = &[$($crate::cases::Case {
            name: stringify!($case),
            needs: &[$($crate::need::Need::$need),*],
            run: |bench| Box::pin($case(bench)),
        }),+];
    };
}
pub(crate) use cases;

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static Case> {
    let all: [&[Case]; _] = [
        idempotence::CASES,
        trying::CASES,
        exclusion::CASES,
        tokens::CASES,
        waits::CASES,
        renewal::CASES,
        places::CASES,
        clocks::CASES,
        drops::CASES,
        closures::CASES,
        looking::CASES,
        together::CASES,
        growth::CASES,
        reshaping::CASES,
        succession::CASES,
        aftermath::CASES,
        ledger::CASES,
        crate::random::CASES,
        crate::workload::CASES,
    ];
    all.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The numbered lines of the contract, as its documentation has them.
    fn lines() -> Vec<u8> {
        let contract = include_str!("../../core/src/store.rs");
        let numbered = contract.lines().filter_map(|line| {
            let (number, rest) = line.strip_prefix("/// ")?.split_once(". ")?;
            if rest.starts_with("**") { number.parse().ok() } else { None }
        });
        numbered.collect()
    }

    #[test]
    fn the_lines_of_the_contract_are_those_that_the_suite_knows() {
        assert_eq!(lines(), (1..=crate::LINES).collect::<Vec<_>>());
    }

    #[test]
    fn every_line_of_the_contract_has_a_case() {
        for line in lines() {
            assert!(all().any(|case| case.line() == Some(line)), "line {line} of the contract has no case");
        }
    }

    #[test]
    fn every_name_is_there_once_and_its_number_is_a_line_of_the_contract() {
        let mut names = HashSet::new();
        for case in all() {
            assert!(names.insert(case.name), "{} is there twice", case.name);
            let unnumbered = ["close_", "ledger_", "random_", "workload_"];
            let known = case.line().is_some_and(|line| lines().contains(&line));
            assert!(known || unnumbered.iter().any(|start| case.name.starts_with(start)), "{}", case.name);
        }
    }
}
