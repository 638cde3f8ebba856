//! `leasehold run`: from the plan to the exit code.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use leasehold::config::{OnBusy, StoreDown, exact};
use leasehold::{BootTime, Busy, Clock, Code, Error, Lease, Leasehold, LockName, Lost, Reach, Token};

use crate::account::Skipped;
use crate::args::{Global, RunArgs};
use crate::beside::Beside;
use crate::child::{Child, NotStarted, Terms};
use crate::failure::{Failure, rows_text};
use crate::guard::Guard;
use crate::human::{self, millis, rough};
use crate::job::{Elsewhere, Held};
use crate::listener::Listener;
use crate::nested::{self, Around};
use crate::only_errors::Kept;
use crate::plan::Plan;
use crate::script_args::Nested;
use crate::signals::Signals;
use crate::sock::{Door, Facts};
use crate::supervise::{self, Ended, Watch, Why};
use crate::talk::Talk;
use crate::timetable::Timetable;
use crate::{dry_run, exit, hold, settings, waiting};

const NOT_RUN: &str = "the command was not run";

/// Runs a command under a lock.
pub(crate) async fn run(
    args: RunArgs,
    global: &Global,
    words: &[OsString],
    talk: Talk,
) -> Result<u8, Failure> {
    let mut signals = Signals::catch().map_err(|error| bug(&format!("cannot catch signals: {error}")))?;
    let config = settings::config(global)?;
    let mut plan = Plan::new(args, global, &config)?;
    let report = plan.options.report.take();
    let clock = Clock::system();
    let listener = Arc::new(Listener::new(talk));
    let beside = Beside::new(&plan, clock.clone(), talk);
    talk.explain(format_args!("{}: ttl {}, grace {}", plan.name, exact(plan.ttl), exact(plan.grace)));
    if let Some(around) = nested::around(&plan, &config).await {
        return match signals.asked_to_end() {
            Some(signal) => Ok(exit::signalled(signal)),
            None => Err(under_another(&plan, &around, talk)),
        };
    }
    // Before the store is asked, so that the guard gets ready while we wait for the answer.
    let later = plan.options.only_errors || plan.options.dry_run;
    let guard = RefCell::new(if later { None } else { Some(start_guard(&plan)?) });
    let run = Run { plan: &plan, words, listener: &listener, clock, talk, beside, guard, global };
    let opened = {
        let program = hold::program(&plan);
        let open = hold::open(&config, &plan.store, program.as_deref(), &listener, talk);
        tokio::select! {
            biased;
            signal = signals.next_ending() => Err(Ok(exit::signalled(signal))),
            opened = open => opened.map_err(Err),
        }
    };
    let (client, result) = match opened {
        Ok(client) if plan.options.dry_run => {
            let shown = dry_run::show(&client, &plan, &run.clock, talk).await;
            hold::close(client, plan.store.timeout.value, talk).await;
            return shown.map(|()| exit::OK).map_err(|error| hold::failure(&error, NOT_RUN, false));
        }
        Ok(client) => {
            let result = run.with(&client, &mut signals).await;
            (Some(client), result)
        }
        Err(Err(error)) if plan.options.dry_run => return Err(hold::failure(&error, NOT_RUN, false)),
        Err(Err(error)) => (None, run.without_store(&error, &mut signals).await),
        Err(Ok(signalled)) => (None, Ok(signalled)),
    };
    // Said before what may take a while.
    let code = result.as_ref().copied().unwrap_or_else(|failure| {
        talk.fail(failure);
        failure.exit
    });
    if let Some(report) = report {
        run.beside.report(report, &plan.store.to_string(), &result);
    }
    if let Some(client) = client {
        // What both may take together.
        let end = run.clock.now().after(plan.store.timeout.value);
        run.beside.conclude(&client, &result, plan.store.timeout.value).await;
        hold::close(client, end.since(run.clock.now()), talk).await;
    }
    Ok(code)
}

struct Run<'a> {
    plan: &'a Plan,
    words: &'a [OsString],
    listener: &'a Arc<Listener>,
    clock: Clock,
    talk: Talk,
    beside: Beside<'a>,
    global: &'a Global,
    /// It waits for its command.
    guard: RefCell<Option<Guard>>,
}

/// A command that runs, its timetable, and where its output is if that is kept back.
type Started = (Child, Option<Timetable>, Option<Kept>);

