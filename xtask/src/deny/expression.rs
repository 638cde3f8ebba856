//! Whether a licence expression can be met with the licences of a list.

/// Whether somebody who accepts `allowed` licences, and no others, may use what is under these terms.
///
/// Understands SPDX expressions (`(MIT OR Apache-2.0) AND Unicode-3.0`) and the older `MIT/Apache-2.0`. What is
/// not understood does not hold.
pub(super) fn holds(terms: &str, allowed: &[String]) -> bool {
    let spaced = terms.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Reader { words: &words, allowed };
    reader.any() == Some(true) && reader.words.is_empty()
}

struct Reader<'a> {
    words: &'a [&'a str],
    allowed: &'a [String],
}

impl Reader<'_> {
    fn take(&mut self, word: &str) -> bool {
        let is_next = self.words.first() == Some(&word);
        if is_next {
            self.words = &self.words[1..];
        }
        is_next
    }

    /// `a OR b OR ..`; `OR` binds less than `AND`.
    fn any(&mut self) -> Option<bool> {
        let mut holds = self.all()?;
        while self.take("OR") {
            holds |= self.all()?;
        }
        Some(holds)
    }

    /// `a AND b AND ..`
    fn all(&mut self) -> Option<bool> {
        let mut holds = self.one()?;
        while self.take("AND") {
            holds &= self.one()?;
        }
        Some(holds)
    }

    /// A licence, one with an exception, or what stands in brackets.
    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let holds = self.any()?;
            return self.take(")").then_some(holds);
        }
        let (licence, rest) = self.words.split_first()?;
        self.words = rest;
        let mut name = (*licence).to_owned();
        if self.take("WITH") {
            let (exception, rest) = self.words.split_first()?;
            self.words = rest;
            name = format!("{name} WITH {exception}");
        }
        Some(self.allowed.contains(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::holds;

    #[test]
    fn terms_are_met_or_not() {
        let allowed = ["MIT", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        for good in [
            "MIT",
            "MIT OR GPL-3.0-only",
            "GPL-3.0-only/MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0",
        ] {
            assert!(holds(good, &allowed), "{good}");
        }
        for bad in
            ["", "GPL-3.0-only", "MIT AND GPL-3.0-only", "(MIT", "MIT MIT", "Apache-2.0", "OR", "MIT OR"]
        {
            assert!(!holds(bad, &allowed), "{bad}");
        }
        // AND binds more than OR.
        assert!(holds("MIT OR A AND B", &allowed) && holds("A AND B OR MIT", &allowed));
    }
}
