//! The numbers under which `leasehold explain` tells more of an error.

use std::fmt;

/// The number of an error: `LH0004`. Stable, and the same in the command, the library and the service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(u16);

macro_rules! codes {
    ($($(#[$doc:meta])+ $name:ident = $number:literal;)+) => {
        impl Code {
            $($(#[$doc])+ pub const $name: Self = Self($number);)+

            /// All of them, by number.
            pub const ALL: &[Self] = &[$(Self::$name),+];
        }
    };
}

codes! {
    /// A flag that does not exist.
    FLAG = 1;
    /// No `--` before the command.
    DASHES = 2;
    /// A duration without a unit, or none at all.
    DURATION = 3;
    /// A text that is not a lock name.
    NAME = 4;
    /// A value that an option does not take.
    VALUE = 5;
    /// Somebody else has it.
    BUSY = 11;
    /// Somebody else still has it at the end of the wait.
    TIMED_OUT = 12;
    /// The lease was lost.
    LOST = 31;
    /// The command could not be started.
    NOT_STARTED = 41;
    /// A `run` around this one holds the same lock.
    NESTED = 42;
    /// A scope that holds part of a name and asks for more of it.
    GROW = 43;
    /// Nobody has finished well for too long.
    OVERDUE = 51;
    /// A token that is not the holder's any more.
    STALE_TOKEN = 61;
    /// The configuration file cannot be used.
    CONFIG = 80;
    /// A configuration file with a password that others can read.
    READABLE_SECRET = 81;
    /// The store cannot be reached.
    UNREACHABLE = 101;
    /// A store URL that cannot be used.
    URL = 102;
    /// The store refused us.
    DENIED = 103;
    /// Too few nodes of a quorum answered.
    QUORUM = 110;
    /// The store cannot do what was asked.
    UNSUPPORTED = 111;
    /// Something else lives under our key or in our file.
    FOREIGN = 120;
    /// A database file on a file system that cannot keep locks.
    NETWORK_FILE = 121;
    /// A database file of a newer version.
    NEWER_SCHEMA = 122;
    /// A damaged database file.
    CORRUPT = 123;
    /// No space, or no room for another file.
    FULL = 124;
    /// The database file was replaced or restored while in use.
    REPLACED = 125;
    /// The database file is another machine's.
    OTHER_MACHINE = 126;
    /// The store locks less widely than was asked.
    SCOPE = 130;
    /// Two users of one name disagree about it, such as on the number of its slots.
    DISAGREES = 132;
    /// A client that was made before a fork.
    FORKED = 140;
    /// A right that locks need is missing.
    RIGHTS = 201;
    /// The clocks of this host and of the store are far apart.
    CLOCKS = 202;
    /// The store may drop a lock that is held.
    EVICTION = 203;
    /// What is held does not outlive a restart of the store.
    VOLATILE = 204;
    /// A ttl that is short for the way to the store.
    SHORT_TTL = 205;
    /// The lock of another client that never ends by itself.
    LEAKED = 206;
    /// A copy may take over that does not have all locks.
    FAILOVER = 207;
    /// Two names in use that differ only by case.
    LETTER_CASE = 208;
    /// A password that goes over the wire in clear.
    CLEARTEXT = 211;
    /// A defect of Leasehold's own.
    BUG = 999;
}

impl Code {
    /// The number alone.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Finds a code by what people type: `LH0031`, `lh31` or `31`.
    #[must_use]
    pub fn find(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("LH").or_else(|| text.strip_prefix("lh")).unwrap_or(text);
        let number = digits.parse().ok()?;
        Self::ALL.iter().copied().find(|code| code.0 == number)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LH{:04}", self.0)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_found_as_people_type_them_and_none_is_used_twice() {
        assert_eq!(Code::find("LH0031"), Some(Code::LOST));
        assert_eq!(Code::find("lh31"), Some(Code::LOST));
        assert_eq!(Code::find("31"), Some(Code::LOST));
        assert_eq!(Code::find("LHx"), None);
        assert_eq!(Code::LOST.to_string(), "LH0031");
        assert!(Code::ALL.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
