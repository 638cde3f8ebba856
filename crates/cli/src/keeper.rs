//! The background renewer of `acquire --while-pid`: it renews the lease until a process ends, and gives it back.

use std::io::{self, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::{Code, Error, LeaseTicket, LockName};

use crate::ancestry;
use crate::args::Global;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::script_args::KeeperArgs;
use crate::talk::Talk;
use crate::{exit, hold, script, settings};

/// What the renewer says once the lease is in its hands.
const READY: &str = "ready";
/// The longest lease ticket, and the longest word of a renewer.
const MOST_BYTES: u64 = 64 << 10;
/// How long the renewer may take besides what the store takes.
const TO_START: Duration = Duration::from_secs(5);

/// A process to be waited for: by its number and its start, since numbers are used again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watched {
    pub(crate) pid: u32,
    started: u64,
}

impl Watched {
    pub(crate) fn find(pid: u32) -> Result<Self, Failure> {
        let failure = |text: &str| Failure::usage(Code::VALUE, format!("--while-pid {pid}: {text}"));
        if cfg!(not(target_os = "linux")) {
            return Err(failure("only on Linux").hint("leasehold renew   prolongs a lease"));
        }
        match ancestry::look(pid) {
            Some(process) => Ok(Self { pid, started: process.started }),
            None => Err(failure("there is no such process").hint("--while-pid $$   is the script itself")),
        }
    }
}

/// The renewer, while it is ours to stop.
pub(crate) struct Keeper(Option<Child>);

impl Keeper {
    /// Starts it, and returns once the lease is in its hands.
    pub(crate) async fn start(
        plan: &Plan,
        ticket: &LeaseTicket,
        watched: Watched,
        global: &Global,
    ) -> Result<Self, Failure> {
        let failed = |text: &str| {
            let message = format!("the background renewer could not be started: {text}");
            Failure::new(Code::BUG, exit::BUG, message).row("effect", "the lease was given back")
        };
        let mut child = command(plan, watched, global).spawn().map_err(|error| failed(&error.to_string()))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let keeper = Self(Some(child));
        let ticket = ticket.to_bytes();
        // It may take as long as the store does, and signals must be heard meanwhile.
        let talks = tokio::task::spawn_blocking(move || -> io::Result<String> {
            let (mut stdin, stdout) = stdin.zip(stdout).ok_or(io::ErrorKind::BrokenPipe)?;
            stdin.write_all(&ticket)?;
            drop(stdin);
            let mut word = String::new();
            stdout.take(MOST_BYTES).read_to_string(&mut word)?;
            Ok(word)
        });
        // Opening, renewing, and both with retries.
        let most = plan.store.timeout.value * 2 + TO_START;
        match tokio::time::timeout(most, talks).await {
            Ok(Ok(Ok(word))) if word == READY => Ok(keeper),
            Ok(Ok(Ok(word))) => Err(failed(if word.is_empty() { "it ended at once" } else { &word })),
            Ok(Ok(Err(error))) => Err(failed(&error.to_string())),
            Ok(Err(error)) => Err(failed(&error.to_string())),
            Err(_) => Err(failed("it does not answer")),
        }
    }

    /// Leaves it alone.
    pub(crate) fn let_go(mut self) {
        self.0 = None;
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// This very program, whatever has become of its file. The lease comes through its stdin, and what was set by
/// flags through its environment: arguments can be read by everybody.
fn command(plan: &Plan, watched: Watched, global: &Global) -> Command {
    let Global { store, namespace, scope, timeout, config, .. } = global;
    let mut command = Command::new("/proc/self/exe");
    std::os::unix::process::CommandExt::arg0(&mut command, "leasehold");
    command.args(["keeper", "--pid", &watched.pid.to_string(), "--started", &watched.started.to_string()]);
    command.args(["--", plan.name.as_str()]);
    let exact = |duration: &Duration| leasehold::config::exact(*duration);
    let set = [
        ("LEASEHOLD_STORE", store.clone()),
        ("LEASEHOLD_NAMESPACE", namespace.clone()),
        ("LEASEHOLD_SCOPE", scope.as_ref().map(ToString::to_string)),
        ("LEASEHOLD_TIMEOUT", timeout.as_ref().map(exact)),
    ];
    command.envs(set.into_iter().filter_map(|(name, value)| Some((name, value?))));
    command.envs(config.iter().map(|path| ("LEASEHOLD_CONFIG", path)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// The work of the renewer.
pub(crate) async fn keep(args: KeeperArgs, global: &Global, talk: Talk) -> Result<u8, Failure> {
    let ended = go_on(&args, global, talk).await;
    if let Err(failure) = &ended {
        // To whoever started us, if he still listens.
        crate::talk::print(&failure.message);
    }
    ended
}

async fn go_on(args: &KeeperArgs, global: &Global, talk: Talk) -> Result<u8, Failure> {
    let bug = |what: &str, error: &dyn std::fmt::Display| {
        Failure::new(Code::BUG, exit::BUG, format!("{what}: {error}"))
    };
    // Out of reach of the terminal and of what is sent to the job that the script is.
    let _ = rustix::process::setsid();
    let mut bytes = Vec::new();
    io::stdin()
        .lock()
        .take(MOST_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| bug("no lease was given", &error))?;
    let ticket = LeaseTicket::from_bytes(&bytes)?;
    let name = LockName::parse(&args.name)?;
    let config = settings::config(global)?;
    let (client, timeout) = script::open(&config, &name, talk, |builder| builder).await?;
    let failed = |error: &Error| hold::failure(error, "the lease runs to its end", false);
    let lease = client.resume(ticket).await.map_err(|error| failed(&error))?;
    let process = Process::open(args).map_err(|error| bug("the process cannot be waited for", &error))?;
    say_ready().map_err(|error| bug("nobody listens", &error))?;
    tokio::select! {
        biased;
        _ = lease.lost() => {}
        () = process.ended() => {}
    }
    // Given back meanwhile by the script itself, as a rule: then there is nothing left to do.
    let released = lease.release().await;
    hold::close(client, timeout, talk).await;
    released.map(|()| exit::OK).map_err(|error| failed(&error))
}

/// Says so, and lets go of both pipes.
fn say_ready() -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(READY.as_bytes())?;
    stdout.flush()?;
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}

/// The process that the lease is kept for.
#[cfg(target_os = "linux")]
struct Process(Option<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>>);

#[cfg(target_os = "linux")]
impl Process {
    fn open(args: &KeeperArgs) -> io::Result<Self> {
        use rustix::process::{Pid, PidfdFlags, pidfd_open};
        let pid = i32::try_from(args.pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(rustix::io::Errno::SRCH) => return Ok(Self(None)),
            Err(error) => return Err(error.into()),
        };
        // From here on the descriptor is of one process for good; whether it is the right one, its start tells.
        if ancestry::look(args.pid).is_none_or(|process| process.started != args.started) {
            return Ok(Self(None));
        }
        Ok(Self(Some(crate::sys::readable(process)?)))
    }

    /// Returns once it has ended.
    async fn ended(&self) {
        if let Some(process) = &self.0 {
            drop(process.readable().await);
        }
    }
}

#[cfg(not(target_os = "linux"))]
struct Process;

#[cfg(not(target_os = "linux"))]
impl Process {
    fn open(_: &KeeperArgs) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn ended(&self) {}
}
