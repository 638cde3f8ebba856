//! What went wrong with the cluster, before it is known for whom.

use std::error::Error as StdError;
use std::sync::Arc;

use leasehold_core::{Effect, Error, LockName, Op, StoreError, StoreErrorKind};
use tonic::Status;

/// A failure without its operation, its lock and its store, which only the caller knows.
#[derive(Debug, Clone)]
pub(crate) struct Fail {
    kind: StoreErrorKind,
    message: String,
    help: Option<&'static str>,
    effect: Effect,
    what: What,
    source: Option<Arc<Status>>,
}

pub(crate) type Result<T, E = Fail> = std::result::Result<T, E>;

/// What the caller may have to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// Nothing but to tell.
    Final,
    /// Another member may answer.
    Away,
    /// Nobody was reached: nothing was sent.
    Unreached,
    /// The login has run out.
    Login,
    /// There is no such lease.
    NoLease,
    /// There is such a lease already.
    LeaseExists,
    /// What was seen before is forgotten.
    Compacted,
}

/// What is said of an error, by what the server's message has in it.
struct Said {
    words: &'static str,
    kind: StoreErrorKind,
    what: What,
    effect: Effect,
    message: &'static str,
    help: &'static str,
}

const NONE: Effect = Effect::None;
const UNKNOWN: Effect = Effect::Unknown;

const SAID: &[Said] = &[
    Said {
        words: "database space exceeded",
        kind: StoreErrorKind::Full,
        what: What::Final,
        effect: NONE,
        message: "the cluster has no space left (NOSPACE alarm)",
        help: "compact and defragment it, then `etcdctl alarm disarm`; what is held can still be released",
    },
    Said {
        words: "too many requests",
        kind: StoreErrorKind::Unavailable,
        what: What::Final,
        effect: NONE,
        message: "the cluster has too many requests to do",
        help: "it answers once it has caught up; look at its disk",
    },
    Said {
        words: "no leader",
        kind: StoreErrorKind::Unavailable,
        what: What::Away,
        effect: UNKNOWN,
        message: "this member has no leader",
        help: "most members must be up and reach each other: `etcdctl endpoint status --cluster`",
    },
    Said {
        words: "leader changed",
        kind: StoreErrorKind::Unavailable,
        what: What::Away,
        effect: UNKNOWN,
        message: "the leader changed",
        help: "it answers once there is a new one",
    },
    Said {
        words: "request timed out",
        kind: StoreErrorKind::Unavailable,
        what: What::Away,
        effect: UNKNOWN,
        message: "the members did not agree in time",
        help: "most members must be up and reach each other: `etcdctl endpoint status --cluster`",
    },
    Said {
        words: "stopped",
        kind: StoreErrorKind::Unavailable,
        what: What::Away,
        effect: UNKNOWN,
        message: "this member is shutting down",
        help: "name the other members in the URL as well",
    },
    Said {
        words: "rpc not supported for learner",
        kind: StoreErrorKind::Unavailable,
        what: What::Away,
        effect: NONE,
        message: "this member only learns",
        help: "name members that vote in the URL",
    },
    Said {
        words: "requested lease not found",
        kind: StoreErrorKind::Unavailable,
        what: What::NoLease,
        effect: NONE,
        message: "a lease ran out meanwhile",
        help: "ask again",
    },
    Said {
        words: "lease already exists",
        kind: StoreErrorKind::Protocol,
        what: What::LeaseExists,
        effect: NONE,
        message: "a lease of that number exists",
        help: "ask again",
    },
    Said {
        words: "required revision has been compacted",
        kind: StoreErrorKind::Unavailable,
        what: What::Compacted,
        effect: NONE,
        message: "what was seen before is forgotten (compaction)",
        help: "ask again",
    },
    Said {
        words: "invalid auth token",
        kind: StoreErrorKind::Denied,
        what: What::Login,
        effect: NONE,
        message: "the login has run out",
        help: "check user and password: etcd://user@host?password_file=/path",
    },
    Said {
        words: "revision of auth store is old",
        kind: StoreErrorKind::Denied,
        what: What::Login,
        effect: NONE,
        message: "users or roles were changed meanwhile",
        help: "check user and password: etcd://user@host?password_file=/path",
    },
    Said {
        words: "user name is empty",
        kind: StoreErrorKind::Denied,
        what: What::Login,
        effect: NONE,
        message: "the cluster wants a user and a password",
        help: "add them to the URL: etcd://user@host?password_file=/path",
    },
    Said {
        words: "authentication failed",
        kind: StoreErrorKind::Denied,
        what: What::Final,
        effect: NONE,
        message: "the cluster refused user and password",
        help: "check user and password: etcd://user@host?password_file=/path",
    },
    Said {
        words: "permission denied",
        kind: StoreErrorKind::Denied,
        what: What::Final,
        effect: NONE,
        message: "the user may not do this",
        help: "docs/design/etcd.md lists the least rights",
    },
    Said {
        words: "too many operations",
        kind: StoreErrorKind::Protocol,
        what: What::Final,
        effect: NONE,
        message: "the request has too many steps for this cluster",
        help: "raise its --max-txn-ops",
    },
];