fn start_guard(plan: &Plan) -> Result<Guard, Failure> {
    Guard::start(&plan.command).map_err(|error| {
        bug(&format!("cannot start the guard of the command: {error}")).row("effect", NOT_RUN)
    })
}

/// How a start ended.
enum Done {
    /// A signal came first: the command never ran.
    Signalled(i32),
    /// It ran.
    Ended {
        /// Whether the lease held when it ended.
        stands: Result<(), Lost>,
        ended: Ended,
        lease: Option<Lease>,
    },
}

impl Run<'_> {
    async fn with(&self, client: &Leasehold, signals: &mut Signals) -> Result<u8, Failure> {
        let (plan, talk) = (self.plan, self.talk);
        let asked = self.clock.now();
        let may_run = tokio::select! {
            biased;
            signal = signals.next_ending() => return Ok(exit::signalled(signal)),
            may_run = self.beside.may_ask(client) => may_run,
        };
        match may_run {
            Ok(true) => {}
            Ok(false) => return Ok(exit::OK),
            Err(error) => return self.without_store(&error, signals).await,
        }
        match waiting::acquire(client, plan, signals, self.listener, talk).await {
            waiting::Ended::Signalled(signal) => Ok(exit::signalled(signal)),
            waiting::Ended::Held(lease) => self.under(client, lease, signals).await,
            waiting::Ended::Refused(Error::Busy(busy)) => self.busy(client, &busy).await,
            waiting::Ended::Refused(Error::TimedOut { waited, busy, .. }) => {
                self.beside.held_by(&busy);
                let waited = waited.max(self.clock.now().since(asked));
                Err(self.refused(Code::TIMED_OUT, waiting::ran_out(plan.wait, waited, &busy), &busy))
            }
            waiting::Ended::Refused(error) => self.without_store(&error, signals).await,
        }
    }

    /// The store did not give an answer.
    async fn without_store(&self, error: &Error, signals: &mut Signals) -> Result<u8, Failure> {
        let (plan, talk) = (self.plan, self.talk);
        match plan.store_down {
            StoreDown::Skip if hold::is_down(error) => {
                self.beside.skip(Skipped::StoreDown);
                talk.tell(format_args!("skipped, --store-down skip: {error}"));
                Ok(exit::OK)
            }
            StoreDown::Run if hold::is_down(error) => {
                talk.warn(format_args!("running {} WITHOUT A LOCK, --store-down run: {error}", plan.name));
                Ok(match self.command(None, None, "", signals).await? {
                    Done::Signalled(signal) => exit::signalled(signal),
                    Done::Ended { ended, .. } => ended.code(),
                })
            }
            _ => Err(hold::failure(error, NOT_RUN, true)),
        }
    }

    async fn busy(&self, client: &Leasehold, busy: &Busy) -> Result<u8, Failure> {
        self.beside.held_by(busy);
        if self.beside.is_paused_too(client).await {
            return Ok(exit::OK);
        }
        if self.plan.busy == OnBusy::Fail {
            return Err(self.refused(Code::BUSY, busy.to_string(), busy));
        }
        self.beside.skip(Skipped::Busy);
        if self.talk.told() {
            let usual = self.beside.history(client).await.usual();
            let usual = usual.map_or_else(String::new, |usual| format!("; usual run {}", rough(usual)));
            let ends = busy
                .holder
                .as_ref()
                .map(|holder| ("ends", format!("within {} unless renewed{usual}", rough(holder.left))));
            let shut = busy.closed.as_ref().map(|closed| {
                let why = closed.note.text().map_or_else(String::new, |note| format!(" ({note})"));
                ("shut", human::harmless(&format!("by {}{why}", closed.by.host)))
            });
            let rows = ends
                .or(shut)
                .into_iter()
                .chain([("wait", self.with_wait()), ("look", self.plan.status_line())]);
            let rows: Vec<_> = rows.collect();
            let rows = rows_text(rows.iter().map(|(label, text)| (*label, text)));
            self.talk.tell(format_args!("skipped, {}{rows}", human::harmless(&busy.to_string())));
        }
        Ok(exit::OK)
    }

    fn refused(&self, code: Code, message: String, busy: &Busy) -> Failure {
        let failure = self.plan.refused(code, message, busy);
        if code == Code::BUSY { failure.also(&format!("{}   waits", self.with_wait())) } else { failure }
    }

    /// The same command line, but waiting.
    fn with_wait(&self) -> String {
        let dashes = self.words.iter().position(|word| word == "--").unwrap_or(self.words.len());
        let (before, after) = self.words.split_at(dashes);
        let before = human::command_line(before.iter().skip(1).map(OsString::as_os_str));
        let after = human::command_line(after.iter().map(OsString::as_os_str));
        format!("leasehold {before} --wait 10m {after}").trim_end().to_owned()
    }

    /// The command under its lease.
    async fn under(&self, client: &Leasehold, lease: Lease, signals: &mut Signals) -> Result<u8, Failure> {
        let (plan, talk) = (self.plan, self.talk);
        let store = human::store(client.store());
        if let Some(signal) = signals.asked_to_end() {
            drop(lease);
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
                drop(lease);
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
        let life = client.life().await.unwrap_or_else(|error| {
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
    async fn command(
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
        let variables = variables(plan, lease, door);
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

    async fn give_back(&self, lease: Lease) {
        if let Err(error) = lease.release().await {
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

/// Runs the command under the lease of a `run` around this one; returns only if that cannot be.
fn under_another(plan: &Plan, around: &Around, talk: Talk) -> Failure {
    if plan.nested == Nested::Fail {
        return around.refuse("--nested fail");
    }
    let who = around.who();
    talk.explain(format_args!(
        "{} is held by a run around this one ({who}): running under its lease",
        plan.name
    ));
    let error = around.become_command(&plan.command);
    Failure { rows: Vec::new(), ..not_started(&plan.command, &error) }
}

/// The socket at which the command may ask. It can do without.
fn open_door(talk: Talk) -> Option<Door> {
    match Door::open() {
        Ok(door) => Some(door),
        Err(error) => {
            talk.explain(format_args!("no LEASE_SOCK for the command: {error}"));
            None
        }
    }
}

/// Answers the command for as long as it runs.
async fn answer(door: Option<&Door>, plan: &Plan, held: &Held) {
    match door {
        Some(door) => {
            let facts = Facts { name: plan.name.as_str(), store: nested::place(&plan.store), held };
            door.serve(&facts).await;
        }
        None => std::future::pending().await,
    }
}

/// What the command is told of its lease. Without a lease, what an outer one left behind is taken away.
fn variables(plan: &Plan, lease: Option<&Lease>, door: Option<&Door>) -> Vec<(&'static str, Option<String>)> {
    let chain = std::env::var(nested::VARIABLE).ok();
    let longer = door
        .zip(lease)
        .and_then(|(door, lease)| nested::longer(chain.as_deref(), lease.token().get(), door.path()));
    vec![
        ("LEASE_SOCK", door.and_then(|door| door.path().to_str()).map(str::to_owned)),
        // Those further out hold what they hold, whether or not this one can be asked.
        (nested::VARIABLE, longer.or(chain)),
        ("LEASE_NAME", Some(plan.name.to_string())),
        ("LEASE_TOKEN", lease.map(|lease| lease.token().to_string())),
        ("LEASE_HOLDER", lease.map(|lease| lease.owner_id().to_owned())),
        ("LEASE_TTL_MS", lease.map(|lease| millis(lease.ttl()).to_string())),
    ]
}

fn lost_failure(name: &LockName, token: Option<Token>, ran: Duration, reason: &str) -> Failure {
    let token = token.map_or_else(String::new, |token| format!(" (token {token})"));
    let message = format!("lost {name}{token} after {}: {reason}", rough(ran));
    let mut failure = Failure::new(Code::LOST, exit::LOST, message);
    failure.retryable = true;
    failure.hint("the work may be half done; the next run will do it again")
}

fn not_started(command: &[OsString], error: &io::Error) -> Failure {
    let program = command.first().map(|word| human::quoted(word)).unwrap_or_default();
    let (exit, what) = match error.kind() {
        io::ErrorKind::NotFound => (exit::NOT_FOUND, "not found"),
        _ => (exit::NOT_EXECUTABLE, "cannot be executed"),
    };
    let failure = Failure::new(Code::NOT_STARTED, exit, format!("{program}: {what} ({error})"));
    let there = command.first().is_some_and(|word| std::path::Path::new(word).is_file());
    match exit {
        exit::NOT_FOUND if there => {
            failure.hint("the file is there: does its first line name an interpreter that is not?")
        }
        exit::NOT_FOUND => failure.hint("cron searches few folders: write the whole path"),
        _ => failure.hint("chmod +x makes a script executable"),
    }
    .row("effect", "the lock was given back at once")
}

fn bug(message: &str) -> Failure {
    Failure::new(Code::BUG, exit::BUG, message)
}
