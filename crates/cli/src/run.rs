//! `leasehold run`: from the plan to the exit code.

mod ends;
mod under;

use std::cell::RefCell;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ends::{bug, under_another};
use leasehold::config::{OnBusy, StoreDown, exact};
use leasehold::{Busy, Clock, Code, Error, Lease, Leasehold, Lost};

use crate::account::Skipped;
use crate::args::{Global, RunArgs};
use crate::beside::Beside;
use crate::child::Child;
use crate::failure::{Failure, rows_text};
use crate::guard::Guard;
use crate::human::{self, rough};
use crate::listener::Listener;
use crate::nested::{self};
use crate::only_errors::Kept;
use crate::plan::Plan;
use crate::signals::Signals;
use crate::supervise::Ended;
use crate::talk::Talk;
use crate::timetable::Timetable;
use crate::{dry_run, exit, hold, settings, stand_in, waiting};

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
    let run = Run {
        plan: &plan,
        words,
        listener: &listener,
        clock,
        talk,
        beside,
        guard,
        life: RefCell::default(),
        global,
    };
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
    /// What keeps the lease alive, if that is not this process alone; kept to its very end.
    life: RefCell<Option<OwnedFd>>,
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
        let acquire = async {
            let (answer, life) = stand_in::acquire(client, plan, self.global, talk).await;
            self.life.replace(life);
            answer
        };
        match waiting::acquire(client, plan, acquire, signals, self.listener, talk).await {
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
}
