//! Our own look at `deny.toml`, for machines without cargo-deny: licences, banned crates, sources.

mod expression;

use std::path::Path;

use serde::Deserialize;

use crate::Result;
use crate::workspace::{Package, Workspace};

/// The part of `deny.toml` that is looked at here.
#[derive(Debug, Deserialize)]
struct Rules {
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Debug, Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Bans {
    deny: Vec<Ban>,
}

#[derive(Debug, Deserialize)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
struct Sources {
    #[serde(rename = "allow-registry")]
    allow_registry: Vec<String>,
}

/// What in the whole tree of dependencies `deny.toml` does not allow.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let rules = toml::from_str(&std::fs::read_to_string(root.join("deny.toml"))?)?;
    let workspace = Workspace::load(true)?;
    Ok(workspace.packages.iter().flat_map(|package| problems(&rules, package)).collect())
}

fn problems(rules: &Rules, package: &Package) -> Vec<String> {
    let Rules { licenses, bans, sources } = rules;
    let Package { name, version, license, source, .. } = package;
    let who = format!("{name} {version}");
    let mut problems = Vec::new();
    match license.as_deref() {
        Some(terms) if expression::holds(terms, &licenses.allow) => {}
        Some(terms) => problems.push(format!("{who}: the licence `{terms}` is not allowed by deny.toml")),
        None => problems.push(format!("{who}: it names no licence")),
    }
    problems.extend(bans.deny.iter().filter(|ban| ban.name == *name).map(|ban| {
        let Ban { name: _, reason } = ban;
        format!("{who}: it is banned by deny.toml: {reason}")
    }));
    // Our own crates have no source.
    if let Some(source) = source {
        let known = sources.allow_registry.iter().any(|url| source == &format!("registry+{url}"));
        if !known {
            problems.push(format!("{who}: deny.toml allows no packages from {source}"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(license: &str, source: &str) -> Package {
        let json = format!(
            r#"{{"name":"x","version":"1.0.0","id":"x","license":{license},"source":{source},
                "dependencies":[],"targets":[],"features":{{}}}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn the_file_that_stands_in_the_project_bites() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut rules: Rules =
            toml::from_str(&std::fs::read_to_string(root.join("deny.toml")).unwrap()).unwrap();
        let registry = r#""registry+https://github.com/rust-lang/crates.io-index""#;
        assert_eq!(problems(&rules, &package(r#""MIT OR Apache-2.0""#, registry)), [""; 0]);
        assert_eq!(problems(&rules, &package(r#""MIT""#, "null")), [""; 0]);
        assert_eq!(problems(&rules, &package(r#""AGPL-3.0-only""#, registry)).len(), 1);
        assert_eq!(problems(&rules, &package("null", registry)).len(), 1);
        assert_eq!(problems(&rules, &package(r#""MIT""#, r#""git+https://x.example/y""#)).len(), 1);
        rules.bans.deny.push(Ban { name: "x".to_owned(), reason: "for a test".to_owned() });
        assert_eq!(problems(&rules, &package(r#""MIT""#, registry)).len(), 1);
    }
}
