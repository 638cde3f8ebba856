//! What a public signature may name: no type of a client library, or its next version would be ours.

use std::collections::BTreeSet;
use std::ops::Range;

use super::{File, Findings};
use crate::source;
use crate::workspace::{Package, Workspace};

/// Other people's crates whose types may appear, and why. Everything else that a crate imports may not.
const MAY_APPEAR: &[(&str, &str)] = &[
    ("bytes", "shared bytes, which all clients of stores have in common"),
    ("futures_util", "boxed futures and streams, which every executor takes"),
    ("serde", "the traits by which values are read and written everywhere"),
    ("tokio", "its `sync` part alone, which works on every executor"),
    ("tokio_util", "`CancellationToken`, the word that async programs stop each other with"),
];

pub(super) fn check(workspace: &Workspace, files: &[File], findings: &mut Findings) {
    for package in libraries(workspace) {
        let folder =
            format!("crates/{}/src/", package.name.strip_prefix("leasehold-").unwrap_or(&package.name));
        let foreign = foreign(workspace, package);
        let sources = files.iter().filter(|file| file.is_rust() && file.path.starts_with(&folder));
        let sources: Vec<(&str, String)> =
            sources.map(|file| (file.path.as_str(), source::shipped(&file.text))).collect();
        if sources.is_empty() {
            findings.problem(format!("{folder} has no files, so what {} shows is not checked", package.name));
        }
        let public: BTreeSet<&str> = sources.iter().flat_map(|(_, code)| public_types(code)).collect();
        for (path, code) in &sources {
            for (at, named) in named(code, &foreign, &public) {
                findings.problem(format!(
                    "{path}:{}: a public signature names `{named}`, which is another library's: wrap it",
                    source::line_of(code, at)
                ));
            }
        }
    }
}

/// What users and authors of stores build upon: the core, `leasehold`, and the stores that it imports.
fn libraries(workspace: &Workspace) -> Vec<&Package> {
    let Some(leasehold) = workspace.member("leasehold") else { return Vec::new() };
    let imported = leasehold.dependencies.iter().filter(|dependency| dependency.kind.is_none());
    let imported = imported.filter_map(|dependency| workspace.member(&dependency.name));
    std::iter::once(leasehold).chain(imported).collect()
}

/// The crates, as they are written in code, whose types must not appear.
fn foreign(workspace: &Workspace, package: &Package) -> BTreeSet<String> {
    let others = package.dependencies.iter().filter(|dependency| dependency.kind.is_none());
    let others = others.filter(|dependency| workspace.member(&dependency.name).is_none());
    let words = others.map(|dependency| dependency.name.replace('-', "_"));
    words.filter(|word| !MAY_APPEAR.iter().any(|(may, _)| may == word)).collect()
}

/// The types and traits that a file declares as public.
fn public_types(code: &str) -> impl Iterator<Item = &str> {
    let declared = ["pub struct ", "pub enum ", "pub trait ", "pub type "];
    declared
        .into_iter()
        .flat_map(|start| code.match_indices(start).map(|(at, _)| word(&code[at + start.len()..])))
}

/// Where public signatures name what is foreign.
fn named(code: &str, foreign: &BTreeSet<String>, public: &BTreeSet<&str>) -> Vec<(usize, String)> {
    let imported = imported(code, foreign);
    let mut found = Vec::new();
    for range in signatures(code, public) {
        for (at, word) in words(code, range) {
            let is_path = code[at + word.len()..].starts_with("::");
            let goes_on = code[..at].ends_with("::") || code[..at].ends_with('.');
            let is_type = word.starts_with(char::is_uppercase) || is_path;
            if !goes_on && ((is_path && foreign.contains(word)) || (is_type && imported.contains(word))) {
                found.push((at, word.to_owned()));
            }
        }
    }
    // What is public within what is public is read twice.
    found.sort();
    found.dedup();
    found
}

/// What a file brings into scope from foreign crates, by the names that it goes under.
fn imported<'a>(code: &'a str, foreign: &BTreeSet<String>) -> BTreeSet<&'a str> {
    let mut imported = BTreeSet::new();
    for (at, _) in code.match_indices("use ").filter(|(at, _)| starts_word(code, *at)) {
        let end = code[at..].find(';').map_or(code.len(), |end| at + end);
        let mut words = words(code, at + "use ".len()..end);
        if words.next().is_some_and(|(_, first)| foreign.contains(first)) {
            imported.extend(words.map(|(_, word)| word).filter(|word| !["as", "self"].contains(word)));
        }
    }
    imported
}

/// The public signatures of a file: of functions, fields, constants and aliases up to their bodies, of enums and traits
/// with what is in them, and of what is implemented for public types.
fn signatures(code: &str, public: &BTreeSet<&str>) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("pub ").filter(|(at, _)| starts_word(code, *at)) {
        let item = &code[at + "pub ".len()..];
        let start = at + "pub ".len();
        match word(item) {
            "mod" => {}
            "use" => found.push(start..until(code, start, ";")),
            // What is public in a struct says so itself.
            "struct" | "union" => found.push(start..until(code, start, "{(;")),
            "enum" => found.push(start..end_of_body(code, start)),
            "trait" => found.extend(shallow(code, start..end_of_body(code, start))),
            "const" | "static" | "type" if !item.starts_with("const fn") => {
                let end = if word(item) == "type" { ";" } else { ";=" };
                found.push(start..until(code, start, end));
            }
            "fn" | "async" | "const" | "unsafe" | "extern" => found.push(start..until(code, start, "{;")),
            // A field.
            _ => found.push(start..until(code, start, ",})")),
        }
    }
    for (at, _) in code.match_indices("impl").filter(|(at, _)| *at == 0 || code[..*at].ends_with('\n')) {
        let head = at..until(code, at, "{");
        let Some((_, of)) = code[head.clone()].rsplit_once(" for ") else { continue };
        if public.contains(word(of.trim_start_matches('&'))) {
            let body = head.end..end_of_body(code, at);
            let types = code[body.clone()].match_indices("    type ").map(|(at, _)| body.start + at);
            found.extend(types.map(|at| at..until(code, at, ";")));
            found.push(head);
        }
    }
    found
}

