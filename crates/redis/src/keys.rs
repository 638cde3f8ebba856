//! Which keys belong to a name: all in one hash slot, whatever braces the name has.

use std::sync::OnceLock;

use leasehold_core::{ClaimId, Code, ConfigError, LockName, Result};

/// The one counter behind all tokens of a server.
pub(crate) const TOKENS: &str = "leasehold:tokens";
/// How many slots a cluster has.
pub(crate) const SLOTS: usize = 16_384;

/// The keys of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keys {
    /// The plain key, which other clients know.
    pub(crate) plain: String,
    /// How all others start.
    pub(crate) base: String,
}

impl Keys {
    /// The keys of this name.
    ///
    /// # Errors
    ///
    /// When the plain key would be one of our others.
    pub(crate) fn of(prefix: &str, name: &LockName) -> Result<Self> {
        let plain = format!("{prefix}{name}");
        if plain.starts_with("lh:{") || plain.starts_with("leasehold:") {
            let message = format!("{name} with the prefix {prefix:?} would be a key of Leasehold's own");
            return Err(ConfigError::new(message)
                .code(Code::NAME)
                .help("choose another name, or a prefix")
                .into());
        }
        let base = match (plain.contains(['{', '}']), tag(&plain)) {
            (false, _) => format!("lh:{{{plain}}}"),
            (true, Some(tag)) => format!("lh:{{{tag}}}{plain}"),
            // No part of it can be a tag, so one that falls into the same slot stands before it.
            (true, None) => format!("lh:{{{}}}{plain}", tag_for(slot(&plain))),
        };
        Ok(Self { plain, base })
    }

    /// The plain key and those of the line: places, holders, deadlines, and all else.
    pub(crate) fn line(&self) -> [String; 5] {
        let Self { plain, base } = self;
        [plain.clone(), format!("{base}:p"), format!("{base}:h"), format!("{base}:u"), format!("{base}:i")]
    }

    /// Where it is remembered that this claim was granted, or has ended.
    pub(crate) fn tombstone(&self, id: ClaimId) -> String {
        format!("{}:x:{}", self.base, hex(id))
    }

    /// The counter behind the tokens: the server's, or that of this slot of a cluster.
    pub(crate) fn tokens(&self, slot: Option<u16>) -> String {
        slot.map_or_else(|| TOKENS.to_owned(), |slot| format!("leasehold:{{{}}}:tokens", tag_for(slot)))
    }

    /// The counter that proposed tokens are held against.
    pub(crate) fn proposals(&self) -> String {
        format!("{}:t", self.base)
    }

    /// Where marks of this kind are.
    pub(crate) fn marks(&self, kind: &str) -> String {
        format!("{}:m:{kind}", self.base)
    }
}

/// The plain key whose line this key keeps.
pub(crate) fn plain_of(info: &str) -> Option<&str> {
    let (tag, rest) = info.strip_prefix("lh:{")?.split_once('}')?;
    let plain = rest.strip_suffix(":i")?;
    Some(if plain.is_empty() { tag } else { plain })
}

/// An id as it is written.
pub(crate) fn hex(id: ClaimId) -> String {
    format!("{:032x}", u128::from_be_bytes(id.to_bytes()))
}

/// The id that was written so.
pub(crate) fn id_of(hex: &str) -> Option<ClaimId> {
    let number = (hex.len() == 32).then(|| u128::from_str_radix(hex, 16).ok()).flatten()?;
    Some(ClaimId::from_bytes(number.to_be_bytes()))
}

/// The part of a key that alone chooses its slot, if it has one.
fn tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// The slot of a cluster that this key falls into.
pub(crate) fn slot(key: &str) -> u16 {
    crc16(tag(key).unwrap_or(key).as_bytes()) % SLOTS as u16
}

/// CRC16 as clusters use it (XMODEM).
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |mut crc, byte| {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
        }
        crc
    })
}

/// A short tag that falls into this slot. The table is made when first needed, which is hardly ever.
pub(crate) fn tag_for(slot: u16) -> u32 {
    static TAGS: OnceLock<Vec<u32>> = OnceLock::new();
    let tags = TAGS.get_or_init(|| {
        let mut tags = vec![0; SLOTS];
        let mut left = SLOTS;
        for number in 1.. {
            let slot = usize::from(crc16(number.to_string().as_bytes())) % SLOTS;
            if tags[slot] == 0 {
                tags[slot] = number;
                left -= 1;
            }
            if left == 0 {
                break;
            }
        }
        tags
    });
    tags[usize::from(slot)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(prefix: &str, name: &str) -> Keys {
        Keys::of(prefix, &LockName::parse(name).unwrap()).unwrap()
    }

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot("foo{bar}zap"), slot("bar"));
        assert_eq!(slot("foo{}{bar}"), crc16(b"foo{}{bar}") % 16_384);
        assert_eq!(slot("foo{{bar}}zap"), slot("{bar"));
    }

    #[test]
    fn all_keys_of_a_name_share_its_slot_whatever_braces_it_has() {
        for (prefix, name) in [
            ("lock:", "report:daily"),
            ("lock:", "a}b"),
            ("lock:", "a{b"),
            ("lock:", "{}x"),
            ("lock:", "a}b{c}d"),
            ("app:{shop}:", "order"),
            ("", "ü{ü}ü"),
            ("{", "x"),
            ("}", "{{"),
        ] {
            let keys = keys(prefix, name);
            let id = ClaimId::from_bytes([7; 16]);
            let all = keys.line().into_iter().chain([keys.tombstone(id), keys.marks("once")]);
            let slots: Vec<u16> = all.map(|key| slot(&key)).collect();
            assert!(slots.iter().all(|one| *one == slots[0]), "{keys:?}: {slots:?}");
            assert_eq!(plain_of(&keys.line()[4]), Some(keys.plain.as_str()));
        }
    }

    #[test]
    fn two_names_never_share_a_key() {
        assert_ne!(keys("", "a{x}").base, keys("", "b{x}").base);
        assert_eq!(keys("lock:", "x").base, "lh:{lock:x}");
    }

    #[test]
    fn a_name_cannot_be_one_of_our_own_keys() {
        for (prefix, name) in [("", "leasehold:tokens"), ("", "lh:{a}:i"), ("lh:", "{a}:p")] {
            let name = LockName::parse(name).unwrap();
            assert_eq!(Keys::of(prefix, &name).unwrap_err().code(), Code::NAME);
        }
    }

    #[test]
    fn an_id_is_written_and_read() {
        let id = ClaimId::random().unwrap();
        assert_eq!(id_of(&hex(id)), Some(id));
        assert_eq!(id_of("12"), None);
        assert_eq!(id_of(&"+".repeat(32)), None);
    }
}
