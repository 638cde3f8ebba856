//! The name of a lock: parsed once at the edge, trusted everywhere after.

use std::fmt;
use std::sync::Arc;

use crate::Code;

/// The most bytes that a name may have.
const MOST_BYTES: usize = 512;
/// The most bytes that a name typed on a command line may have.
const MOST_PLAIN_BYTES: usize = 200;
/// Names that start like this are Leasehold's own.
const RESERVED: &str = "lh:";

/// What is locked, as people write it: 1 to 512 bytes of UTF-8 without control characters.
///
/// Names are compared byte by byte: nothing is folded, trimmed or normalised, so `Order` and `order` are two
/// locks, and so are two Unicode spellings of one word.
///
/// ```
/// use leasehold_core::LockName;
///
/// let name = LockName::parse("order:10017")?;
/// assert_eq!(name.as_str(), "order:10017");
/// assert!(LockName::parse("").is_err());
/// # Ok::<(), leasehold_core::NameError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<str>);

impl LockName {
    /// Parses any name that the library takes.
    ///
    /// # Errors
    ///
    /// An empty name, one of over 512 bytes, and one with a control character.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let wrong = |fault| NameError { name: text.to_owned(), fault };
        if text.is_empty() {
            return Err(wrong(NameFault::Empty));
        }
        if text.len() > MOST_BYTES {
            return Err(wrong(NameFault::Long { bytes: text.len(), most: MOST_BYTES }));
        }
        if let Some((at, what)) = text.char_indices().find(|(_, c)| c.is_control()) {
            return Err(wrong(NameFault::Character { at: position(text, at), what }));
        }
        Ok(Self(text.into()))
    }

    /// Parses a name as the command takes it without `--raw-name`, kind to shells, dashboards and every store.
    ///
    /// 1 to 200 bytes of `A-Z a-z 0-9 . _ - : / @ = +`, first and last alphanumeric, not starting with `lh:`.
    ///
    /// # Errors
    ///
    /// Says which character is wrong and where, and what would do instead.
    pub fn parse_plain(text: &str) -> Result<Self, NameError> {
        let name = Self::parse(text)?;
        let wrong = |fault| Err(NameError { name: text.to_owned(), fault });
        if text.len() > MOST_PLAIN_BYTES {
            return wrong(NameFault::Long { bytes: text.len(), most: MOST_PLAIN_BYTES });
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-:/@=+".contains(c);
        if let Some((at, what)) = text.char_indices().find(|(_, c)| !plain(*c)) {
            return wrong(NameFault::Character { at: position(text, at), what });
        }
        let ends = [text.chars().next(), text.chars().next_back()];
        if ends.into_iter().flatten().any(|c| !c.is_ascii_alphanumeric()) {
            return wrong(NameFault::Ends);
        }
        if text.starts_with(RESERVED) {
            return wrong(NameFault::Reserved);
        }
        Ok(name)
    }

    /// This name within a namespace: `<namespace>:<name>`.
    ///
    /// # Errors
    ///
    /// When the two together are over 512 bytes or the namespace has a control character.
    pub fn within(&self, namespace: &str) -> Result<Self, NameError> {
        if namespace.is_empty() { Ok(self.clone()) } else { Self::parse(&format!("{namespace}:{self}")) }
    }

    /// The name as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// People count characters from one.
fn position(text: &str, byte: usize) -> usize {
    text[..byte].chars().count() + 1
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl AsRef<str> for LockName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Why a text is not a lock name, and what to type instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameError {
    name: String,
    fault: NameFault,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum NameFault {
    Empty,
    Long { bytes: usize, most: usize },
    Character { at: usize, what: char },
    Ends,
    Reserved,
}

impl NameError {
    /// The number under which `leasehold explain` tells more.
    #[must_use]
    pub fn code(&self) -> Code {
        Code::NAME
    }

    /// What to type instead.
    #[must_use]
    pub fn help(&self) -> String {
        match &self.fault {
            NameFault::Empty => "write what is locked, noun first: report:daily".to_owned(),
            NameFault::Long { .. } => {
                "shorten it, or lock a hash of it and put the long text in the note".to_owned()
            }
            NameFault::Character { .. } | NameFault::Ends => self.suggestions(),
            NameFault::Reserved => "names that start with lh: are Leasehold's own; choose another".to_owned(),
        }
    }

    fn suggestions(&self) -> String {
        let with = |to: char| -> String {
            let plain = |c: char| if c.is_ascii_alphanumeric() || "._-:/@=+".contains(c) { c } else { to };
            let text: String = self.name.chars().map(plain).collect();
            text.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
        };
        let (dash, colon) = (with('-'), with(':'));
        match (dash.is_empty(), dash == colon) {
            (true, _) => "use letters, digits and . _ - : / @ = +, such as report:daily".to_owned(),
            (false, true) => dash,
            (false, false) => format!("{dash}   or   {colon}"),
        }
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &self.fault {
            NameFault::Empty => write!(f, "an empty text is not a lock name"),
            NameFault::Long { bytes, most } => {
                write!(f, "the lock name has {bytes} bytes, {most} are the most")
            }
            NameFault::Character { at, what } if what.is_whitespace() && !what.is_control() => {
                write!(f, "{name:?} is not a lock name: blank at position {at}")
            }
            NameFault::Character { at, what } => {
                write!(f, "{name:?} is not a lock name: {what:?} at position {at}")
            }
            NameFault::Ends => {
                write!(f, "{name:?} is not a lock name: it must start and end with a letter or a digit")
            }
            NameFault::Reserved => write!(f, "{name:?} is not a lock name: it starts with {RESERVED}"),
        }
    }
}

impl std::error::Error for NameError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_takes_any_text_without_control_characters() {
        for good in ["a", "daily report", "Größe", "{a}*?,", &"x".repeat(512)] {
            assert_eq!(LockName::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "a\nb", "\u{7f}", &"x".repeat(513)] {
            assert!(LockName::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_command_takes_plain_names_and_says_what_would_do() {
        for good in ["a", "report:daily", "deploy:shop/prod", "a.b_c-d@e=f+1", &"x".repeat(200)] {
            assert!(LockName::parse_plain(good).is_ok(), "{good:?}");
        }
        for bad in ["a b", "a*", "{a}", "a,b", "a%", "-n", "a:", "lh:x", "ä", &"x".repeat(201)] {
            assert!(LockName::parse_plain(bad).is_err(), "{bad:?}");
        }
        let error = LockName::parse_plain("daily report").unwrap_err();
        assert_eq!(error.to_string(), r#""daily report" is not a lock name: blank at position 6"#);
        assert_eq!(error.help(), "daily-report   or   daily:report");
    }

    #[test]
    fn a_namespace_goes_before_the_name() {
        let name = LockName::parse("a").unwrap();
        assert_eq!(name.within("prod").unwrap().as_str(), "prod:a");
        assert_eq!(name.within("").unwrap(), name);
        assert!(name.within(&"x".repeat(512)).is_err());
    }
}