impl Fail {
    pub(crate) fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { kind, message, help: None, effect: NONE, what: What::Final, source: None }
    }

    /// The server answered what we do not understand.
    pub(crate) fn garbled(what: &str) -> Self {
        Self::new(StoreErrorKind::Unexpected, format!("the answer of the cluster is not understood: {what}"))
            .unknown()
    }

    /// No answer came in time.
    pub(crate) fn silent(place: &str) -> Self {
        let message = format!("{place} did not answer in time");
        Self { what: What::Away, ..Self::new(StoreErrorKind::Unavailable, message) }
            .help("check that most members are up, and the network to them")
            .unknown()
    }

    /// What a member said, or the connection to it.
    pub(crate) fn from_status(status: &Status, place: &str) -> Self {
        let told = status.message();
        let said = SAID.iter().find(|said| told.contains(said.words));
        let source = Some(Arc::new(status.clone()));
        // Servers say who they are in what they refuse; anything else comes from the way to them.
        if let Some(said) = said {
            return Self {
                kind: said.kind,
                message: said.message.to_owned(),
                help: Some(said.help),
                effect: said.effect,
                what: said.what,
                source,
            };
        }
        if told.starts_with("etcdserver:") {
            return Self { source, ..Self::new(StoreErrorKind::Unexpected, told) }.unknown();
        }
        let away = Self {
            source,
            what: What::Away,
            ..Self::new(StoreErrorKind::Unavailable, format!("{place}: {}", innermost(status)))
        };
        let away = away
            .help("check hosts and ports, and that most members are up; etcds:// if they want TLS")
            .unknown();
        if never_reached(status) { Self { what: What::Unreached, effect: NONE, ..away } } else { away }
    }

    pub(crate) fn help(mut self, help: &'static str) -> Self {
        self.help = Some(help);
        self
    }

    /// It may have been done all the same.
    pub(crate) fn unknown(mut self) -> Self {
        self.effect = UNKNOWN;
        self
    }

    pub(crate) fn what(&self) -> What {
        self.what
    }

    /// Whether the cluster has no space left.
    pub(crate) fn is_full(&self) -> bool {
        self.kind == StoreErrorKind::Full
    }

    pub(crate) fn is_unknown(&self) -> bool {
        self.effect == UNKNOWN
    }

    pub(crate) fn into_error(self, op: Op, name: Option<&LockName>, store: &str) -> Error {
        let Self { kind, message, help, effect, what: _, source } = self;
        let mut error = StoreError::new(kind, op, store).saying(message);
        error.name = name.cloned();
        error.effect = effect;
        error.help = help.map(str::to_owned);
        error.source = source.map(|status| status as Arc<dyn StdError + Send + Sync>);
        error.into()
    }
}

/// Whether no connection came about, so that nothing can have been sent.
fn never_reached(status: &Status) -> bool {
    let mut next = StdError::source(status);
    while let Some(error) = next {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        next = error.source();
    }
    false
}

fn innermost(status: &Status) -> String {
    let mut last: Option<String> = None;
    let mut next = StdError::source(status);
    while let Some(error) = next {
        last = Some(error.to_string());
        next = error.source();
    }
    last.unwrap_or_else(|| status.message().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[test]
    fn each_refusal_has_its_kind_and_says_what_to_do() {
        for said in SAID {
            let status = Status::new(Code::Unknown, format!("etcdserver: {}", said.words));
            let fail = Fail::from_status(&status, "e1:2379");
            assert_eq!((fail.kind, fail.what, fail.effect), (said.kind, said.what, said.effect));
            assert!(fail.help.is_some());
        }
    }

    #[test]
    fn what_the_way_says_leaves_the_outcome_unknown() {
        for code in [Code::Unknown, Code::Unavailable, Code::Cancelled, Code::DeadlineExceeded] {
            let fail = Fail::from_status(&Status::new(code, "transport error"), "e1:2379");
            assert_eq!((fail.what, fail.effect), (What::Away, Effect::Unknown));
        }
    }
}
