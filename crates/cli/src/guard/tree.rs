//! The processes of a command, found by walking down from whoever adopts them, and how all of them are killed.

use std::collections::HashSet;
use std::fs;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitIdStatus, getpid, kill_process, pidfd_open, pidfd_send_signal,
};

/// More rounds than a tree that forks as fast as it can survives: each round stops what it finds.
const ROUNDS: usize = 100;
/// From this walk on, what is found is stopped before it is killed.
const GROWS_ON: usize = 4;
/// So many names are told.
const NAMES: usize = 3;

/// How a process ended, as `waitpid` would tell it.
pub(super) fn status(end: &WaitIdStatus) -> i32 {
    match (end.exit_status(), end.terminating_signal()) {
        (Some(code), _) => (code & 0xff) << 8,
        (None, signal) => signal.unwrap_or(libc::SIGKILL),
    }
}

/// Where to look for the processes of a command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Roots {
    /// Everything below it belongs to the command; not the process itself.
    pub(super) below: Option<Pid>,
    /// Besides: a command that is not below us, with its group.
    pub(super) command: Option<Pid>,
    /// Neither this one nor what is below it.
    pub(super) except: Option<Pid>,
}

/// What `/proc/PID/stat` tells.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    name: String,
    dead: bool,
    parent: i32,
    group: i32,
    session: i32,
}

impl Stat {
    fn of(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // The name may hold anything, brackets too.
        let (front, rest) = text.rsplit_once(')')?;
        let name = front.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<i32>().ok();
        // A first thread that ended before the others looks like a zombie, and its process is none.
        let dead = matches!(*fields.first()?, "Z" | "X" | "x") && number(17)? <= 1;
        Some(Self { name, dead, parent: number(1)?, group: number(2)?, session: number(3)? })
    }
}

/// The numbers of all processes.
fn all() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The children of a process, those of each of its threads.
pub(super) fn children(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for thread in threads {
        match fs::read_to_string(thread.path().join("children")) {
            Ok(text) => found.extend(text.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok())),
            // A kernel without that file; a process that ended has no folder either.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && thread.path().exists() => {
                return all().into_iter().filter(|one| is_child(*one, pid)).collect();
            }
            Err(_) => {}
        }
    }
    found
}

fn is_child(pid: i32, parent: i32) -> bool {
    Stat::of(pid).is_some_and(|stat| stat.parent == parent)
}

/// Whether this number is that of a living process.
pub(super) fn lives(pid: i32) -> bool {
    Stat::of(pid).is_some_and(|stat| !stat.dead)
}

impl Roots {
    /// Everything below this process.
    pub(super) fn own() -> Self {
        Self { below: Some(getpid()), command: None, except: None }
    }

    /// The living processes, parents before their children.
    pub(super) fn living(self) -> Vec<i32> {
        let Self { below, command, except } = self;
        let raw = |pid: Option<Pid>| pid.map(|pid| pid.as_raw_nonzero().get());
        let (below, command, except) = (raw(below), raw(command), raw(except));
        let mut open: Vec<i32> = below.into_iter().flat_map(children).collect();
        if let Some(command) = command {
            open.push(command);
            // As `/proc` tells it: in a container the session may be of outside and has no number here, which is 0.
            let session = Stat::of(getpid().as_raw_nonzero().get()).map_or(0, |own| own.session);
            // A group never spans sessions, so a stranger that got the number later is told by its session.
            open.extend(all().into_iter().filter(|pid| {
                Stat::of(*pid).is_some_and(|stat| stat.group == command && stat.session == session)
            }));
        }
        let mut seen = HashSet::new();
        let mut living = Vec::new();
        let mut at = 0;
        while let Some(&pid) = open.get(at) {
            at += 1;
            if Some(pid) == except || pid == getpid().as_raw_nonzero().get() || !seen.insert(pid) {
                continue;
            }
            open.extend(children(pid));
            if Stat::of(pid).is_some_and(|stat| !stat.dead) {
                living.push(pid);
            }
        }
        living
    }

    /// How many processes live, and the first of them by name: `nginx (812)`.
    pub(super) fn described(self, without: Option<i32>) -> (u32, String) {
        let mut living = self.living();
        living.retain(|pid| Some(*pid) != without);
        let names = living.iter().take(NAMES).map(|pid| match Stat::of(*pid) {
            Some(stat) => format!("{} ({pid})", stat.name),
            None => format!("({pid})"),
        });
        let mut names = names.collect::<Vec<_>>().join(", ");
        if living.len() > NAMES {
            names.push_str(", ..");
        }
        (u32::try_from(living.len()).unwrap_or(u32::MAX), names)
    }

    /// Sends a signal to each.
    pub(super) fn signal(self, signal: Signal) {
        let held: Vec<Target> = self.living().into_iter().filter_map(Target::hold).collect();
        let still: HashSet<i32> = self.living().into_iter().collect();
        for target in held.iter().filter(|target| still.contains(&target.number())) {
            target.send(signal);
        }
    }

    /// Kills all that is found, until nothing new is. If something new is found again and again, those of one walk are
    /// all stopped before the first of them is killed, so none is born again by another. Tells how many there were.
    pub(super) fn kill(self) -> usize {
        let mut targets: Vec<Target> = Vec::new();
        let mut held: Vec<Target> = Vec::new();
        for round in 0..ROUNDS {
            let living = self.living();
            // What was held since the last walk and is found again by this one was not a stranger when it was
            // held: a number that was given away meanwhile would not be in the tree.
            let confirmed: Vec<Target> =
                held.drain(..).filter(|target| living.contains(&target.number())).collect();
            // A guard that is killed between STOP and KILL leaves a tree that is stopped, and a lock that is held, for
            // ever; so only a tree that goes on growing is stopped first.
            if round >= GROWS_ON {
                confirmed.iter().for_each(|target| target.send(Signal::STOP));
            }
            confirmed.iter().for_each(|target| target.send(Signal::KILL));
            targets.extend(confirmed);
            let known: HashSet<i32> = targets.iter().map(Target::number).collect();
            held.extend(living.into_iter().filter(|pid| !known.contains(pid)).filter_map(Target::hold));
            if held.is_empty() {
                break;
            }
        }
        targets.len()
    }
}

/// A process that is about to get a signal.
struct Target {
    pid: Pid,
    /// Holds on to the process, not to its number: what gets that number later never gets the signal.
    exact: Option<OwnedFd>,
}

impl Target {
    fn hold(number: i32) -> Option<Self> {
        let pid = Pid::from_raw(number)?;
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(exact) => Some(Self { pid, exact: Some(exact) }),
            Err(Errno::NOSYS) => Some(Self { pid, exact: None }),
            Err(_) => None,
        }
    }

    fn number(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    fn send(&self, signal: Signal) {
        // One that has ended, and one of another user, are both out of reach.
        let _ = match &self.exact {
            Some(exact) => pidfd_send_signal(exact, signal),
            None => kill_process(self.pid, signal),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_stat_is_read_whatever_the_name() {
        let rest = "S 7 8 9 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 5";
        let stat = Stat::parse(&format!("12 (a) (b) {rest}")).unwrap();
        let expected = Stat { name: "a) (b".to_owned(), dead: false, parent: 7, group: 8, session: 9 };
        assert_eq!(stat, expected);
        assert!(Stat::parse(&format!("12 (z) {}", rest.replacen('S', "Z", 1))).unwrap().dead);
        let threads = rest.replacen('S', "Z", 1).replace("20 0 1 0", "20 0 4 0");
        assert!(!Stat::parse(&format!("12 (z) {threads}")).unwrap().dead);
    }
}
