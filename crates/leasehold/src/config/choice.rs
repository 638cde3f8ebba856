//! Settings that are one of a few words: the same words in flags, in the file and in the environment.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use leasehold_core::{Code, ConfigError, Reach};
use serde::Deserialize;
use serde::de::{self, Deserializer};

use super::duration::{exact, parse_duration};

macro_rules! choices {
    ($($(#[$doc:meta])+ $name:ident { $($(#[$word_doc:meta])+ $variant:ident = $word:literal),+ $(,)? })+) => { $(
        $(#[$doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name { $($(#[$word_doc])+ $variant),+ }

        impl $name {
            /// All the words.
            pub const WORDS: &[&'static str] = &[$($word),+];

            /// As it is written.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl FromStr for $name {
            type Err = ConfigError;

            fn from_str(text: &str) -> Result<Self, ConfigError> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(not_a_choice(text, Self::WORDS)),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                from_text(deserializer)
            }
        }
    )+ };
}

choices! {
    /// What to do when somebody else has it.
    OnBusy {
        /// End well, in silence.
        Skip = "skip",
        /// End with exit code 75.
        Fail = "fail",
    }
    /// What to do when the store cannot be reached at the start.
    StoreDown {
        /// Do not run, and fail.
        Fail = "fail",
        /// Do not run, and end well.
        Skip = "skip",
        /// Run without a lock.
        Run = "run",
    }
    /// When the mark of a period is made.
    OnceAfter {
        /// When the command has ended well.
        Success = "success",
        /// Before the command starts.
        Start = "start",
    }
    /// What a command that failed leaves behind.
    OnFail {
        /// Keep others out as after a good end.
        Hold = "hold",
        /// Let another host try now.
        Release = "release",
    }
    /// What becomes of a command whose lease is lost.
    OnLost {
        /// It is asked to end, and then killed.
        Stop = "stop",
        /// It is killed at once.
        Kill = "kill",
        /// It goes on.
        Ignore = "ignore",
    }
    /// What becomes of the processes that a command leaves behind.
    Descendants {
        /// The lock is held until they have ended.
        Wait = "wait",
        /// The lock is given back.
        Release = "release",
        /// They are killed.
        Kill = "kill",
    }
    /// How widely a lock must exclude.
    Scope {
        /// All processes of this host.
        Host = "host",
        /// All hosts.
        Fleet = "fleet",
    }
}

impl Scope {
    /// The reach that a store must have.
    #[must_use]
    pub const fn reach(self) -> Reach {
        match self {
            Self::Host => Reach::Host,
            Self::Fleet => Reach::Fleet,
        }
    }

    /// Whether a store of this reach will do.
    ///
    /// # Errors
    ///
    /// Says which store locks less widely than was asked.
    pub fn check(self, reach: Reach, store: &str) -> Result<(), ConfigError> {
        if reach >= self.reach() {
            return Ok(());
        }
        let within = if reach == Reach::Process { "within one process" } else { "on this machine" };
        Err(ConfigError::new(format!("scope {self}: {store} locks {within} only"))
            .code(Code::SCOPE)
            .help("set LEASEHOLD_STORE to a store that all of them reach"))
    }
}

/// How long to wait in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wait {
    /// At most so long.
    For(Duration),
    /// Until it is granted.
    Forever,
}

impl FromStr for Wait {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        if text == "forever" { Ok(Self::Forever) } else { parse_duration(text).map(Self::For) }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For(duration) => f.write_str(&exact(*duration)),
            Self::Forever => f.write_str("forever"),
        }
    }
}

impl<'de> Deserialize<'de> for Wait {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

fn not_a_choice(text: &str, words: &[&str]) -> ConfigError {
    ConfigError::new(format!("{text:?} is not a choice")).code(Code::VALUE).help(match words {
        [first, last] => format!("write {first} or {last}"),
        [most @ .., last] => format!("write {} or {last}", most.join(", ")),
        [] => String::new(),
    })
}

fn from_text<'de, D: Deserializer<'de>, T: FromStr<Err = ConfigError>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|error: ConfigError| {
        let help = error.help.map_or_else(String::new, |help| format!("; {help}"));
        de::Error::custom(format!("{}{help}", error.message))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_go_both_ways_and_wrong_ones_list_the_right_ones() {
        assert_eq!("skip".parse::<OnBusy>().unwrap(), OnBusy::Skip);
        assert_eq!("forever".parse::<Wait>().unwrap(), Wait::Forever);
        assert_eq!(Wait::For(Duration::from_secs(90)).to_string(), "1m30s");
        let error = "maybe".parse::<StoreDown>().unwrap_err();
        assert_eq!(error.help.as_deref(), Some("write fail, skip or run"));
        assert!(Scope::Fleet.reach() > Scope::Host.reach());
    }
}
