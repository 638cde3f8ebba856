//! What went wrong with the servers, before it is known for whom.

use std::sync::Arc;

use leasehold_core::{Effect, Error, LockName, Op, StoreError, StoreErrorKind};

/// A failure without its operation, its lock and its store, which only the caller knows.
#[derive(Debug, Clone)]
pub(crate) struct Fail {
    kind: StoreErrorKind,
    message: String,
    help: Option<&'static str>,
    effect: Effect,
    source: Option<zookeeper_client::Error>,
}

pub(crate) type Result<T, E = Fail> = std::result::Result<T, E>;

const AWAY: &str = "check hosts and ports, and that most servers are up and reach each other";

impl Fail {
    pub(crate) fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), help: None, effect: Effect::None, source: None }
    }

    /// What a node of ours holds is not what we put there.
    pub(crate) fn garbled(what: &str) -> Self {
        Self::new(StoreErrorKind::Protocol, format!("{what} is not understood"))
            .help("another program, or a later version, writes below the same node")
    }

    /// No answer came in time.
    pub(crate) fn silent() -> Self {
        Self::new(StoreErrorKind::Unavailable, "no server answered in time").help(AWAY).unknown()
    }

    /// The line has more numbers than can be told apart.
    pub(crate) fn used_up(line: &str) -> Self {
        Self::new(StoreErrorKind::Full, format!("the numbers of {line} are used up"))
            .help("let everybody go, delete that node, and go on")
    }

    pub(crate) fn help(mut self, help: &'static str) -> Self {
        self.help = Some(help);
        self
    }

    /// It may have been done all the same.
    pub(crate) fn unknown(mut self) -> Self {
        self.effect = Effect::Unknown;
        self
    }

    /// It was certainly not done.
    pub(crate) fn known(mut self) -> Self {
        self.effect = Effect::None;
        self
    }

    pub(crate) fn into_error(self, op: Op, name: Option<&LockName>, store: &str) -> Error {
        let Self { kind, message, help, effect, source } = self;
        let mut error = StoreError::new(kind, op, store).saying(message);
        error.name = name.cloned();
        error.effect = effect;
        error.help = help.map(str::to_owned);
        error.source = source.map(|source| Arc::new(source) as Arc<dyn std::error::Error + Send + Sync>);
        error.into()
    }
}

impl From<zookeeper_client::Error> for Fail {
    fn from(error: zookeeper_client::Error) -> Self {
        use zookeeper_client::Error as E;
        let fail = match &error {
            E::NoAuth | E::InvalidAcl => Self::new(StoreErrorKind::Denied, "this login may not do that here")
                .help("name a login that may with auth_file=, or give it the rights cdrwa below the store's node"),
            E::AuthFailed => Self::new(StoreErrorKind::Denied, "the login was refused")
                .help("check what auth_file= names"),
            E::NotReadOnly => Self::new(StoreErrorKind::Unavailable, "this server only reads: it has no leader")
                .help(AWAY),
            E::QuotaExceeded => Self::new(StoreErrorKind::Full, "the quota of a node is used up")
                .help("raise it: `setquota` in zkCli.sh"),
            E::Throttled => Self::new(StoreErrorKind::Unavailable, "the server has too many requests to do"),
            E::NoHosts | E::Timeout => {
                Self::new(StoreErrorKind::Unavailable, "no server could be reached").help(AWAY)
            }
            E::SessionMoved => Self::new(StoreErrorKind::Unavailable, "the session is at another server now"),
            E::SessionExpired => Self::new(StoreErrorKind::Unavailable, "the session has run out"),
            E::ClientClosed => Self::new(StoreErrorKind::Unavailable, "the connection is closed"),
            E::ConnectionLoss | E::Custom(_) => {
                // Also how a server answers that has more to say than it may: it hangs up.
                Self::new(StoreErrorKind::Unavailable, "the connection to the server was lost").help(AWAY).unknown()
            }
            E::MarshallingError => Self::new(StoreErrorKind::Full, "a node or a line is larger than servers send")
                .help("fewer may wait for one name, or raise jute.maxbuffer on servers and clients"),
            E::Unimplemented => Self::new(StoreErrorKind::Unexpected, "the server does not know a request")
                .help("use ZooKeeper 3.5 or later"),
            other => Self::new(StoreErrorKind::Unexpected, other.to_string()).unknown(),
        };
        Self { source: Some(error), ..fail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_on_the_way_may_have_been_done() {
        let lost = Fail::from(zookeeper_client::Error::ConnectionLoss);
        assert_eq!((lost.kind, lost.effect), (StoreErrorKind::Unavailable, Effect::Unknown));
        assert_eq!(Fail::from(zookeeper_client::Error::NoAuth).effect, Effect::None);
        assert!(Fail::from(zookeeper_client::Error::NoHosts).help.is_some());
    }
}
