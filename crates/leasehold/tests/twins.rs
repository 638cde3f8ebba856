//! Every verb has its blocking twin, so that none is forgotten: told from the text of the crate.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What has no twin, and why. A whole type is `Type::*`.
const EXEMPT: &[(&str, &str)] =
    &[("Sim::*", "a test that moves time has to wait for futures; pollster::block_on makes them wait")];

/// The public methods of each type, and whether any of them is async.
#[derive(Debug, Default, PartialEq, Eq)]
struct Methods {
    names: BTreeSet<String>,
    is_async: bool,
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let files = files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "rs"));
    files.chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// Reads the inherent `impl` blocks of a file, and the lines of `mirror!` in them.
fn read(text: &str, into: &mut BTreeMap<String, Methods>) {
    let mut of = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("impl") {
            let rest = if rest.starts_with('<') { rest.split_once("> ").unwrap_or(("", "")).1 } else { rest };
            let inherent = !rest.contains(" for ");
            of = if inherent { word(rest.trim_start()).to_owned() } else { String::new() };
        }
        if of.is_empty() {
            continue;
        }
        let line = line.trim_start();
        let (is_async, rest) = match line {
            _ if line.starts_with("pub async fn ") => (true, &line["pub async fn ".len()..]),
            _ if line.starts_with("pub fn ") => (line.contains("-> impl Future"), &line["pub fn ".len()..]),
            _ => match ["option ", "look ", "wait "].iter().find_map(|kind| line.strip_prefix(kind)) {
                Some(rest) if line.ends_with(';') => (false, rest),
                _ => continue,
            },
        };
        let methods = into.entry(of.clone()).or_default();
        methods.names.insert(word(rest).to_owned());
        methods.is_async |= is_async;
    }
}

fn missing(ours: &BTreeMap<String, Methods>, twins: &BTreeMap<String, Methods>) -> Vec<String> {
    let exempt = |name: &str| EXEMPT.iter().any(|(exempt, _)| *exempt == name);
    let mut missing = Vec::new();
    for (of, methods) in ours {
        let twin = twins.get(of);
        // A type without a verb that waits may be used as it is.
        if exempt(&format!("{of}::*")) || (twin.is_none() && !methods.is_async) {
            continue;
        }
        let absent = |name: &&String| !twin.is_some_and(|twin| twin.names.contains(*name));
        let names = methods.names.iter().filter(absent).map(|name| format!("{of}::{name}"));
        missing.extend(names.filter(|name| !exempt(name)));
    }
    missing
}

#[test]
fn every_public_verb_has_a_blocking_twin() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut ours, mut twins) = (BTreeMap::new(), BTreeMap::new());
    for path in sources(&src) {
        let text = std::fs::read_to_string(&path).unwrap();
        read(&text, if path.starts_with(src.join("blocking")) { &mut twins } else { &mut ours });
    }
    assert!(ours["Lock"].is_async && ours["Lock"].names.contains("acquire"), "the files are read");
    let missing = missing(&ours, &twins);
    assert!(
        missing.is_empty(),
        "add these to src/blocking, or to EXEMPT here with the reason: {}",
        missing.join(", ")
    );
    for (name, _) in EXEMPT {
        assert!(ours.contains_key(name.split("::").next().unwrap()), "{name} is exempt and does not exist");
    }
}

#[test]
fn a_forgotten_verb_is_found() {
    let (mut ours, mut twins) = (BTreeMap::new(), BTreeMap::new());
    let text = "impl Lock {\n    pub async fn acquire(&self) {}\n    pub fn fair(self) {}\n    fn own() {}\n}\n\
                impl fmt::Debug for Lock {\n    pub fn odd() {}\n}\nimpl<T> Plain<T> {\n    pub fn look() {}\n}\n\
                impl<T> Gate<T> {\n    pub fn later(&self) -> impl Future<Output = ()> {}\n}\n";
    read(text, &mut ours);
    assert_eq!(missing(&ours, &twins), ["Gate::later", "Lock::acquire", "Lock::fair"]);
    read("impl Lock {\n    mirror! { \"Lock\"\n        option fair();\n    }\n}\n", &mut twins);
    assert_eq!(missing(&ours, &twins), ["Gate::later", "Lock::acquire"]);
}
