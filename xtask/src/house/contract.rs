//! Each number of the store contract has a test in the conformance suite.

use std::collections::BTreeSet;

use super::{File, Findings};
use crate::source;

const CONTRACT: &str = "crates/core/src/store.rs";
const SUITE: &str = "crates/conformance/src/";

pub(super) fn check(files: &[File], findings: &mut Findings) {
    let Some(contract) = files.iter().find(|file| file.path == CONTRACT) else {
        return findings.problem(format!("{CONTRACT} is missing, and with it the contract"));
    };
    let promised = numbers(&contract.text);
    if promised.is_empty() {
        return findings.problem(format!("{CONTRACT}: no numbered line of the contract was found"));
    }
    let tested = tested(files);
    for number in promised.difference(&tested) {
        findings.problem(format!("line {number} of the contract ({CONTRACT}) has no case in {SUITE}"));
    }
    for number in tested.difference(&promised) {
        findings.problem(format!("{SUITE} has a case for line {number}, which the contract does not have"));
    }
}

/// The numbers of the contract's lines: `/// 7. ..`.
fn numbers(source: &str) -> BTreeSet<u32> {
    let lines = source.lines().filter_map(|line| line.strip_prefix("/// ")?.split_once(". "));
    lines.filter_map(|(number, _)| number.parse().ok()).collect()
}

/// The numbers that cases carry: `fn c07_..`. That each such function is in the suite's list is left to the
/// compiler, which complains of unused ones, and to the suite's own tests.
fn tested(files: &[File]) -> BTreeSet<u32> {
    let suite = files.iter().filter(|file| file.is_rust() && file.path.starts_with(SUITE));
    let mut tested = BTreeSet::new();
    for file in suite {
        let code = source::shipped(&file.text);
        let cases = code.split("fn c").skip(1).filter_map(|rest| rest.get(..3)?.strip_suffix('_'));
        tested.extend(cases.filter_map(|number| number.parse::<u32>().ok()));
    }
    tested
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_a_case_and_a_case_without_a_line_are_found() {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let contract =
            file(CONTRACT, "/// 1. **Once.** Text.\n///    2. is no line\n/// 2. [`Now`](x): text.\n");
        let cases = file(&format!("{SUITE}cases/a.rs"), "async fn c01_once() {}\n// fn c02_in_a_comment\n");
        let mut findings = Findings::default();
        check(&[contract, cases], &mut findings);
        assert_eq!(findings.problems.len(), 1);
        assert!(findings.problems[0].starts_with("line 2 of the contract"));
        let contract = file(CONTRACT, "/// 1. **Once.**\n");
        let cases = file(&format!("{SUITE}a.rs"), "fn c01_x() {}\nfn c16_y() {}\nfn cancel() {}");
        let mut findings = Findings::default();
        check(&[contract, cases], &mut findings);
        assert_eq!(findings.problems.len(), 1);
        assert!(findings.problems[0].contains("line 16"));
    }
}
