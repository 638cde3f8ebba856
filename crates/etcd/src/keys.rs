//! Names as keys: a line of its own for each name, which is the line of `etcdctl lock` too.

use leasehold_core::{ClaimId, LockName, MarkKind, fault};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};

/// A plain name is its own key. Anything else is escaped, above all `/`: other tools let the lock `a/b` stand in the
/// way of `a`.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b':');

/// In a line, and no member of it. Whoever finds it there waits for it, other clients too.
const SHUT: &str = "+shut";
/// The same, while the key is gone that it names.
const AFTER: &str = "+after:";
/// Under these our prefix keeps what is no line. No escaped name starts so, and all lines stand before them, so that one
/// watch sees all lines and nothing else.
const SPENT: &str = "~spent/";
const MARK: &str = "~mark/";
const RECORD: &str = "~record/";

/// The keys of one name.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    prefix: String,
    name: String,
    /// Before each member of the line.
    pub(crate) line: Vec<u8>,
    /// The first key after the line.
    pub(crate) end: Vec<u8>,
    /// Stands while the name is shut.
    pub(crate) shut: Vec<u8>,
}

/// What belongs to one claim.
#[derive(Debug, Clone)]
pub(crate) struct Own {
    /// Its key in the line.
    pub(crate) key: Vec<u8>,
    /// Stands from its grant or its end on: the id is granted once in its life.
    pub(crate) spent: Vec<u8>,
    /// The lease that it holds under, and that names its key.
    pub(crate) lease: i64,
    /// The lease that its place in line has.
    pub(crate) place: i64,
    /// The leases of what it leaves behind: while it has the lease of its place, later, and from its grant.
    pub(crate) after_place: i64,
    pub(crate) after: i64,
    pub(crate) least: i64,
}

impl Keys {
    pub(crate) fn of(prefix: &str, name: &LockName) -> Self {
        let name = escape(name.as_str());
        let slash = if fault!("etcd_lines_nest") { "" } else { "/" };
        let line = format!("{prefix}{name}{slash}").into_bytes();
        let end = end_of(&line);
        let shut = [&line[..], SHUT.as_bytes()].concat();
        Self { prefix: prefix.to_owned(), name, line, end, shut }
    }

    /// What belongs to a claim for this name. The leases are derived from its id, so that what was done by a request
    /// whose reply was lost is found again, and by whoever knows the id.
    pub(crate) fn own(&self, id: ClaimId) -> Own {
        let lease = lease(&self.line, id, 1);
        let key = [&self.line[..], format!("{lease:x}").as_bytes()].concat();
        let id_hex = hex(id);
        let spent = format!("{}{SPENT}{}/{id_hex}", self.prefix, self.name).into_bytes();
        let [place, after_place, after, least] =
            [2, 3, 4, 5].map(|purpose| self::lease(&self.line, id, purpose));
        Own { key, spent, lease, place, after_place, after, least }
    }

    /// What a claim leaves behind, for this reason.
    pub(crate) fn after(&self, own: &Own, why: &str) -> Vec<u8> {
        [&self.afters(own).0[..], why.as_bytes()].concat()
    }

    /// All that a claim leaves behind.
    pub(crate) fn afters(&self, own: &Own) -> (Vec<u8>, Vec<u8>) {
        let lease = &own.key[self.line.len()..];
        let first = [&self.line[..], AFTER.as_bytes(), lease, b":"].concat();
        let end = end_of(&first);
        (first, end)
    }

    /// All keys of the line that shut it, or may once another is gone.
    pub(crate) fn shutters(&self) -> (Vec<u8>, Vec<u8>) {
        let first = [&self.line[..], b"+"].concat();
        let end = end_of(&first);
        (first, end)
    }

    pub(crate) fn is_member(&self, key: &[u8]) -> bool {
        if fault!("etcd_lines_nest") {
            return key.starts_with(&self.line);
        }
        key.strip_prefix(&self.line[..]).is_some_and(is_lease)
    }
}

/// The keys of all lines under a prefix: from the first up to, and without, the second.
pub(crate) fn all_lines(prefix: &str) -> (Vec<u8>, Vec<u8>) {
    (prefix.as_bytes().to_vec(), format!("{prefix}~").into_bytes())
}

/// The keys of all lines whose names start so.
pub(crate) fn lines_from(prefix: &str, start: &str) -> (Vec<u8>, Vec<u8>) {
    if start.is_empty() {
        return all_lines(prefix);
    }
    let first = format!("{prefix}{}", escape(start)).into_bytes();
    let end = end_of(&first);
    (first, end)
}

/// The name whose line this key stands in, as a member or as a closure.
pub(crate) fn name_of(prefix: &str, key: &[u8]) -> Option<LockName> {
    let line = line_of(prefix, key)?;
    if !is_lease(&key[line.len()..]) && shuts(line, key).is_none() {
        return None;
    }
    let name = line.strip_prefix(prefix.as_bytes())?.strip_suffix(b"/")?;
    LockName::parse(&percent_decode(name).decode_utf8().ok()?).ok()
}

