//! A claim as the value of its key: one line of text, of which each word is escaped.

use std::time::Duration;

use leasehold_core::{Claim, ClaimId, Note, Owner, Share, Tenure};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use crate::keys::hex;

/// What the first word says, so that a later layout can be told from this one.
const LAYOUT: &str = "lh1";

const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// What the value of a claim's key says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) id: ClaimId,
    /// The how-manieth tenure; none while it waits.
    pub(crate) tenure: u32,
    pub(crate) share: Share,
    pub(crate) ttl: Duration,
    /// How long it had held when this was written: instants never cross the wire.
    pub(crate) held: Duration,
    pub(crate) renewals: u32,
    pub(crate) note: Note,
    pub(crate) owner: Owner,
}

impl Value {
    /// A claim that waits.
    pub(crate) fn waiting(claim: &Claim) -> Self {
        let (held, renewals, tenure) = (Duration::ZERO, 0, 0);
        let (note, owner) = (claim.note.clone(), claim.owner.clone());
        Self { id: claim.id, tenure, share: claim.share, ttl: claim.ttl, held, renewals, note, owner }
    }

    /// The same, when it got what it waited for.
    pub(crate) fn granted(self) -> Self {
        Self { tenure: 1, ..self }
    }

    /// The same, once it was renewed.
    pub(crate) fn renewed(self, tenure: &Tenure, held: Duration) -> Self {
        let Tenure { count, token: _, note } = tenure;
        let renewals = self.renewals.saturating_add(1);
        Self { tenure: (*count).max(1), note: note.clone(), held, renewals, ..self }
    }

    pub(crate) fn holds(&self) -> bool {
        self.tenure > 0
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        // No `..`: what is new must be kept as well.
        let Self { id, tenure, share, ttl, held, renewals, note, owner } = self;
        let Owner { host, user, pid, program, tag } = owner;
        let words = [
            LAYOUT.to_owned(),
            hex(*id),
            tenure.to_string(),
            share.take().to_string(),
            share.of().to_string(),
            ttl.as_millis().to_string(),
            held.as_millis().to_string(),
            renewals.to_string(),
            pid.to_string(),
            escape(host),
            escape(user),
            escape(program),
            escape(tag),
            escape(note.text().unwrap_or("")),
        ];
        words.join(" ").into_bytes()
    }

    /// `None` when it is not ours: empty as that of a mutex, or whatever somebody proposed in an election.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut words = text.split(' ');
        let mut next = || words.next();
        if next()? != LAYOUT {
            return None;
        }
        let id = u128::from_str_radix(next()?, 16).ok()?;
        let id = ClaimId::from_bytes(id.to_be_bytes());
        let tenure = next()?.parse().ok()?;
        let share = Share::from_parts(next()?.parse().ok()?, next()?.parse().ok()?).ok()?;
        let ttl = Duration::from_millis(next()?.parse().ok()?);
        let held = Duration::from_millis(next()?.parse().ok()?);
        let renewals = next()?.parse().ok()?;
        let pid = next()?.parse().ok()?;
        let (host, user) = (unescape(next()?)?, unescape(next()?)?);
        let (program, tag) = (unescape(next()?)?, unescape(next()?)?);
        let note = Note::parse(&unescape(next()?)?).ok()?;
        let owner = Owner { host, user, pid, program, tag };
        Some(Self { id, tenure, share, ttl, held, renewals, note, owner })
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
            id: ClaimId::from_bytes([3; 16]),
            tenure: 2,
            share: Share::permits(2, 5).unwrap(),
            ttl: Duration::from_millis(1500),
            held: Duration::from_secs(7),
            renewals: 4,
            note: Note::parse("50 % \"done\" Größe").unwrap(),
            owner: Owner { host: "h 1".to_owned(), user: String::new(), pid: 7, ..Owner::default() },
        };
        assert_eq!(Value::parse(&value.to_bytes()), Some(value.clone()));
        for foreign in [&b""[..], b"proposal", b"lh1", b"lh2 1", &value.to_bytes()[..40], b"\xff\xfe"] {
            assert_eq!(Value::parse(foreign), None);
        }
    }
}
