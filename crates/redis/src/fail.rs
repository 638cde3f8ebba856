//! What went wrong with the server, before it is known for whom.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Effect, Error, LockName, Op, StoreError, StoreErrorKind};
use redis::{ErrorKind, RedisError};

use crate::trust;

/// A failure without its operation, its lock and its store, which only the caller knows.
#[derive(Debug, Clone)]
pub(crate) struct Fail {
    kind: StoreErrorKind,
    message: String,
    help: Option<String>,
    effect: Effect,
    /// What the server called it.
    word: Option<String>,
    /// Which slot of a cluster is elsewhere, and where, as the server wrote it.
    elsewhere: Option<Box<(u16, String)>>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

pub(crate) type Result<T, E = Fail> = std::result::Result<T, E>;

/// What is said of an error, by its first word.
struct Said {
    word: &'static str,
    kind: StoreErrorKind,
    message: &'static str,
    help: &'static str,
}

const SAID: &[Said] = &[
    Said {
        word: "READONLY",
        kind: StoreErrorKind::Unavailable,
        message: "this server is a replica, or became one",
        help: "name the master in the URL, or let Sentinel find it: redis+sentinel:",
    },
    Said {
        word: "LOADING",
        kind: StoreErrorKind::Unavailable,
        message: "the server is still loading its data",
        help: "it answers once that is done",
    },
    Said {
        word: "BUSY",
        kind: StoreErrorKind::Unavailable,
        message: "a script of somebody keeps the server from everything else",
        help: "`redis-cli SCRIPT KILL` ends one that has written nothing yet",
    },
    Said {
        word: "OOM",
        kind: StoreErrorKind::Full,
        message: "the server is at its maxmemory and takes no more data",
        help: "give it more memory; what is held can still be renewed and released",
    },
    Said {
        word: "MISCONF",
        kind: StoreErrorKind::Unavailable,
        message: "the server refuses to write because it cannot save its data",
        help: "its log says why BGSAVE fails: often a full disk, or a directory it may not write to",
    },
    Said {
        word: "NOREPLICAS",
        kind: StoreErrorKind::Unavailable,
        message: "the server refuses to write because too few replicas are connected (min-replicas-to-write)",
        help: "look at its replicas: `redis-cli INFO replication`",
    },
    Said {
        word: "MASTERDOWN",
        kind: StoreErrorKind::Unavailable,
        message: "this server is a replica that has lost its master",
        help: "name the master in the URL, or let Sentinel find it: redis+sentinel:",
    },
    Said {
        word: "NOPERM",
        kind: StoreErrorKind::Denied,
        message: "the user may not do this",
        help: "docs/design/redis.md lists the least rights; `redis-cli ACL LOG` says what was refused",
    },
    Said {
        word: "WRONGPASS",
        kind: StoreErrorKind::Denied,
        message: "the user or the password is wrong, or the user is disabled",
        help: "check user and password: redis://user@host?password_file=/path",
    },
    Said {
        word: "NOAUTH",
        kind: StoreErrorKind::Denied,
        message: "the server wants a password",
        help: "add it to the URL: redis://user@host?password_file=/path",
    },
    Said {
        word: "MOVED",
        kind: StoreErrorKind::Protocol,
        message: "this server is a node of a Redis Cluster",
        help: "write redis+cluster: in the URL",
    },
    Said {
        // The counter of tokens is in another slot than nearly every name.
        word: "CROSSSLOT",
        kind: StoreErrorKind::Protocol,
        message: "this server is a node of a Redis Cluster",
        help: "write redis+cluster: in the URL",
    },
    Said {
        word: "ASK",
        kind: StoreErrorKind::Protocol,
        message: "this server is a node of a Redis Cluster",
        help: "write redis+cluster: in the URL",
    },
    Said {
        word: "TRYAGAIN",
        kind: StoreErrorKind::Unavailable,
        message: "the slot of this name is being moved to another node of the cluster",
        help: "it goes on once the slot has been moved; `redis-cli --cluster fix` ends a move that was left half done",
    },
    Said {
        word: "CLUSTERDOWN",
        kind: StoreErrorKind::Unavailable,
        message: "this server is a node of a Redis Cluster that is down",
        help: "look at `redis-cli CLUSTER INFO`",
    },
];

impl Fail {
    pub(crate) fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        let (message, effect) = (message.into(), Effect::None);
        Self { kind, message, help: None, effect, word: None, elsewhere: None, source: None }
    }