/// The end of what starts at `start`: the first of these characters outside of brackets.
fn until(code: &str, start: usize, ends: &str) -> usize {
    let mut depth = 0_usize;
    for (at, char) in code[start..].char_indices() {
        if depth == 0 && ends.contains(char) {
            return start + at;
        }
        match char {
            '(' | '[' | '{' => depth += 1,
            '<' => depth += 1,
            '>' if !code[..start + at].ends_with(['-', '=']) => depth = depth.saturating_sub(1),
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    code.len()
}

/// The end of the braces that open after `start`, or of the item if it has none.
fn end_of_body(code: &str, start: usize) -> usize {
    let open = until(code, start, "{;");
    if !code[open..].starts_with('{') { open } else { until(code, open + 1, "}") }
}

/// What is in these braces, without what is in braces of its own.
fn shallow(code: &str, range: Range<usize>) -> Vec<Range<usize>> {
    let Some(open) = code[range.clone()].find('{').map(|at| range.start + at) else { return vec![range] };
    let mut parts: Vec<_> = std::iter::once(range.start..open).collect();
    let mut start = open + 1;
    while start < range.end {
        let end = until(code, start, "{}").min(range.end);
        parts.push(start..end);
        start = if code[end..].starts_with('{') { until(code, end + 1, "}") + 1 } else { range.end };
    }
    parts
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

fn starts_word(code: &str, at: usize) -> bool {
    !code[..at].ends_with(is_word)
}

fn word(text: &str) -> &str {
    &text[..text.find(|char| !is_word(char)).unwrap_or(text.len())]
}

fn words(code: &str, range: Range<usize>) -> impl Iterator<Item = (usize, &str)> {
    let text = &code[range.clone()];
    let starts = text.char_indices().filter(move |(at, char)| is_word(*char) && starts_word(text, *at));
    starts.map(move |(at, _)| (range.start + at, word(&text[at..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Breaks the rule wherever it is marked so, and nowhere else.
    const SAMPLE: &str = "
use rusqlite::{Connection as Db, types::Value};
use std::fmt;
use tonic::transport;

pub use redis::Client; // broken
pub struct Store<D = Db> { // broken
    pub open: Option<rusqlite::Connection>, // broken
    inner: Db,
    pub(crate) also: Db,
}
pub struct Pair(pub u8, pub Value); // broken
pub enum Answer {
    Row(Vec<Value>), // broken
    Nothing { at: transport::Uri }, // broken
}
pub trait Read {
    type Row: From<Value>; // broken
    fn read(&self, db: &Db) -> u8 { // broken
        Db::open().read::<Value>()
    }
    fn close(&self);
}
pub type Rows = Vec<Value>; // broken
pub const fn first(value: Value) -> u8 { 0 } // broken
pub const LIMIT: u8 = Db::LIMIT;
pub(crate) fn hidden(db: Db) -> Value { Value::Null }
fn own(db: Db) {}
impl Store {
    pub async fn write(
        &self,
        rows: impl Iterator<Item = Value>, // broken
    ) -> fmt::Result where Self: Sized {
        let value: Value = rows.next();
        Ok(())
    }
    pub fn tonic(&self, value: crate::Value) -> self::tonic { self.rusqlite() }
}
impl From<rusqlite::Error> for Store { // broken
    fn from(error: rusqlite::Error) -> Self { Store::new(error) }
}
impl IntoIterator for Store {
    type Item = Value; // broken
}
impl From<rusqlite::Error> for Hidden {}
struct Hidden(Db);
";

    #[test]
    fn a_file_that_shows_another_librarys_types_is_found_line_by_line() {
        let foreign = ["rusqlite", "redis", "tonic"].map(str::to_owned).into();
        let public = public_types(SAMPLE).collect();
        // The marks are comments, which are not code.
        let code = source::shipped(SAMPLE);
        let found: BTreeSet<usize> =
            named(&code, &foreign, &public).iter().map(|(at, _)| source::line_of(&code, *at)).collect();
        let marked = SAMPLE.lines().enumerate().filter(|(_, line)| line.ends_with("// broken"));
        assert_eq!(found, marked.map(|(index, _)| index + 1).collect());
    }

    #[test]
    fn what_this_house_shows_is_read_and_its_stores_are_among_it() {
        let workspace = Workspace::load(false).unwrap();
        let names: Vec<_> = libraries(&workspace).iter().map(|package| package.name.as_str()).collect();
        assert!(names.contains(&"leasehold-core") && names.contains(&"leasehold-sqlite"), "{names:?}");
        let sqlite = workspace.member("leasehold-sqlite").unwrap();
        assert!(foreign(&workspace, sqlite).contains("rusqlite"));
    }
}
