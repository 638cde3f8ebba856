//! The journal of a protected section: one file to which everybody appends as they come and go, and its judge.
//!
//! The system puts what is appended into an order, whoever appends it and in whatever language. Whoever holds the lock
//! writes `+` after he got it and `-` before he gives it back. So if two were ever inside at once, two `+` stand
//! there without the `-` of the first between them: no clock has a part in it, and nobody's word is taken.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use leasehold::Token;

/// How many violations are told one by one.
const TOLD: usize = 5;

/// One who visits the section.
#[derive(Debug)]
pub struct Visitor {
    journal: File,
    who: String,
}

impl Visitor {
    /// Opens the journal for somebody of this name, which has no space in it.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    pub fn open(journal: &Path, who: &str) -> io::Result<Self> {
        let journal = File::options().append(true).create(true).open(journal)?;
        Ok(Self { journal, who: format!("{who} {}", std::process::id()) })
    }

    /// Writes that he is inside, with his token if he has one.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn enter(&mut self, token: Option<Token>) -> io::Result<()> {
        let token = token.map_or_else(String::new, |token| format!(" {token}"));
        let line = format!("+ {}{token}\n", self.who);
        // In one call: two would be two places in the order.
        self.journal.write_all(line.as_bytes())
    }

    /// Writes that he is about to go.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn leave(&mut self) -> io::Result<()> {
        let line = format!("- {}\n", self.who);
        self.journal.write_all(line.as_bytes())
    }
}

/// What a journal says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    /// How often each was inside.
    pub visits: BTreeMap<String, u64>,
    /// Each time that somebody entered while another was inside.
    pub overlaps: Vec<String>,
    /// Whatever else cannot be: a token that did not rise, a line of no meaning, somebody who never left.
    pub oddities: Vec<String>,
}

impl Verdict {
    /// Reads a journal to its end.
    #[must_use]
    pub fn of(journal: &str) -> Self {
        let mut verdict = Self::default();
        let mut inside: Vec<(&str, &str)> = Vec::new();
        let mut last: Option<Token> = None;
        for (at, line) in (1..).zip(journal.lines()) {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["+", who, pid, ref token @ ..] if token.len() < 2 => {
                    *verdict.visits.entry(who.to_owned()).or_default() += 1;
                    if let Some((other, _)) = inside.first() {
                        verdict.overlaps.push(format!("line {at}: {who} entered while {other} was inside"));
                    }
                    inside.push((who, pid));
                    let Some(text) = token.first() else { continue };
                    let token = text.parse().ok().and_then(Token::new);
                    if token.is_none() || token <= last {
                        verdict.oddities.push(format!("line {at}: the token {text} of {who} did not rise"));
                    }
                    last = last.max(token);
                }
                ["-", who, pid] => match inside.iter().position(|one| *one == (who, pid)) {
                    Some(place) => _ = inside.remove(place),
                    None => verdict.oddities.push(format!("line {at}: {who} was not inside")),
                },
                _ => verdict.oddities.push(format!("line {at} means nothing: {line}")),
            }
        }
        verdict.oddities.extend(inside.iter().map(|(who, _)| format!("{who} never left")));
        verdict
    }

    /// How often this one was inside.
    #[must_use]
    pub fn visits(&self, who: &str) -> u64 {
        self.visits.get(who).copied().unwrap_or(0)
    }

    /// Whether nothing happened that must not.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.overlaps.is_empty() && self.oddities.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { visits: _, overlaps, oddities } = self;
        write!(f, "{} overlaps, {} oddities", overlaps.len(), oddities.len())?;
        overlaps
            .iter()
            .take(TOLD)
            .chain(oddities.iter().take(TOLD))
            .try_for_each(|one| write!(f, "\n  {one}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_after_another_is_good_and_everybody_is_counted() {
        let verdict = Verdict::of("+ a 1 7\n- a 1\n+ b 2\n- b 2\n+ a 1 9\n- a 1\n");
        assert!(verdict.is_good(), "{verdict}");
        assert_eq!((verdict.visits("a"), verdict.visits("b"), verdict.visits("c")), (2, 1, 0));
    }

    #[test]
    fn two_inside_at_once_are_told_whichever_leaves_first() {
        for ends in ["- a 1\n- b 2\n", "- b 2\n- a 1\n"] {
            let verdict = Verdict::of(&format!("+ a 1\n+ b 2\n{ends}"));
            assert_eq!(verdict.overlaps, ["line 2: b entered while a was inside"]);
            assert_eq!(verdict.oddities, [""; 0]);
        }
        // Two processes of one name are two.
        assert_eq!(Verdict::of("+ a 1\n+ a 2\n- a 1\n- a 2\n").overlaps.len(), 1);
    }

    #[test]
    fn what_cannot_be_is_told() {
        for (journal, told) in [
            ("+ a 1 7\n- a 1\n+ a 1 7\n- a 1\n", "line 3: the token 7 of a did not rise"),
            ("+ a 1 x\n- a 1\n", "line 1: the token x of a did not rise"),
            ("+ a 1\n", "a never left"),
            ("- a 1\n", "line 1: a was not inside"),
            ("+ a 1\n- a 2\n- a 1\n", "line 2: a was not inside"),
            ("hello\n", "line 1 means nothing: hello"),
            ("+ a 1 2 3\n", "line 1 means nothing: + a 1 2 3"),
        ] {
            let verdict = Verdict::of(journal);
            assert_eq!(verdict.oddities, [told], "{journal}");
            assert!(!verdict.is_good());
        }
    }

    #[test]
    fn what_visitors_write_is_what_the_judge_reads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut a, mut b) = (Visitor::open(&path, "a").unwrap(), Visitor::open(&path, "b").unwrap());
        a.enter(Token::new(7)).unwrap();
        b.enter(None).unwrap();
        a.leave().unwrap();
        b.leave().unwrap();
        let verdict = Verdict::of(&std::fs::read_to_string(&path).unwrap());
        assert_eq!((verdict.visits("a"), verdict.overlaps.len(), verdict.oddities.len()), (1, 1, 0));
    }
}
