//! A claim as the data of its node: one line of text, of which each word is escaped.

use std::time::Duration;

use leasehold_core::{Claim, Note, Owner, Token};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// What the first word says, so that a later layout can be told from this one.
const LAYOUT: &str = "lh1";

const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// What the data of a claim's node says. Its id and its share stand in the node's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Value {
    /// The how-manieth tenure.
    pub(crate) tenure: u32,
    /// Its token, where that is older than the node: it went over from another session.
    pub(crate) token: Option<Token>,
    pub(crate) ttl: Duration,
    pub(crate) note: Note,
    pub(crate) owner: Owner,
}

impl Value {
    pub(crate) fn of(claim: &Claim) -> Self {
        let Claim { ttl, note, owner, .. } = claim;
        Self { tenure: 1, token: None, ttl: *ttl, note: note.clone(), owner: owner.clone() }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        // No `..`: what is new must be kept as well.
        let Self { tenure, token, ttl, note, owner } = self;
        let Owner { host, user, pid, program, tag } = owner;
        let token = token.map_or_else(String::new, |token| token.to_string());
        let numbers = [tenure.to_string(), ttl.as_millis().to_string(), pid.to_string()];
        let [tenure, ttl, pid] = &numbers;
        words(&[LAYOUT, tenure, &token, ttl, pid, host, user, program, tag, note.text().unwrap_or("")])
    }

    /// `None` when it is not ours: empty, an address, or whatever else others write there.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let told = unwords(bytes)?;
        let [layout, tenure, token, ttl, pid, host, user, program, tag, note] = &told[..] else {
            return None;
        };
        if layout != LAYOUT {
            return None;
        }
        let (tenure, ttl) = (tenure.parse().ok()?, Duration::from_millis(ttl.parse().ok()?));
        let token = if token.is_empty() { None } else { Some(Token::new(token.parse().ok()?)?) };
        let note = Note::parse(note).ok()?;
        let (host, user, program, tag) = (host.clone(), user.clone(), program.clone(), tag.clone());
        let owner = Owner { host, user, pid: pid.parse().ok()?, program, tag };
        Some(Self { tenure, token, ttl, note, owner })
    }
}

/// Several texts as one value, in the manner of a claim's.
pub(crate) fn words(words: &[&str]) -> Vec<u8> {
    words.iter().map(|word| escape(word)).collect::<Vec<_>>().join(" ").into_bytes()
}

/// The texts of such a value.
pub(crate) fn unwords(bytes: &[u8]) -> Option<Vec<String>> {
    std::str::from_utf8(bytes).ok()?.split(' ').map(unescape).collect()
}

fn escape(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

fn unescape(text: &str) -> Option<String> {
    Some(percent_decode_str(text).decode_utf8().ok()?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_as_it_was_and_nothing_else_is_one() {
        let value = Value {
            tenure: 2,
            token: Token::new(77),
            ttl: Duration::from_millis(1500),
            note: Note::parse("50 % \"done\" Größe").unwrap(),
            owner: Owner { host: "h 1".to_owned(), user: String::new(), pid: 7, ..Owner::default() },
        };
        assert_eq!(Value::parse(&value.to_bytes()), Some(value.clone()));
        for foreign in [&b""[..], b"10.0.0.1", b"lh1", b"lh2 1", &value.to_bytes()[..20], b"\xff\xfe"] {
            assert_eq!(Value::parse(foreign), None);
        }
    }
}
