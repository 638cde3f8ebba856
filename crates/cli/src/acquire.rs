//! `leasehold acquire` and `try`: a lease that outlives this process, for a script.

use std::io::{self, Write as _};
use std::sync::Arc;

use leasehold::config::{Config, Wait};
use leasehold::{Clock, Code, Error, Lease, Leasehold, Owner};
use serde_json::json;

use crate::args::{Global, RunArgs};
use crate::failure::Failure;
use crate::human::{self, millis};
use crate::keeper::{Keeper, Watched};
use crate::listener::Listener;
use crate::plan::Plan;
use crate::script_args::{AcquireArgs, Print, TakeArgs, TryArgs};
use crate::signals::Signals;
use crate::talk::Talk;
use crate::{ancestry, exit, hold, nested, settings, waiting};

const NOTHING_TAKEN: &str = "no lease was taken";

/// Takes a lease, waiting for it unless told otherwise.
pub(crate) async fn acquire(args: AcquireArgs, global: &Global, talk: Talk) -> Result<u8, Failure> {
    let AcquireArgs { take, wait, no_wait, fair } = args;
    if no_wait && wait.is_some() {
        let failure = Failure::usage(Code::FLAG, "--wait and --no-wait exclude each other");
        return Err(failure.hint("leasehold acquire --help   tells more"));
    }
    let Taking { mut plan, config, take } = Taking::new(take, global, |args| RunArgs { wait, fair, ..args })?;
    plan.wait = if no_wait { None } else { plan.wait.or(Some(Wait::Forever)) };
    Taking { plan, config, take }.go(global, talk).await
}

/// Takes a lease if nobody has it.
pub(crate) async fn only_try(args: TryArgs, global: &Global, talk: Talk) -> Result<u8, Failure> {
    let mut taking = Taking::new(args.take, global, |args| args)?;
    taking.plan.wait = None;
    taking.go(global, talk).await
}

/// What is to be taken, and how it is told.
struct Taking {
    plan: Plan,
    config: Config,
    take: TakeArgs,
}

impl Taking {
    fn new(take: TakeArgs, global: &Global, more: impl FnOnce(RunArgs) -> RunArgs) -> Result<Self, Failure> {
        let TakeArgs { name, ttl, note, .. } = take.clone();
        let config = settings::config(global)?;
        let plan = Plan::new(more(RunArgs { name, ttl, note, ..RunArgs::default() }), global, &config)?;
        Ok(Self { plan, config, take })
    }

    async fn go(self, global: &Global, talk: Talk) -> Result<u8, Failure> {
        let Self { plan, config, take } = &self;
        let watched = take.while_pid.map(Watched::find).transpose()?;
        let mut signals = Signals::catch()
            .map_err(|error| Failure::new(Code::BUG, exit::BUG, format!("cannot catch signals: {error}")))?;
        if let Some(around) = nested::around(plan, config).await {
            return Err(around.refuse("its lease would have to end before the one around it"));
        }
        let listener = Arc::new(Listener::new(talk));
        let owner = owner(watched);
        let open = hold::open_as(config, &plan.store, &listener, talk, |builder| {
            let builder = builder.detached();
            match owner {
                Some(owner) => builder.owner(owner),
                None => builder,
            }
        });
        let opened = tokio::select! {
            biased;
            signal = signals.next_ending() => return Ok(exit::signalled(signal)),
            opened = open => opened,
        };
        let client = opened.map_err(|error| hold::failure(&error, NOTHING_TAKEN, false))?;
        let code = self.with(&client, watched, global, &mut signals, &listener, talk).await;
        let code = code.unwrap_or_else(|failure| {
            // Said before what may take a while.
            talk.fail(&failure);
            failure.exit
        });
        hold::close(client, plan.store.timeout.value, talk).await;
        Ok(code)
    }

