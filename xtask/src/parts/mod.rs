//! The parts of the tests: one file each, in the order in which they run.

mod clippy;
mod conformance;
mod deny;
mod docs;
mod doctests;
mod faults;
mod features;
mod fmt;
mod house;
mod models;
mod process;
pub(crate) mod runner;
mod servers;
mod unit;

use crate::Result;
use crate::context::Session;

/// One part.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) run: fn(&mut Session<'_>) -> Result<()>,
}

/// All of them: the quick ones first, and packages before the servers and processes that need them.
pub(crate) const PARTS: &[Part] = &[
    Part { name: "fmt", about: "The code is formatted", run: fmt::run },
    Part {
        name: "house",
        about: "Rules of import, sizes, contract numbers, links: see CONTRIBUTING.md",
        run: house::run,
    },
    Part { name: "deny", about: "Licences, banned crates and sources, by deny.toml", run: deny::run },
    Part {
        name: "clippy",
        about: "Lints of the whole workspace, all targets and features",
        run: clippy::run,
    },
    Part { name: "docs", about: "The documentation builds without a warning", run: docs::run },
    Part {
        name: "features",
        about: "Each feature of each crate compiles alone, and none at all",
        run: features::run,
    },
    Part {
        name: "servers",
        about: "Gets the tools and servers that tests use, without starting any service",
        run: servers::run,
    },
    Part {
        name: "unit",
        about: "Unit tests, and integration tests that no other part names",
        run: unit::run,
    },
    Part { name: "conformance", about: "Each store against the numbered contract", run: conformance::run },
    Part {
        name: "doctests",
        about: "The examples in the documentation, and the programs in examples/",
        run: doctests::run,
    },
    Part {
        name: "models",
        about: "Models of protocols, searched for what must never happen; and breaks of them, which are found",
        run: models::run,
    },
    Part {
        name: "process",
        about: "Tests that start processes: the command, the harness",
        run: process::run,
    },
    Part {
        name: "faults",
        about: "Each planted fault is caught by the test that must catch it",
        run: faults::run,
    },
];

#[cfg(test)]
mod tests {
    use super::PARTS;

    #[test]
    fn packages_come_before_what_uses_them() {
        let at = |name| PARTS.iter().position(|part| part.name == name);
        for user in ["unit", "conformance", "process", "faults"] {
            assert!(at("servers") < at(user), "{user}");
        }
        assert!(PARTS.iter().all(|part| !part.about.is_empty()));
    }
}