    /// Something else lives under the key of a name.
    pub(crate) fn foreign(plain: &str, kind: &str) -> Self {
        let whose = match kind {
            "hash" => "a hash, as Redisson keeps its locks",
            "zset" => "a sorted set, as Symfony and semaphores of .NET keep theirs",
            "list" => "a list",
            "set" => "a set",
            _ => "no text",
        };
        Self::new(
            StoreErrorKind::Protocol,
            format!("the key {plain} is {whose}: it is not ours, and left alone"),
        )
        .help("use another name, or another prefix= in the URL")
    }

    /// The server answered what we do not understand.
    pub(crate) fn garbled(what: &str) -> Self {
        Self::new(StoreErrorKind::Unexpected, format!("the server's answer is not understood: {what}"))
            .unknown()
    }

    /// What the server or the connection to it said.
    pub(crate) fn from_redis(error: &RedisError) -> Self {
        let told = error.to_string();
        let word = error.code().map(str::to_owned);
        // Up to version 6 the error of a script stands behind the script's own.
        let inner = |said: &&Said| told.contains(&format!("-{} ", said.word));
        let by_word = |said: &&Said| word.as_deref() == Some(said.word);
        let said = SAID.iter().find(by_word).or_else(|| SAID.iter().find(inner));
        if let Some(trust::Said { kind, message, help }) = trust::said(error) {
            // It may come after the first request, which was not heard then.
            return Self {
                source: Some(Arc::new(error.clone())),
                ..Self::new(kind, message).help(help).unknown()
            };
        }
        let fail = match said {
            Some(said) => Self::new(said.kind, said.message).help(said.help),
            None if error.kind() == ErrorKind::AuthenticationFailed => {
                Self::new(StoreErrorKind::Denied, "the server refused user and password")
                    .help("check user and password: redis://user@host?password_file=/path")
            }
            // What speaks TLS, or HTTP, to whom no request was ever one.
            None if error.kind() == ErrorKind::Parse => {
                Self::new(StoreErrorKind::Protocol, "what answers there does not speak as a Redis does")
                    .help("check host and port; one that wants TLS needs rediss:// in the URL")
                    .unknown()
            }
            None if error.kind() == ErrorKind::InvalidClientConfig => {
                Self::new(StoreErrorKind::Unexpected, told.clone())
            }
            None if error.is_io_error() || error.is_connection_dropped() || error.is_timeout() => {
                Self::new(StoreErrorKind::Unavailable, format!("the connection failed: {told}")).unknown()
            }
            None if told.contains("max number of clients") => {
                Self::new(StoreErrorKind::Unavailable, "the server has too many clients")
                    .help("raise its maxclients")
            }
            None => Self::new(StoreErrorKind::Unexpected, told.clone()),
        };
        let word = said.map(|said| said.word.to_owned()).or(word);
        let elsewhere = error.redirect_node().map(|(node, slot)| Box::new((slot, node.to_owned())));
        Self { word, elsewhere, source: Some(Arc::new(error.clone())), ..fail }
    }

    /// A slot of a cluster is on its way from one node to another for longer than anybody waits.
    pub(crate) fn in_two_places(slot: u16, waited: Duration) -> Self {
        let message = format!("slot {slot} is being moved, and was not in one place within {waited:?}");
        Self::new(StoreErrorKind::Unavailable, message).help(
            "it goes on once the slot has been moved; `redis-cli --cluster fix` ends a move that was left half done",
        )
    }

