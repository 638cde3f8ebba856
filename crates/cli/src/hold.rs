//! Where the command meets the library: opening a client and asking for a lease.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold::config::{Config, OnFail, Scope, StoreChoice, Wait, exact};
use leasehold::{
    Builder, Clock, Code, Error, Lease, Leasehold, Lock, LockName, Note, Op, Reach, Result, Scheme,
    StoreError, StoreErrorKind,
};

use crate::failure::Failure;
use crate::human;
use crate::listener::Listener;
use crate::plan::Plan;
use crate::talk::Talk;

/// Opens the store, and says what a person should know about it.
pub(crate) async fn open(
    config: &Config,
    choice: &StoreChoice,
    program: Option<&str>,
    listener: &Arc<Listener>,
    talk: Talk,
) -> Result<Leasehold> {
    open_as(config, choice, listener, talk, |builder| match program {
        Some(program) => builder.program(program),
        None => builder,
    })
    .await
}

/// The same, with a client that is like others only in what the configuration says.
pub(crate) async fn open_as(
    config: &Config,
    choice: &StoreChoice,
    listener: &Arc<Listener>,
    talk: Talk,
    shape: impl FnOnce(Builder) -> Builder,
) -> Result<Leasehold> {
    let scope = config.scope().map(|scope| scope.value);
    // A file that locks too narrowly need not be made to be refused.
    refuse_narrow(scope, reach_of(choice), &choice.to_string())?;
    let builder = Leasehold::builder()
        .namespace(config.namespace().value)
        .timeout(choice.timeout.value)
        .clock(Clock::system())
        .observer(listener.clone());
    let builder = shape(builder);
    talk.explain(format_args!(
        "store {choice} (from {}), timeout {}",
        choice.origin,
        exact(choice.timeout.value)
    ));
    let client = builder.open(choice.url.clone()).await?;
    if let Some(file) = client.created_store() {
        let file = human::store(&format!("sqlite:{file}"));
        let advice =
            if choice.is_default() { "; set LEASEHOLD_STORE to share locks with others" } else { "" };
        talk.notice("", format_args!("made {file}; it locks on this machine only{advice}"));
    }
    refuse_narrow(scope, Some(client.capabilities().reach), client.store())?;
    Ok(client)
}

/// How widely a store locks that needs no asking.
fn reach_of(choice: &StoreChoice) -> Option<Reach> {
    match choice.url.scheme {
        Scheme::Sqlite => Some(Reach::Host),
        Scheme::Memory => Some(Reach::Process),
        _ => None,
    }
}

fn refuse_narrow(scope: Option<Scope>, reach: Option<Reach>, store: &str) -> Result<()> {
    match (scope, reach) {
        (Some(scope), Some(reach)) => Ok(scope.check(reach, store)?),
        _ => Ok(()),
    }
}

/// The library gives up after the timeout, too, and knows why: it is waited for so much longer.
const FOR_THE_REASON: Duration = Duration::from_millis(100);

/// What lease is asked for.
pub(crate) struct Asked<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) ttl: Duration,
    pub(crate) grace: Duration,
    pub(crate) fair: bool,
    pub(crate) note: &'a Note,
    /// For how long others are kept out also when the run is killed. Who ends his run himself says how long it is.
    pub(crate) at_least: Duration,
}

impl<'a> Asked<'a> {
    pub(crate) fn of(plan: &'a Plan) -> Self {
        let Plan { name, ttl, grace, fair, note, options, .. } = plan;
        let at_least = if options.on_fail == OnFail::Hold { options.at_least } else { Duration::ZERO };
        Self { name, ttl: *ttl, grace: *grace, fair: *fair, note, at_least }
    }

    pub(crate) fn lock(&self, client: &Leasehold) -> Lock {
        let Self { name, ttl, grace, fair, note, at_least } = self;
        // Whatever of the command lives keeps others out, also when everything that watched it was killed.
        let mut lock = client.lock(name).ttl(*ttl).grace(*grace).anchored();
        if client.capabilities().aftermath {
            lock = lock.at_least(*at_least);
        }
        if let Some(note) = note.text() {
            lock = lock.note(note);
        }
        if *fair {
            lock = lock.fair();
        }
        lock
    }
}

/// Asks for the lease of a plan: once, or waiting in line.
pub(crate) async fn acquire(client: &Leasehold, plan: &Plan) -> Result<Lease> {
    let lock = Asked::of(plan).lock(client);
    match plan.wait {
        // A store that is silent is asked again, which takes as long again; who does not wait is told in time.
        None => match tokio::time::timeout(plan.store.timeout.value + FOR_THE_REASON, lock.attempt()).await {
            Ok(answer) => answer,
            Err(_) => Err(silent(client, plan)),
        },
        Some(wait) => acquire_in(lock, wait).await,
    }
}

/// Asks for a lease, waiting for so long.
pub(crate) async fn acquire_in(lock: Lock, wait: Wait) -> Result<Lease> {
    match wait {
        Wait::For(longest) => lock.acquire_within(longest).await,
        Wait::Forever => lock.acquire().await,
    }
}

fn silent(client: &Leasehold, plan: &Plan) -> Error {
    let waited = exact(plan.store.timeout.value);
    StoreError::new(StoreErrorKind::Unavailable, Op::Claim, client.store())
        .about(&plan.name)
        .saying(format!("no answer in {waited}"))
        .help("--timeout accepts a longer silence")
        .into()
}

/// Gives back what was given up on the way, places in line above all, and closes the store; for so long at most.
/// What a silent store does not hear of lapses there by itself.
pub(crate) async fn close(client: Leasehold, most: Duration, talk: Talk) {
    match tokio::time::timeout(most, client.close()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => talk.explain(format_args!("closing the store: {error}")),
        Err(_) => talk.explain(format_args!("closing the store: no answer in {}", exact(most))),
    }
}

/// What others read as the program that holds: the file name of the command.
pub(crate) fn program(plan: &Plan) -> Option<String> {
    let path = Path::new(plan.command.first()?);
    Some(human::harmless(&path.file_name()?.to_string_lossy()))
}

/// The failure of a store in the form that people read, with what it means for them.
pub(crate) fn failure(error: &Error, effect: &str, during_run: bool) -> Failure {
    let mut failure = Failure::from(error);
    if failure.code == Code::UNREACHABLE || matches!(error, Error::Store(_)) {
        failure = failure.row("effect", effect);
    }
    let code = failure.code;
    failure = failure.also(&format!("leasehold explain {code}   tells more"));
    if matches!(error, Error::Store(_)) {
        failure = failure.also("leasehold doctor           finds out what is wrong");
    }
    if during_run && is_down(error) {
        failure = failure.also("--store-down skip|run       to choose otherwise");
    }
    failure
}

/// Whether the store cannot be reached, as against refusing us or not being ours: only that may be skipped, or
/// run without.
pub(crate) fn is_down(error: &Error) -> bool {
    matches!(error, Error::Store(store) if store.kind == StoreErrorKind::Unavailable)
}
