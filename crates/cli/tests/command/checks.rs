//! The 25 checks of the command: each has a test that carries its number.

use std::collections::BTreeSet;

/// What a file cannot be checked for, and why.
const ELSEWHERE: [(u8, &str); 1] =
    [(12, "packets that are dropped: a file has none; stores behind a network do")];

#[test]
fn each_check_has_a_test_with_its_number() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command");
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let names = text.split("\nfn check_").skip(1);
        found.extend(names.filter_map(|name| name.get(..2)?.parse::<u8>().ok()));
    }
    for number in 1..=25 {
        let excused = ELSEWHERE.iter().any(|(other, _)| *other == number);
        assert!(
            found.contains(&number) != excused,
            "check {number}: a test with its number, or a reason why not"
        );
    }
}