    /// What a server says to a question about its cluster.
    pub(crate) fn no_cluster(self) -> Self {
        if self.tells("cluster support disabled") {
            let message = "this server is no node of a Redis Cluster";
            return Self::new(StoreErrorKind::Protocol, message).help("write redis: in the URL");
        }
        self
    }

    /// With what was said before it.
    pub(crate) fn after(mut self, other: Self) -> Self {
        self.message = format!("{}; {}", self.message, other.message);
        self
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// What the server would have called it.
    pub(crate) fn word(mut self, word: &str) -> Self {
        self.word = Some(word.to_owned());
        self
    }

    /// Says which server it was, where the name of the store does not.
    pub(crate) fn at(mut self, server: &impl std::fmt::Display) -> Self {
        self.message = format!("{} (at {server})", self.message);
        self
    }

    /// What happened, for a list of failures.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// It may have been done all the same.
    pub(crate) fn unknown(mut self) -> Self {
        self.effect = Effect::Unknown;
        self
    }

    /// It was certainly not done: nothing was sent.
    pub(crate) fn not_sent(mut self) -> Self {
        self.effect = Effect::None;
        self
    }

    pub(crate) fn outcome_unknown(&self) -> bool {
        self.effect == Effect::Unknown
    }

    pub(crate) fn has_help(&self) -> bool {
        self.help.is_some()
    }

    /// Whether a right is missing for a key, rather than for a command.
    pub(crate) fn tells_of_a_key(&self) -> bool {
        self.tells("permissions to access")
    }

    /// Which slot of a cluster is elsewhere, and where, as the server wrote it.
    pub(crate) fn elsewhere(&self) -> Option<(u16, &str)> {
        self.elsewhere.as_deref().map(|(slot, node)| (*slot, node.as_str()))
    }

    /// The server, or the way to it, may be there again later.
    pub(crate) fn is_away(&self) -> bool {
        self.kind == StoreErrorKind::Unavailable
    }

    /// Whether a script met, in a slot that is being moved, a key that is gone from here already. Its first steps only
    /// drop what has run out, so nothing was done that counts.
    pub(crate) fn is_half_moved(&self) -> bool {
        self.tells("non local key")
    }

    /// Whether this server has no such command.
    pub(crate) fn is_unknown_command(&self) -> bool {
        self.tells("unknown command")
    }

    /// Whether it said so.
    fn tells(&self, words: &str) -> bool {
        let source = self.source.as_ref().map(ToString::to_string);
        source.is_some_and(|told| told.contains(words))
    }

    /// Whether the server called it so.
    pub(crate) fn is(&self, word: &str) -> bool {
        self.word.as_deref() == Some(word)
    }

    pub(crate) fn into_error(self, op: Op, name: Option<&LockName>, store: &str) -> Error {
        let Self { kind, message, help, effect, word: _, elsewhere: _, source } = self;
        let mut error = StoreError::new(kind, op, store).saying(message);
        error.name = name.cloned();
        error.effect = effect;
        error.help = help;
        error.source = source;
        error.into()
    }
}

impl From<RedisError> for Fail {
    fn from(error: RedisError) -> Self {
        Self::from_redis(&error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(word: &str, detail: &str) -> Fail {
        Fail::from_redis(&redis::make_extension_error(word.to_owned(), Some(detail.to_owned())))
    }

    #[test]
    fn each_refusal_has_its_kind_and_says_what_to_do() {
        for said in SAID {
            let fail = told(said.word, "some detail");
            assert_eq!((fail.kind, fail.effect), (said.kind, Effect::None), "{}", said.word);
            assert!(fail.help.is_some());
        }
    }

    #[test]
    fn an_error_inside_a_script_of_an_old_server_is_recognised() {
        let fail = told(
            "ERR",
            "Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command not allowed",
        );
        assert_eq!(fail.kind, StoreErrorKind::Full);
        assert!(fail.is("OOM"));
    }
}
