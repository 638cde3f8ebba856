//! What one `run` is to do: flags, rules and defaults brought together and checked, before anything is asked.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use leasehold::config::{
    Config, DEFAULT_TTL, Descendants, LockSettings, OnBusy, OnLost, Origin, Setting, StoreChoice, StoreDown,
    Wait, exact,
};
use leasehold::{Busy, Code, LockName, Note};

use crate::args::{Global, RunArgs};
use crate::failure::Failure;
use crate::options::Options;
use crate::script_args::Nested;
use crate::{exit, human, settings, timetable, waiting};

/// The shortest lease that a command can be stopped inside of.
pub(crate) const LEAST_TTL: Duration = Duration::from_secs(1);

/// What reads the line of `-c`.
const SHELL: &str = "/bin/sh";

/// What holds where nobody says anything: ttl, what to do when busy, and when the store is down.
pub(crate) const DEFAULTS: (Duration, OnBusy, StoreDown) = (DEFAULT_TTL, OnBusy::Skip, StoreDown::Fail);

/// What one `run` is to do.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The name as it was typed.
    pub(crate) name: LockName,
    pub(crate) command: Vec<OsString>,
    pub(crate) ttl: Duration,
    pub(crate) grace: Duration,
    pub(crate) wait: Option<Wait>,
    pub(crate) fair: bool,
    pub(crate) busy: OnBusy,
    pub(crate) store_down: StoreDown,
    pub(crate) nested: Nested,
    pub(crate) on_lost: OnLost,
    pub(crate) descendants: Descendants,
    /// How long the command may take.
    pub(crate) at_most: Option<Duration>,
    pub(crate) note: Note,
    pub(crate) store: StoreChoice,
    pub(crate) options: Options,
}

impl Plan {
    pub(crate) fn new(args: RunArgs, global: &Global, config: &Config) -> Result<Self, Failure> {
        let RunArgs {
            name,
            command,
            shell,
            wait,
            fair,
            busy,
            ttl,
            grace,
            store_down,
            nested,
            note,
            on_lost,
            descendants,
            at_most,
            options,
        } = args;
        let name = settings::name(&name, global.raw_name)?;
        let LockSettings {
            ttl: file_ttl,
            wait: file_wait,
            fair: file_fair,
            grace: file_grace,
            busy: file_busy,
            store_down: file_store_down,
            note: file_note,
            on_lost: file_on_lost,
            descendants: file_descendants,
            at_most: file_at_most,
            ..
        } = config.lock(name.as_str());
        let command = match shell {
            Some(line) => vec![SHELL.into(), "-c".into(), line],
            None => command,
        };
        let ttl = flag(ttl, "--ttl")
            .or(file_ttl)
            .unwrap_or(Setting { value: DEFAULT_TTL, origin: Origin::Default });
        if ttl.value < LEAST_TTL {
            return Err(wrong(&ttl, "a lease lasts at least 1s").hint("write one such as 30s"));
        }
        let note = match flag(note, "--note").or(file_note) {
            Some(note) => Note::parse(&note.value).map_err(|error| {
                Failure::usage(Code::VALUE, format!("{}: {error}", note.origin)).hint("write one plain line")
            })?,
            None => Note::NONE,
        };
        let grace = match flag(grace, "--grace").or(file_grace) {
            None => timetable::default_grace(ttl.value),
            Some(grace) => checked_grace(&grace, &ttl)?,
        };
        Ok(Self {
            store: config.store(Some(name.as_str()))?,
            // Last: it empties the report of the run before, which a plan that is refused must not.
            options: Options::new(options, config.lock(name.as_str()))?,
            wait: wait.or(file_wait.map(|wait| wait.value)),
            fair: fair || file_fair.is_some_and(|fair| fair.value),
            busy: busy.or(file_busy.map(|busy| busy.value)).unwrap_or(DEFAULTS.1),
            store_down: store_down.or(file_store_down.map(|down| down.value)).unwrap_or(DEFAULTS.2),
            nested: nested.unwrap_or_default(),
            on_lost: on_lost.or(file_on_lost.map(|lost| lost.value)).unwrap_or(OnLost::Stop),
            descendants: descendants
                .or(file_descendants.map(|descendants| descendants.value))
                .unwrap_or(Descendants::Wait),
            at_most: at_most.or(file_at_most.map(|most| most.value)).filter(|most| !most.is_zero()),
            ttl: ttl.value,
            name,
            command,
            grace,
            note,
        })
    }

    /// That somebody else has it.
    pub(crate) fn refused(&self, code: Code, message: String, busy: &Busy) -> Failure {
        let mut failure = Failure::new(code, exit::TEMPFAIL, message);
        failure.retryable = true;
        failure.rows = waiting::holder_rows(busy);
        let failure = failure.hint(format!("{}   shows who has it and who waits", self.status_line()));
        match &busy.holder {
            Some(holder) if code == Code::TIMED_OUT => {
                let (name, token) = (human::quoted(self.name.as_str().as_ref()), holder.token);
                failure.also(&format!("leasehold break {name} --token {token}   ends its lease"))
            }
            _ => failure,
        }
    }

    /// The command line that looks at the same lock in the same store.
    pub(crate) fn status_line(&self) -> String {
        let Self { name, store, .. } = self;
        let mut words = vec!["leasehold".to_owned(), "status".to_owned()];
        if matches!(store.origin, Origin::Flag(_)) {
            words.extend(["--store".to_owned(), store.name.clone().unwrap_or_else(|| store.to_string())]);
        }
        words.push(name.to_string());
        human::command_line(words.iter().map(OsStr::new))
    }
}

fn flag<T>(value: Option<T>, name: &'static str) -> Option<Setting<T>> {
    value.map(|value| Setting { value, origin: Origin::Flag(name) })
}

/// A grace that the lease can hold. One that was typed is refused if it cannot; one of a file is cut, since the
/// ttl may come from another place and every run would fail.
fn checked_grace(grace: &Setting<Duration>, ttl: &Setting<Duration>) -> Result<Duration, Failure> {
    let most = timetable::most_grace(ttl.value);
    if grace.value <= most || !matches!(grace.origin, Origin::Flag(_)) {
        return Ok(grace.value.min(most));
    }
    let message = format!("at most a third of the ttl, which is {}", exact(ttl.value));
    Err(wrong(grace, &message).hint(format!("--grace {}   or a longer --ttl", exact(most))))
}

fn wrong(setting: &Setting<Duration>, message: &str) -> Failure {
    let text = format!("{} {}: {message}", setting.origin, exact(setting.value));
    let exit = if matches!(setting.origin, Origin::File { .. }) { exit::CONFIG } else { exit::USAGE };
    Failure::new(Code::VALUE, exit, text)
}
