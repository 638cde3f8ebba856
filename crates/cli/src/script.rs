//! The lease of a script, whose steps are processes of their own: found by `LEASE_NAME` and `LEASE_TOKEN`,
//! renewed, given back.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use leasehold::config::Config;
use leasehold::{Builder, Code, Error, Lease, Leasehold, LockName, Token};

use crate::args::Global;
use crate::failure::Failure;
use crate::human::rough;
use crate::listener::Listener;
use crate::script_args::HeldArgs;
use crate::talk::Talk;
use crate::{exit, hold, settings};

const NOTHING_CHANGED: &str = "nothing is known of the lease; it runs to its end unless it is renewed";

/// Which lease is meant.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) name: LockName,
    pub(crate) token: Token,
}

impl Held {
    /// What the environment says, and the command line.
    pub(crate) fn new(typed: Option<&OsString>, raw: bool) -> Result<Self, Failure> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let of_environment = variable("LEASE_NAME");
        let name = match (typed, &of_environment) {
            (Some(typed), _) => settings::name(typed, raw)?,
            // Ours: what was typed once may have been a raw name.
            (None, Some(name)) => LockName::parse(name)?,
            (None, None) => return Err(which("LEASE_NAME is not set")),
        };
        if of_environment.is_some_and(|other| other != name.as_str()) {
            return Err(which(&format!("LEASE_NAME and LEASE_TOKEN are of another lock than {name}")));
        }
        let Some(text) = variable("LEASE_TOKEN") else { return Err(which("LEASE_TOKEN is not set")) };
        let token = text.parse().ok().and_then(Token::new);
        let token = token.ok_or_else(|| which("LEASE_TOKEN is not a token"))?;
        Ok(Self { name, token })
    }

    /// That it is not ours any more.
    pub(crate) fn gone(&self, reason: &str) -> Failure {
        let message = format!("lost {} (token {}): {reason}", self.name, self.token);
        let mut failure = Failure::new(Code::LOST, exit::LOST, message);
        failure.retryable = true;
        failure.hint("somebody else may hold it now: stop, and take a new lease before going on")
    }

    /// What a failure means for the lease.
    pub(crate) fn failed(&self, error: &Error) -> Failure {
        match error {
            Error::Lost(lost) => self.gone(&lost.reason.to_string()),
            error => hold::failure(error, NOTHING_CHANGED, false),
        }
    }

    /// Goes on with it, renewed from now on.
    pub(crate) async fn resume(&self, client: &Leasehold) -> Result<Lease, Failure> {
        let ticket = client.find(&self.name, self.token).await.map_err(|error| self.failed(&error))?;
        let Some(ticket) = ticket else {
            return Err(self.gone("it ran out, was given back, or was ended by somebody"));
        };
        client.resume(ticket).await.map_err(|error| self.failed(&error))
    }
}

fn which(problem: &str) -> Failure {
    Failure::usage(Code::VALUE, format!("which lease? {problem}"))
        .hint("vars=$(leasehold acquire NAME --print sh) || exit\neval \"$vars\"")
}

/// The store of a name, by a client whose leases outlive this process; and how long to wait for its close.
pub(crate) async fn open(
    config: &Config,
    name: &LockName,
    talk: Talk,
    shape: impl FnOnce(Builder) -> Builder,
) -> Result<(Leasehold, Duration), Failure> {
    let choice = config.store(Some(name.as_str()))?;
    let listener = Arc::new(Listener::new(talk));
    let client = hold::open_as(config, &choice, &listener, talk, |builder| shape(builder.detached())).await;
    let client = client.map_err(|error| hold::failure(&error, NOTHING_CHANGED, false))?;
    Ok((client, choice.timeout.value))
}

/// Prolongs a lease.
pub(crate) async fn renew(args: HeldArgs, global: &Global, talk: Talk) -> Result<u8, Failure> {
    let held = Held::new(args.name.as_ref(), global.raw_name)?;
    let config = settings::config(global)?;
    let (client, timeout) = open(&config, &held.name, talk, |builder| builder).await?;
    let renewed = held.resume(&client).await.map(|lease| {
        talk.explain(format_args!("{}: renewed, {} left", held.name, rough(lease.remaining())));
        lease.keep();
    });
    hold::close(client, timeout, talk).await;
    renewed.map(|()| exit::OK)
}

/// Gives a lease back.
pub(crate) async fn release(args: HeldArgs, global: &Global, talk: Talk) -> Result<u8, Failure> {
    let held = Held::new(args.name.as_ref(), global.raw_name)?;
    let config = settings::config(global)?;
    let (client, timeout) = open(&config, &held.name, talk, |builder| builder).await?;
    let released = match held.resume(&client).await {
        Ok(lease) => lease.release().await.map_err(|error| held.failed(&error)),
        Err(failure) => Err(failure),
    };
    hold::close(client, timeout, talk).await;
    released?;
    talk.explain(format_args!("{}: given back", held.name));
    Ok(exit::OK)
}