    async fn with(
        &self,
        client: &Leasehold,
        watched: Option<Watched>,
        global: &Global,
        signals: &mut Signals,
        listener: &Arc<Listener>,
        talk: Talk,
    ) -> Result<u8, Failure> {
        let plan = &self.plan;
        let clock = Clock::system();
        let asked = clock.now();
        let lease = match waiting::acquire(client, plan, hold::acquire(client, plan), signals, listener, talk)
            .await
        {
            waiting::Ended::Held(lease) => lease,
            waiting::Ended::Signalled(signal) => return Ok(exit::signalled(signal)),
            waiting::Ended::Refused(Error::Busy(busy)) => {
                let failure = plan.refused(Code::BUSY, busy.to_string(), &busy);
                return Err(failure.also(&format!("leasehold acquire {} --wait 10m   waits", plan.name)));
            }
            waiting::Ended::Refused(Error::TimedOut { waited, busy, .. }) => {
                let waited = waited.max(clock.now().since(asked));
                let message = waiting::ran_out(plan.wait, waited, &busy);
                return Err(plan.refused(Code::TIMED_OUT, message, &busy));
            }
            waiting::Ended::Refused(error) => return Err(hold::failure(&error, NOTHING_TAKEN, false)),
        };
        let handed = tokio::select! {
            biased;
            signal = signals.next_ending() => Err(signal),
            handed = self.hand_over(&lease, watched, global) => Ok(handed),
        };
        let given_back = match handed {
            Ok(Ok(())) => {
                lease.keep();
                return Ok(exit::OK);
            }
            Ok(Err(failure)) => Err(failure),
            Err(signal) => Ok(exit::signalled(signal)),
        };
        if let Err(error) = lease.release().await {
            talk.warn(format_args!("{}: the lease could not be given back: {error}", plan.name));
        }
        given_back
    }

    /// Makes sure that it lasts, and tells of it. On an error it is nobody's, and to be given back.
    async fn hand_over(
        &self,
        lease: &Lease,
        watched: Option<Watched>,
        global: &Global,
    ) -> Result<(), Failure> {
        let failed = |error: &Error| hold::failure(error, NOTHING_TAKEN, false);
        // A grant to one who has waited is short until it is renewed, and nobody else will.
        lease.ensure(lease.ttl() / 4 * 3).await.map_err(|error| failed(&error))?;
        let keeper = match watched {
            Some(watched) => {
                let ticket = lease.ticket().await.map_err(|error| failed(&error))?;
                Some(Keeper::start(&self.plan, &ticket, watched, global).await?)
            }
            None => None,
        };
        self.print(lease, global).map_err(|error| {
            let message = format!("the token could not be printed: {error}");
            Failure::new(Code::BUG, exit::BUG, message).row("effect", "the lease was given back")
        })?;
        if let Some(keeper) = keeper {
            keeper.let_go();
        }
        Ok(())
    }

    fn print(&self, lease: &Lease, global: &Global) -> io::Result<()> {
        let Plan { name, .. } = &self.plan;
        let (token, holder) = (lease.token(), lease.owner_id());
        let text = if self.take.print == Some(Print::Sh) {
            let (name, holder) = (human::shell_text(name.as_str()), human::shell_text(holder));
            format!("export LEASE_NAME={name} LEASE_TOKEN={token} LEASE_HOLDER={holder}")
        } else if global.json {
            json!({
                "v": 1, "name": name.as_str(), "token": token.get(), "holder": holder,
                "ttl_ms": millis(lease.ttl()), "left_ms": millis(lease.remaining()),
            })
            .to_string()
        } else {
            token.to_string()
        };
        let mut stdout = io::stdout().lock();
        stdout.write_all(format!("{text}\n").as_bytes()).and_then(|()| stdout.flush())
    }
}

/// Who holds it, as others read it: not this process, which is gone soon, but the script that called it.
fn owner(watched: Option<Watched>) -> Option<Owner> {
    let parent = || ancestry::look(std::process::id()).map(|me| me.parent).filter(|parent| *parent > 1);
    let pid = watched.map(|watched| watched.pid).or_else(parent)?;
    let program = human::harmless(&ancestry::name(pid)?);
    // The rest is as this process would say it of itself.
    Some(Owner { pid, program, ..Leasehold::memory().owner().clone() })
}
