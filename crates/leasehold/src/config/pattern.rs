//! Patterns of lock names: `*` stands for any text, `?` for one character.

use leasehold_core::{Code, ConfigError};

/// A pattern of lock names, such as `report:*`.
///
/// `*` crosses the levels that `:` and `/` make; nothing else is special.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// Parses a pattern.
    ///
    /// # Errors
    ///
    /// When it is empty or has a control character, so that it could never match a name.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        if text.is_empty() || text.chars().any(char::is_control) {
            return Err(ConfigError::new(format!("{text:?} is not a pattern of lock names"))
                .code(Code::NAME)
                .help("write one such as report:*, where * stands for any text"));
        }
        Ok(Self(text.to_owned()))
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What every name that matches starts with.
    #[must_use]
    pub fn prefix(&self) -> &str {
        self.0.find(['*', '?']).map_or(self.0.as_str(), |end| &self.0[..end])
    }

    /// Whether the whole name matches.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let pattern: Vec<char> = self.0.chars().collect();
        let name: Vec<char> = name.chars().collect();
        let (mut p, mut n) = (0, 0);
        // Where to go on after the last star took one character more: enough, and never exponential.
        let mut star = None;
        while n < name.len() {
            match pattern.get(p) {
                Some('*') => {
                    star = Some((p + 1, n));
                    p += 1;
                }
                Some('?') => (p, n) = (p + 1, n + 1),
                Some(c) if *c == name[n] => (p, n) = (p + 1, n + 1),
                _ => match star {
                    Some((after, taken)) => {
                        star = Some((after, taken + 1));
                        (p, n) = (after, taken + 1);
                    }
                    None => return false,
                },
            }
        }
        pattern[p..].iter().all(|c| *c == '*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_take_any_text_and_question_marks_one_character() {
        for (pattern, good, bad) in [
            ("report:*", vec!["report:daily", "report:"], vec!["report", "xreport:daily"]),
            ("*", vec!["a", "a:b/c"], vec![]),
            ("*:prod", vec!["deploy:prod", ":prod", "a:prod:prod"], vec!["deploy:prod2"]),
            ("a?c", vec!["abc", "aäc"], vec!["ac", "abbc"]),
            ("exact", vec!["exact"], vec!["exact2", "exac"]),
            ("a*b*c", vec!["abc", "axxbxxbc"], vec!["acb"]),
        ] {
            let parsed = Pattern::parse(pattern).unwrap();
            good.iter().for_each(|name| assert!(parsed.matches(name), "{pattern} {name}"));
            bad.iter().for_each(|name| assert!(!parsed.matches(name), "{pattern} {name}"));
        }
        assert_eq!(Pattern::parse("report:*").unwrap().prefix(), "report:");
        assert!(Pattern::parse("").is_err());
    }
}
