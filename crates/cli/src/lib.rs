//! `leasehold`, the command: one of N servers runs it.
//!
//! | to change | look in |
//! |---|---|
//! | a flag or its help | `args` |
//! | an exit code | `exit` |
//! | what is said, and when | `talk`, `failure` |
//! | what `run` does, in order | `run` |
//! | when a command is stopped | `timetable` (arithmetic), `supervise` (deeds) |
//! | signals, process groups, the terminal | `signals`, `child`, `sys` |
//! | Ctrl-Z and `fg` | `job`; while waiting in line `stand_in` |
//! | what kills the command when `run` cannot | `guard` |
//! | what the library is asked | `hold` |
//! | leases of scripts, whose steps are processes of their own | `acquire`, `script`, `check`, `keeper` |
//! | the end of somebody else's lease | `breaking` |
//! | what a command may ask of the `run` around it | `sock` (answers), `ask` (questions), `nested` |
//! | what the library is asked | `hold`; of marks and records `books` |
//! | `doctor`, `bench` | `doctor` (what is found stands in the library), `bench`, `bench_rows` |
//! | `--once`, `--at-least`, reports | `options` (flags), `beside` (deeds), `account` |
//!
//! # What this command does not do
//!
//! It never reads anything from the current directory, goes through a shell only under `-c`, and never lets the command's
//! stdin, stdout or stderr pass through itself;
//! `--only-errors` puts files in the place of the latter two.

mod account;
mod acquire;
mod alarm;
mod ancestry;
mod args;
mod ask;
mod bench;
mod bench_rows;
mod beside;
mod books;
mod breaking;
mod care_args;
mod check;
mod child;
mod dashes;
mod doctor;
mod dry_run;
mod exit;
mod explain;
mod failure;
mod guard;
mod history;
mod hold;
mod human;
mod job;
mod keeper;
mod listener;
mod look;
mod look_beside;
mod mark_args;
mod nested;
mod only_errors;
mod options;
mod overdue;
mod pass;
mod pause;
mod plan;
mod report;
mod run;
mod script;
mod script_args;
mod settings;
mod show;
mod signals;
mod sock;
mod stand_in;
mod supervise;
mod sys;
mod talk;
mod timetable;
mod usage;
mod view;
mod waiting;

use std::ffi::OsString;
use std::process::ExitCode;

use args::{Cli, Command};
use failure::Failure;
use leasehold::Code;
use talk::Talk;
use usage::Asked;

/// Runs the command with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    sys::allocate_modestly();
    let words: Vec<OsString> = std::env::args_os().collect();
    if words.get(1).is_some_and(|word| word == guard::FLAG) {
        return ExitCode::from(guard::main(&words));
    }
    if words.get(1).is_some_and(|word| word == stand_in::FLAG) {
        return ExitCode::from(stand_in::main(&words));
    }
    ExitCode::from(obey(&words))
}

fn obey(words: &[OsString]) -> u8 {
    let cli = match usage::parse(words) {
        Ok(Asked::Work(cli)) => cli,
        Ok(Asked::Text(text)) => {
            talk::print(&text);
            return exit::OK;
        }
        Err(failure) => {
            let json = usage::wants_json(words);
            let paint = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
            Talk { level: 0, tty: false, json, paint }.fail(&failure);
            return failure.exit;
        }
    };
    let talk = settings::talk(&cli.global);
    match work(*cli, words, talk) {
        Ok(code) => code,
        Err(failure) => {
            talk.fail(&failure);
            failure.exit
        }
    }
}

fn work(cli: Cli, words: &[OsString], talk: Talk) -> Result<u8, Failure> {
    let Cli { global, command } = cli;
    let Some(command) = command else {
        talk::print(&show::first_screen(&global));
        return Ok(exit::OK);
    };
    match command {
        Command::Explain(args) => explain::explain(args.subject.as_deref()),
        Command::Config(args) => show::config(args, &global, talk),
        Command::Run(args) => block_on(run::run(*args, &global, words, talk)),
        Command::Acquire(args) => block_on(acquire::acquire(args, &global, talk)),
        Command::Try(args) => block_on(acquire::only_try(args, &global, talk)),
        Command::Check(args) => block_on(check::check(args, &global, talk)),
        Command::Renew(args) => block_on(script::renew(args, &global, talk)),
        Command::Release(args) => block_on(script::release(args, &global, talk)),
        Command::Break(args) => block_on(breaking::end(args, &global, talk)),
        Command::Keeper(args) => block_on(keeper::keep(args, &global, talk)),
        Command::List(args) => block_on(look::list(args, &global, talk)),
        Command::Status(args) => block_on(look::status(args, &global, talk)),
        Command::Pause(args) => block_on(pause::pause(args, &global, talk)),
        Command::Resume(args) => block_on(pause::resume(args, &global, talk)),
        Command::Doctor(args) => block_on(doctor::doctor(args, &global, talk)),
        Command::Bench(args) => block_on(bench::bench(args, &global, talk)),
        Command::Forget(args) => block_on(pause::forget(args, &global, talk)),
    }
}

/// On this thread, which lives as long as the process: what a child is told of its parent's death would follow
/// the thread that started it.
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        Failure::new(Code::BUG, exit::BUG, format!("cannot set up timers and I/O: {error}"))
    })?;
    runtime.block_on(work)
}
