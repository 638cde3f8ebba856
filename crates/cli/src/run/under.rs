//! The command under its lease: from the grant to the exit code.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use leasehold::{BootTime, Error, Lease, Leasehold, Reach, Token};

use crate::args::Global;
use crate::child::{Child, NotStarted, Terms};
use crate::failure::Failure;
use crate::human::{self, rough};
use crate::job::{Elsewhere, Held};
use crate::only_errors::Kept;
use crate::signals::Signals;
use crate::sock::Door;
use crate::supervise::{self, Watch, Why};
use crate::timetable::Timetable;
use crate::{exit, hold};

use super::ends::{answer, bug, lost_failure, not_started, open_door, variables};
use super::{Done, NOT_RUN, Run, Started, start_guard};

impl Run<'_> {
    /// The command under its lease.
    pub(super) async fn under(
        &self,
        client: &Leasehold,
        lease: Lease,
        signals: &mut Signals,
    ) -> Result<u8, Failure> {
        let (plan, talk) = (self.plan, self.talk);
        let store = human::store(client.store());
        if let Some(signal) = signals.asked_to_end() {
            drop(lease.unused());
            return Ok(exit::signalled(signal));
        }
        let alone = if client.capabilities().reach < Reach::Fleet && plan.store.is_default() {
            " · locks on this machine only"
        } else {
            ""
        };
        let may_start = tokio::select! {
            biased;
            signal = signals.next_ending() => {
                drop(lease.unused());
                return Ok(exit::signalled(signal));
            }
            may_start = self.beside.may_start(client, &lease) => may_start,
        };
        match may_start {
            Ok(true) => {}
            Ok(false) => {
                self.give_back(lease).await;
                return Ok(exit::OK);
            }
            Err(error) => {
                self.give_back(lease).await;
                return Err(hold::failure(&error, NOT_RUN, true));
            }
        }
        talk.tell(format_args!("{} held (token {}) in {store}{alone}", plan.name, lease.token()));
        let started = self.clock.now();
        let other = self.life.borrow().as_ref().map(OwnedFd::try_clone).transpose();
        let life = match other {
            Ok(None) => client.life().await.map_err(|error| error.to_string()),
            Ok(other) => Ok(other),
            Err(error) => Err(error.to_string()),
        };
        let life = life.unwrap_or_else(|error| {
            talk.explain(format_args!("nothing but its ttl keeps the lease if we are killed: {error}"));
            None
        });
        let token = lease.token();
        let (stands, ended, lease) =
            match self.command(Some(lease), Some((client, life)), &store, signals).await? {
                Done::Ended { stands, ended, lease } => (stands, ended, lease),
                Done::Signalled(signal) => return Ok(exit::signalled(signal)),
            };
        let ran = self.clock.now().since(started);
        let code = ended.code();
        talk.explain(format_args!("the command ended after {} with {code}", rough(ran)));
        if let Some((why, at)) = ended.stopped.filter(|(why, _)| why.lost()) {
            let took = self.clock.now().since(at);
            drop(lease);
            return Err(self.stopped(why, token, ran, took, ended.killed));
        }
        self.beside.settle(client, code, stands.is_ok()).await;
        let released = match lease {
            Some(lease) => self.beside.release(lease, code).await,
            None => Ok(()),
        };
        let lost = match (&stands, &released) {
            (Err(lost), _) | (_, Err(Error::Lost(lost))) => Some(lost.reason),
            (Ok(_), Err(error)) => {
                talk.warn(format_args!(
                    "{}: the command ended, but the lease could not be given back: {error}",
                    plan.name
                ));
                None
            }
            (Ok(_), Ok(())) => {
                talk.tell(format_args!("{} released after {}", plan.name, rough(ran)));
                None
            }
        };
        match lost {
            Some(reason) if code == exit::OK => {
                Err(lost_failure(&plan.name, Some(token), ran, &reason.to_string())
                    .row("command", "ended by itself, with 0, but was not alone to the end"))
            }
            Some(reason) => {
                // What the command says of itself stays first.
                talk.warn(format_args!(
                    "{}: the lease was lost before the command ended: {reason}",
                    plan.name
                ));
                Ok(code)
            }
            None => Ok(code),
        }
    }

    /// Starts the command and watches it. A lease under which it does not start is given back.
    pub(super) async fn command(
        &self,
        lease: Option<Lease>,
        client: Option<(&Leasehold, Option<OwnedFd>)>,
        store: &str,
        signals: &mut Signals,
    ) -> Result<Done, Failure> {
        let (plan, clock) = (self.plan, &self.clock);
        let (client, life) = client.unzip();
        let door = lease.as_ref().and_then(|_| open_door(self.talk));
        let started = self.start(lease.as_ref(), door.as_ref(), life.flatten().as_ref(), signals).await;
        let (child, table, kept) = match started {
            Ok(Some(started)) => started,
            other => {
                if let Some(client) = client {
                    self.beside.unmark(client).await;
                }
                if let Some(lease) = lease {
                    self.give_back(lease).await;
                }
                let signal = signals.asked_to_end().unwrap_or(libc::SIGTERM);
                return other.map(|_| Done::Signalled(signal));
            }
        };
        let elsewhere = client.map(|client| {
            let Global { store, config, .. } = self.global.clone();
            Elsewhere { client, store, config: config.and_then(|path| path.to_str().map(str::to_owned)) }
        });
        let held = Held::new(lease);
        let watch = Watch {
            name: plan.name.as_str(),
            lease: &held,
            elsewhere,
            table,
            grace: plan.grace,
            on_lost: plan.on_lost,
            descendants: plan.descendants,
            at_most: plan.at_most.map(|most| clock.now().after(most)),
            clock,
            listener: self.listener,
            store,
            talk: self.talk,
        };
        let ended = {
            let watched = std::pin::pin!(watch.until_it_ends(child, signals));
            let answers = std::pin::pin!(answer(door.as_ref(), plan, &held));
            tokio::select! {
                biased;
                ended = watched => ended,
                () = answers => std::future::pending().await,
            }
        };
        drop(door);
        // Nobody else looks at it any more, so it is there to be taken, unless it was lost while we were stopped.
        let lease = held.take();
        let stands = lease.as_ref().map_or(Ok(()), |lease| lease.check().map(drop));
        self.beside.ended(&ended);
        let lost = stands.is_err() || ended.stopped.is_some_and(|(why, _)| why.lost());
        if let Some(kept) = kept
            && (lost || ended.code() != exit::OK)
            && let Err(error) = kept.print()
        {
            self.talk.warn(format_args!("the output that was kept back cannot be read: {error}"));
        }
        Ok(Done::Ended { stands, ended, lease })
    }

    /// Starts the command; `None` when a signal came first.
    async fn start(
        &self,
        lease: Option<&Lease>,
        door: Option<&Door>,
        life: Option<&OwnedFd>,
        signals: &Signals,
    ) -> Result<Option<Started>, Failure> {
        let (plan, clock) = (self.plan, &self.clock);
        let variables = variables(plan, lease, door, clock);
        let held_back = |error: io::Error| bug(&format!("cannot keep the output back: {error}"));
        let kept = plan.options.only_errors.then(Kept::new).transpose().map_err(held_back)?;
        self.beside.started();
        // The guard is what the command inherits them from.
        let _diverted = kept.as_ref().map(Kept::divert).transpose().map_err(held_back)?;
        loop {
            let early = self.guard.take();
            let was_early = early.is_some();
            let guard = early.map_or_else(|| start_guard(plan), Ok)?;
            let now = clock.now();
            let table = lease.map(|lease| Timetable::new(now, lease.remaining(), plan.grace));
            let before: Option<BootTime> = lease.map(|lease| now.after(lease.remaining()));
            let deadline = table.and_then(|table| supervise::deadline(table, plan.on_lost));
            let terms = Terms { variables: &variables, before, deadline, life };
            match Child::start(guard, terms, clock, signals.watch()).await {
                Ok(child) => return Ok(Some((child, table, kept))),
                Err(NotStarted::Signalled) => return Ok(None),
                // It may have been killed in all the time that we waited in line.
                Err(NotStarted::Unguarded) if was_early => {}
                Err(NotStarted::Unguarded) => {
                    return Err(bug("the guard of the command was killed").row("effect", NOT_RUN));
                }
                Err(NotStarted::Failed(error)) => return Err(not_started(&plan.command, &error)),
                Err(NotStarted::TooLate) => {
                    let reason = "its time ran out before the command could be started";
                    let token = lease.map(Lease::token);
                    let failure = lost_failure(&plan.name, token, Duration::ZERO, reason);
                    return Err(failure.row("effect", NOT_RUN));
                }
            }
        }
    }

    /// Gives back a lease under which no command ran.
    async fn give_back(&self, lease: Lease) {
        if let Err(error) = lease.unused().release().await {
            self.talk.warn(format_args!("{}: the lease could not be given back: {error}", self.plan.name));
        }
    }

    fn stopped(&self, why: Why, token: Token, ran: Duration, took: Duration, killed: bool) -> Failure {
        let reason = match why {
            Why::Gone(reason) => reason.to_string(),
            _ => "the store did not renew it in time".to_owned(),
        };
        let by = if killed { "was killed" } else { "ended" };
        lost_failure(&self.plan.name, Some(token), ran, &reason)
            .row("command", format!("{by} {} after SIGTERM", rough(took)))
    }
}
