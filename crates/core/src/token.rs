//! The fencing token, and the cursor from which a wait goes on.

use std::fmt;

use bytes::Bytes;

/// Tokens stay below this, so that they survive JSON, JavaScript and Lua.
const LIMIT: u64 = 1 << 53;

/// A fencing token: it rises strictly with each grant of a name, and is below 2^53.
///
/// Send it with every write, and let the resource refuse a smaller one than it has seen: that is what protects
/// data when a holder was paused beyond its lease (Kleppmann, *How to do distributed locking*, 2016).
///
/// ```
/// use leasehold_core::Token;
///
/// let (old, new) = (Token::new(41).unwrap(), Token::new(42).unwrap());
/// assert!(old < new);
/// assert_eq!(new.as_i64(), 42);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// A token of this number; `None` for zero and from 2^53 on.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        if number == 0 || number >= LIMIT { None } else { Some(Self(number)) }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number as databases bind it. It never wraps, since tokens stay below 2^53.
    #[must_use]
    pub const fn as_i64(self) -> i64 {
        self.0 as i64
    }

    /// The token `steps` after this one; `None` past the end of the scale.
    #[must_use]
    pub const fn after(self, steps: u32) -> Option<Self> {
        Self::new(self.0 + steps as u64)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.0)
    }
}

/// What a wait goes on from: opaque, made by a store, and understood only by the store that made it.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Cursor(Bytes);

impl Cursor {
    /// Wraps what a store wants to find again in [`Store::changed`](crate::Store::changed).
    #[must_use]
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// What the store put in.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Cursor {
    /// A cursor may name a claim id, which is a secret: only its length is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_stay_inside_what_json_can_carry() {
        assert_eq!(Token::new(0), None);
        assert_eq!(Token::new(1 << 53), None);
        let last = Token::new((1 << 53) - 1).unwrap();
        assert_eq!(last.after(1), None);
        assert_eq!(last.as_i64(), (1 << 53) - 1);
    }

    #[test]
    fn a_cursor_does_not_print_what_is_in_it() {
        assert_eq!(format!("{:?}", Cursor::new(vec![1, 2, 3])), "Cursor(3 bytes)");
    }
}
