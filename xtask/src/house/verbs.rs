//! Who may ask a store: one file for each verb, so that the path of an acquire has one direction.

use super::{File, Findings};
use crate::source;

/// A call that only some files of a folder may make.
struct Rule {
    /// The method, called with arguments. A lease's own `release()` and a channel's `changed()` have none, so
    /// they are not meant.
    call: &'static str,
    folder: &'static str,
    files: &'static [&'static str],
}

/// Primitives go through `pursuit` and hold a lease; they never ask a store themselves.
const RULES: &[Rule] = &[
    Rule { call: "claim", folder: "crates/leasehold/src/", files: &["pursuit.rs", "reshape.rs"] },
    Rule { call: "claim_all", folder: "crates/leasehold/src/", files: &["together.rs"] },
    Rule { call: "changed", folder: "crates/leasehold/src/", files: &["patience.rs"] },
    Rule { call: "renew", folder: "crates/leasehold/src/", files: &["watchdog.rs"] },
    Rule { call: "release", folder: "crates/leasehold/src/", files: &["janitor.rs", "lease.rs"] },
];

/// A wrapper is a store, and hands its calls on to those inside.
fn is_wrapper(code: &str) -> bool {
    code.contains(" Store for ")
}

pub(super) fn check(files: &[File], findings: &mut Findings) {
    let code = files.iter().filter(|file| file.is_rust());
    let modules = code.filter(|file| is_wrapper(&source::shipped(&file.text)));
    let folders: Vec<&str> = modules.filter_map(|file| file.path.strip_suffix("mod.rs")).collect();
    for Rule { call, folder, files: allowed } in RULES {
        for file in files.iter().filter(|file| file.is_rust() && file.path.starts_with(folder)) {
            let name = &file.path[folder.len()..];
            let code = source::shipped(&file.text);
            let inside = folders.iter().any(|folder| file.path.starts_with(folder));
            if allowed.contains(&name) || is_wrapper(&code) || inside {
                continue;
            }
            for line in calls(&code, call) {
                findings.problem(format!(
                    "{}:{line}: asks a store to `{call}`; only {} may",
                    file.path,
                    allowed.join(" and ")
                ));
            }
        }
    }
}

/// The lines on which `.call(..)` stands with arguments.
fn calls(code: &str, call: &str) -> Vec<usize> {
    let with_arguments = |(at, word): (usize, &str)| {
        let rest = code[at + word.len()..].trim_start();
        let arguments = rest.strip_prefix('(')?.trim_start();
        (!arguments.starts_with(')')).then(|| source::line_of(code, at))
    };
    code.match_indices(&format!(".{call}")).filter_map(with_arguments).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_with_arguments_ask_a_store() {
        let code =
            "a.release().await;\nstore\n    .release(&name, id)\n    .await;\nb.released(1);\nc.release( )";
        assert_eq!(calls(code, "release"), [3]);
    }

    #[test]
    fn a_primitive_that_asks_is_found_and_a_wrapper_is_not() {
        let file = |name: &str, text: &str| File {
            path: format!("crates/leasehold/src/{name}"),
            text: text.to_owned(),
        };
        let mut findings = Findings::default();
        let asks = "fn f() { store.claim(&c) }\n#[cfg(test)]\nmod tests { fn g() { store.renew(&[]) } }";
        let wrapper = "impl Store for Traced { fn f(&self) { self.inner.claim(c) } }";
        let files = [
            file("lock.rs", asks),
            file("pursuit.rs", asks),
            file("traced.rs", wrapper),
            file("many/mod.rs", wrapper),
            file("many/each.rs", asks),
        ];
        check(&files, &mut findings);
        assert_eq!(findings.problems.len(), 1);
        assert!(findings.problems[0].starts_with("crates/leasehold/src/lock.rs:1:"));
    }
}
