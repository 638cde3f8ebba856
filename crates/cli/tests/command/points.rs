//! `run` and its guard are killed: the command that is tried, and what must be seen whoever was killed when. The moments
//! are chosen in `points_timed` and `points_injected`.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::Clock;
use rustix::process::{Pid, Signal, kill_process};

use crate::stage::{Place, Running, code, until};

/// So many at once: most of the time of each is waiting.
const AT_ONCE: usize = 3;

/// The command whose tree must be dead: it has a child that leaves its session, and one orphaned by a double fork.
/// They live shorter or longer than the command itself, which says if somebody else was in before its first deed, and
/// where it is.
pub(crate) const FIRST: &str = "\
    echo > began; \
    [ ! -e in ] || echo late > wrong; \
    setsid sleep $OTHERS & \
    (setsid sh -c 'sleep $OTHERS; [ ! -e in ] || echo late > wrong' &); \
    sleep $ITSELF; \
    echo > ended; \
    [ ! -e in ] || echo late > wrong";

/// The next holder: none of the processes of the first command may live when it begins, nor begin to live later. A
/// process is told by the token in its environment; of a zombie none can be read.
pub(crate) const NEXT: &str = "\
    echo in > in; \
    alone() { \
        for file in $(grep -lszxF \"HOME=$HOME\" /proc/[0-9]*/environ); do \
            token=$(tr '\\0' '\\n' 2> /dev/null < $file | sed -n 's/^LEASE_TOKEN=//p'); \
            [ -z \"$token\" ] || [ \"$token\" = \"$LEASE_TOKEN\" ] || { echo \"$file $token\" >> wrong; exit 9; }; \
        done 2> /dev/null; \
    }; \
    alone; sleep 0.05; alone";

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victim {
    Run,
    Guard,
    Both,
}

/// How long the command itself lives.
pub(crate) const ITSELF: Duration = Duration::from_millis(250);

/// Nothing of a tree that nobody stopped lives so long.
const STUCK: Duration = Duration::from_secs(4);

fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// Returns what there is once there is something, without a pause that would hide a short moment.
pub(crate) fn soon<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let clock = Clock::system();
    let start = clock.now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(clock.now().since(start) < Duration::from_secs(30), "in vain: {what}");
        std::thread::yield_now();
    }
}

pub(crate) fn kill(pid: u32) {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        // It may have ended just now.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// All that lives with the home of a place: each `run`, guard and command of its.
pub(crate) fn inhabitants(place: &Place) -> Vec<u32> {
    let home = format!("HOME={}", place.path("").display());
    let home = home.trim_end_matches('/').as_bytes();
    let lives_here = |pid: &u32| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|entry| entry == home)
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(lives_here).collect()
}

/// Ends all that lives in a place, also when a test fails.
pub(crate) struct Cleared<'a>(pub(crate) &'a Place);

impl Drop for Cleared<'_> {
    fn drop(&mut self) {
        inhabitants(self.0).into_iter().for_each(kill);
    }
}

/// The command that is tried, under a lease of one second. The others of its tree live so long.
pub(crate) fn first(place: &Place, flags: &[&str], others: Duration) -> Running {
    let words = ["run", "demo", "-q", "--ttl", "1s"].iter().chain(flags).chain(&["--", "sh", "-c", FIRST]);
    let mut first = place.leasehold(words);
    first.env("ITSELF", ITSELF.as_secs_f64().to_string()).env("OTHERS", others.as_secs_f64().to_string());
    Running::of(first)
}

/// The holder after it.
pub(crate) fn next(place: &Place) -> Running {
    Running::of(place.leasehold(["run", "demo", "-w30s", "--", "sh", "-c", NEXT]))
}

/// What must be seen after a kill: the next one comes in, alone, and nothing of the first is left; or what is wrong.
pub(crate) fn aftermath(
    place: &Place,
    victim: Victim,
    mut first: Running,
    mut next: Running,
) -> Result<(), String> {
    let waited = Clock::system();
    let start = waited.now();
    let mut stuck = Vec::new();
    until("the next one has been in", || {
        // A guard that stopped a tree and was killed before it killed it would leave it stopped, and the lock held:
        // safe, but for ever. Helped on, so that the rest is seen, and said in the end.
        if victim == Victim::Both && waited.now().since(start) > STUCK {
            for pid in inhabitants(place).into_iter().filter(|pid| is_stopped(*pid)) {
                stuck.push(pid);
                let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::CONT);
            }
        }
        !next.is_running()
    });
    let mut output = next.output();
    // A grant to one who has waited is short, and on a busy machine it may be over before it is renewed. That is safe,
    // and says nothing about the first.
    if code(output.status) == 79 {
        output = self::next(place).output();
    }
    if !stuck.is_empty() {
        return Err(format!("left stopped, with the lock held: {stuck:?}"));
    }
    let wrong = place.read("wrong");
    if code(output.status) != 0 || !wrong.is_empty() {
        return Err(format!("{wrong:?}, {output:?}"));
    }
    until("the first one has ended", || !first.is_running());
    // Nothing of it begins or ends later, either.
    until("nobody is left", || inhabitants(place).is_empty());
    let wrong = place.read("wrong");
    if wrong.is_empty() { Ok(()) } else { Err(format!("{wrong:?}")) }
}

/// Tries all of these, a few at a time.
pub(crate) fn all<P: Sync, T: Send>(points: &[P], strike: impl Fn(&P) -> T + Sync) -> Vec<T> {
    let taken = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let strike_all = || {
            let next = || points.get(taken.fetch_add(1, Ordering::Relaxed));
            std::iter::from_fn(next).map(&strike).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(strike_all)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// Whether the long form is asked for.
pub(crate) fn is_proof() -> bool {
    std::env::var_os("LEASEHOLD_PROVE").is_some()
}

/// Set where a test runs again, inside a namespace of its own.
const INSIDE: &str = "LEASEHOLD_TEST_INSIDE";

/// Does this in a namespace of process ids, where one can be made: a guard that took strangers for its tree, as one
/// once did when its parent had become init, then reaches nobody but this test, whose name is told.
pub(crate) fn in_a_namespace(test: &str, deed: impl FnOnce()) {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
        command
    };
    let outside = std::env::var_os(INSIDE).is_none();
    if outside && unshare().arg("true").status().is_ok_and(|status| status.success()) {
        let again = ["--exact", test, "--nocapture"];
        let output =
            unshare().arg(std::env::current_exe().unwrap()).args(again).env(INSIDE, "1").output().unwrap();
        println!("{}", String::from_utf8_lossy(&output.stdout));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        // What it skipped must be heard, too.
        eprint!("{said}");
        return;
    }
    deed();
}
