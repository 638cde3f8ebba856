//! The 25 checks of the command: each has a test that carries its number.

use std::collections::BTreeSet;

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
        assert!(found.contains(&number), "no test has the number of check {number}");
    }
}