/// The line that a key stands in.
pub(crate) fn line_of<'a>(prefix: &str, key: &'a [u8]) -> Option<&'a [u8]> {
    let rest = key.strip_prefix(prefix.as_bytes())?;
    let slash = rest.iter().position(|byte| *byte == b'/')?;
    key.get(..prefix.len() + slash + 1)
}

/// Whether this key shuts its line: always, or only once the key is gone that is answered.
pub(crate) fn shuts(line: &[u8], key: &[u8]) -> Option<Option<Vec<u8>>> {
    let stands = key.strip_prefix(line)?;
    if stands == SHUT.as_bytes() {
        return Some(None);
    }
    let of = stands.strip_prefix(AFTER.as_bytes())?.split(|byte| *byte == b':').next()?;
    Some(Some([line, of].concat()))
}

/// The key of a mark, or of all marks of a kind and name.
pub(crate) fn mark(prefix: &str, kind: MarkKind, name: &LockName, key: Option<&str>) -> Vec<u8> {
    let key = key.map(escape).unwrap_or_default();
    format!("{prefix}{MARK}{}/{}/{key}", kind.word(), escape(name.as_str())).into_bytes()
}

/// Before the records of a name, or of all.
pub(crate) fn records(prefix: &str, name: Option<&LockName>) -> Vec<u8> {
    match name {
        Some(name) => format!("{prefix}{RECORD}{}/", escape(name.as_str())).into_bytes(),
        None => format!("{prefix}{RECORD}").into_bytes(),
    }
}

pub(crate) fn escape(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// The first key that does not start so.
pub(crate) fn end_of(start: &[u8]) -> Vec<u8> {
    let mut end = start.to_vec();
    while let Some(last) = end.last_mut() {
        if *last < u8::MAX {
            *last += 1;
            return end;
        }
        end.pop();
    }
    // All keys: there is no first one that does not.
    vec![0]
}

/// Whether this is how clients of etcd write the id of a lease: hexadecimal, lower case, without padding.
fn is_lease(text: &[u8]) -> bool {
    let hex = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    (1..=16).contains(&text.len()) && text.iter().all(hex)
}

pub(crate) fn hex(id: ClaimId) -> String {
    format!("{:032x}", u128::from_be_bytes(id.to_bytes()))
}

/// A lease's id: 63 bits that depend on all of the name and the claim, so that two names never share a lease.
fn lease(line: &[u8], id: ClaimId, purpose: u64) -> i64 {
    let id = u128::from_be_bytes(id.to_bytes());
    let mut mixed = line.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    for part in [(id >> 64) as u64, id as u64, purpose] {
        mixed = mix(mixed ^ part);
    }
    i64::try_from(mixed >> 1).unwrap_or(1).max(1)
}

/// The finaliser of splitmix64: each bit of what comes out depends on each that goes in.
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> LockName {
        LockName::parse(text).unwrap()
    }

    fn keys(text: &str) -> Keys {
        Keys::of("lock/", &name(text))
    }

    #[test]
    fn a_plain_name_is_its_own_key_and_nothing_nests() {
        assert_eq!(keys("order:10017").line, b"lock/order:10017/");
        assert_eq!(keys("order:10017").end, b"lock/order:100170");
        assert_eq!(keys("a/b").line, b"lock/a%2Fb/");
        let member = keys("a/b").own(ClaimId::from_bytes([7; 16])).key;
        assert!(keys("a/b").is_member(&member) && !keys("a").is_member(&member));
        assert!(!(keys("a").line..keys("a").end).contains(&member));
        // What other tools nest in a line is none of ours.
        assert!(!keys("a").is_member(b"lock/a/b/694d7a"));
        assert!(keys("a").is_member(b"lock/a/694d7a"));
    }

    #[test]
    fn names_come_back_from_their_keys_and_no_two_are_one() {
        let mut seen = std::collections::HashSet::new();
        for text in ["a", "a/b", "a%2Fb", "+shut/a", "~", "~spent/a", "é", "A", "a:", " ", "%", "lh:x"] {
            let keys = keys(text);
            for key in [keys.own(ClaimId::from_bytes([1; 16])).key, keys.shut.clone()] {
                assert_eq!(name_of("lock/", &key), Some(name(text)), "{text}");
                let (first, end) = all_lines("lock/");
                assert!(first <= key && key < end, "{text} is not seen");
            }
            assert!(seen.insert(keys.line));
        }
        assert_eq!(name_of("lock/", &keys("a").own(ClaimId::from_bytes([1; 16])).spent), None);
    }

    #[test]
    fn leases_are_positive_and_belong_to_one_claim_of_one_name() {
        let mut seen = std::collections::HashSet::new();
        for text in ["a", "b"] {
            for id in 0..100_u128 {
                let own = keys(text).own(ClaimId::from_bytes(id.to_be_bytes()));
                assert!(own.lease > 0 && own.place > 0);
                assert!(seen.insert(own.lease) && seen.insert(own.place));
            }
        }
    }
}
