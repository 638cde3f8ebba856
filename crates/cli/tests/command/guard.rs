//! Checks 8, 9, 10 and 21: the command's whole tree is dead before its lease is, whoever is killed or frozen.

use std::path::Path;
use std::time::Duration;

use leasehold::Clock;

use crate::stage::{Place, Running, code, signal, stderr, stdout, timed, until};

/// A command with a child, a grandchild that left its session, and one that was orphaned by a double fork. Each
/// writes its number into `tree` first.
pub(crate) const TREE: &str = "\
    me() { echo $1 >> tree; }; \
    sleep 600 & me $!; \
    setsid sh -c 'echo $$ >> tree; sleep 600 & echo $! >> tree; wait' & \
    (setsid sh -c 'echo $$ >> tree; exec sleep 600' &) ; \
    me $$; \
    until [ $(wc -l < tree) -ge 5 ]; do sleep 0.01; done; \
    echo up > planted; ";
const OF_TREE: usize = 5;

/// Exits with 9 if any of them lives; a zombie does not.
const NOBODY_LIVES: &str = "for pid in $(cat tree); do \
    case $(sed -n 's/^State:[^A-Z]*\\(.\\).*/\\1/p' /proc/$pid/status 2> /dev/null) in Z | X | '') ;; *) exit 9 ;; esac; \
    done;";

/// Starts a command with a tree below it, and tells the numbers of its processes.
pub(crate) fn planted(place: &Place, flags: &[&str], then: &str) -> (Running, Vec<u32>) {
    for file in ["tree", "planted"] {
        let _ = std::fs::remove_file(place.path(file));
    }
    let running = place.start(flags, &format!("{TREE} {then}"));
    until("the tree has grown", || place.read("planted") == "up\n");
    let tree: Vec<u32> = place.read("tree").lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(tree.len(), OF_TREE, "{tree:?}");
    assert_eq!(living(&tree), tree);
    (running, tree)
}

/// Which of these live: a zombie does not.
pub(crate) fn living(pids: &[u32]) -> Vec<u32> {
    let lives = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    };
    pids.iter().copied().filter(lives).collect()
}

/// The guard of a `run`.
pub(crate) fn guard_of(running: &Running) -> Option<u32> {
    guard_under(running.pid())
}

/// The same by the number of the `run`.
pub(crate) fn guard_under(run: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{run}/task/{run}/children")).unwrap_or_default();
    let name = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .find(|pid| name(pid) == "leasehold-guard\n")
}

/// Waits for a condition as an observer that knows how long it was not looking: a bound that was missed says
/// nothing when the observer itself was kept from the processor for so long.
pub(crate) struct Seen {
    pub(crate) after: Duration,
    pub(crate) gap: Duration,
}

/// What is watched has a bound of three seconds at most. So long after it, it does not come at all; a planted fault is
/// ended after half a minute, and shall be caught before.
const NEVER: Duration = Duration::from_secs(12);

pub(crate) fn watch(what: &str, mut holds: impl FnMut() -> bool) -> Seen {
    let clock = Clock::system();
    let start = clock.now();
    let (mut last, mut gap) = (start, Duration::ZERO);
    loop {
        let there = holds();
        let now = clock.now();
        gap = gap.max(now.since(last));
        last = now;
        if there {
            return Seen { after: now.since(start), gap };
        }
        assert!(now.since(start) < NEVER, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Repeats a round up to three times as long as its bound was missed and the observer was not looking: for a quarter of
/// the ttl, or for as long as the bound was missed by.
pub(crate) fn within(bound: Duration, ttl: Duration, mut round: impl FnMut() -> Seen) {
    for attempt in 1..=3 {
        let Seen { after, gap } = round();
        if after <= bound {
            return;
        }
        let blind = gap > ttl / 4 || after.saturating_sub(gap) <= bound;
        assert!(blind && attempt < 3, "{after:?} instead of {bound:?}, with a gap of {gap:?}");
    }
}

#[test]
fn check_08_a_killed_run_takes_its_whole_tree_with_it_in_half_a_second() {
    within(Duration::from_millis(500), Duration::from_secs(3), || {
        let place = Place::new();
        let (running, tree) = planted(&place, &["--ttl", "3s"], "wait");
        running.signal("KILL");
        let seen = watch("the tree is dead", || living(&tree).is_empty());
        // Whoever comes next enters after that, and alone.
        let script = format!("{NOBODY_LIVES} exit 0");
        let next = place.leasehold(["run", "demo", "-w30s", "--", "sh", "-c", &script]).output().unwrap();
        assert_eq!(code(next.status), 0, "{next:?}");
        seen
    });
}

#[test]
fn check_08_nobody_enters_while_the_tree_lives() {
    let place = Place::new();
    // It cannot be asked whether it is alone after it is dead, so the next one asks as its first deed.
    let script = format!("{NOBODY_LIVES} exit 0");
    let (running, _) = planted(&place, &["--ttl", "3s"], "wait");
    let waiter = Running::of(place.leasehold(["run", "demo", "-w30s", "--", "sh", "-c", &script]));
    until("it stands in line", || place.status("demo")["waiters"].as_array().unwrap().len() == 1);
    running.signal("KILL");
    assert_eq!(code(waiter.output().status), 0);
}

#[test]
fn check_09_a_frozen_run_is_a_dead_holder() {
    let place = Place::new();
    let script = "trap 'echo term >> heard' TERM; while :; do sleep 0.05; done";
    let (running, tree) = planted(&place, &["--ttl", "3s"], script);
    let script = format!("{NOBODY_LIVES} echo in > in; exit 0");
    let waiter = Running::of(place.leasehold(["run", "demo", "-w30s", "--", "sh", "-c", &script]));
    until("it stands in line", || place.status("demo")["waiters"].as_array().unwrap().len() == 1);
    running.signal("STOP");
    let seen = watch("the tree is dead", || living(&tree).is_empty());
    // The last renewal was before the freeze: from there it is less than a ttl.
    assert!(seen.after < Duration::from_secs(3), "{:?}, with a gap of {:?}", seen.after, seen.gap);
    assert_eq!(place.read("heard"), "term\n", "the guard asks first");
    assert!(!Path::new(&place.path("in")).exists(), "the next one came before the tree was dead");
    assert_eq!(code(waiter.output().status), 0);
    running.signal("CONT");
    let output = running.output();
    assert_eq!(code(output.status), 79, "{output:?}");
    assert!(stderr(&output).contains("error[LH0031]: lost demo (token "), "{output:?}");
}

#[test]
fn check_10_a_killed_guard_is_replaced_within_a_second_with_one_warning() {
    within(Duration::from_secs(1), Duration::from_secs(30), || {
        let place = Place::new();
        let (running, tree) = planted(&place, &[], "until [ -e done ]; do sleep 0.02; done; exit 6");
        let first = guard_of(&running).expect("it has a guard");
        signal(first, "KILL");
        let seen = watch("there is a new guard", || guard_of(&running).is_some_and(|guard| guard != first));
        assert_eq!(living(&tree), tree, "the command goes on");
        // The new one does what the first would have done.
        place.write("done", "");
        until("the command is dead", || !living(&tree).contains(&tree[3]) || living(&tree).len() < OF_TREE);
        let output = {
            running.signal("TERM");
            running.signal("TERM");
            running.output()
        };
        let text = stderr(&output);
        assert_eq!(text.matches("warning: ").count(), 1, "{text}");
        assert!(text.contains("the guard of the command was killed; another one watches now"), "{text}");
        assert!(living(&tree).is_empty(), "{text}");
        seen
    });
}

#[test]
fn check_10_the_new_guard_guards() {
    the_new_guard_guards();
}

/// As where a container is entered from outside, and where the first process of a machine never made a session: the
/// number of the session is 0. A new guard once ended at that, and nobody guarded.
#[test]
fn check_10_the_new_guard_guards_in_a_session_without_a_number() {
    let name = "guard::check_10_the_new_guard_guards_in_a_session_without_a_number";
    crate::points::in_a_namespace(name, the_new_guard_guards);
}

fn the_new_guard_guards() {
    for (how, most) in [("KILL", Duration::from_millis(500)), ("STOP", Duration::from_secs(3))] {
        within(most, Duration::from_secs(3), || {
            let place = Place::new();
            // In its group all the time: that much a new guard reaches whatever happens.
            let running =
                place.start(&["--ttl", "3s"], "sleep 600 & echo $! > pids; echo $$ >> pids; wait; sleep 600");
            until("it is there", || place.read("pids").lines().count() == 2);
            let pids: Vec<u32> = place.read("pids").lines().map(|line| line.parse().unwrap()).collect();
            let first = guard_of(&running).unwrap();
            signal(first, "KILL");
            until("there is a new guard", || guard_of(&running).is_some_and(|guard| guard != first));
            // Its name is given by itself; from then on its orders are next.
            running.signal(how);
            watch("the command is dead", || living(&pids).is_empty())
        });
    }
}

#[test]
fn check_21_a_command_that_takes_too_long_is_stopped_with_all_its_tree() {
    let place = Place::new();
    let script = "trap 'echo term >> heard' TERM; while :; do sleep 0.05; done";
    let ((output, tree), took) = timed(|| {
        let (running, tree) = planted(&place, &["--at-most", "2s", "--grace", "500ms"], script);
        (running.output(), tree)
    });
    assert_eq!(code(output.status), 124, "{output:?}");
    assert!(took >= Duration::from_millis(2500), "{took:?}");
    assert_eq!(place.read("heard"), "term\n");
    assert!(living(&tree).is_empty());
    assert!(place.is_free("demo"));
    let status = place.leasehold(["status", "demo"]).output().unwrap();
    assert!(stdout(&status).contains("recent   AT-MOST "), "{status:?}");
}

#[test]
fn a_guard_does_not_keep_the_pipes_of_its_command_open() {
    let place = Place::new();
    let running = place.start(&[], "exec > /dev/null 2>&1; until [ -e done ]; do sleep 0.02; done");
    let guard = guard_of(&running).expect("it has a guard");
    for descriptor in 0..=2 {
        // It lets go of them once the command is there, and the command may be the quicker.
        until(&format!("descriptor {descriptor} is let go of"), || {
            let file = std::fs::read_link(format!("/proc/{guard}/fd/{descriptor}")).unwrap();
            file == Path::new("/dev/null")
        });
    }
    place.write("done", "");
    assert_eq!(code(running.output().status), 0);
}

#[test]
fn nothing_secret_and_no_guard_of_their_own_for_people() {
    let place = Place::new();
    for words in [vec!["--guard"], vec!["--guard", "1"], vec!["--guard", "77", "--", "true"]] {
        let output = place.leasehold(words).output().unwrap();
        assert_eq!(code(output.status), 64, "{output:?}");
    }
    let running = place.start(&[], "sleep 600");
    let guard = guard_of(&running).expect("it has a guard");
    let words = std::fs::read_to_string(format!("/proc/{guard}/cmdline")).unwrap();
    let number = words.split('\0').nth(2).unwrap();
    assert!(number.parse::<u32>().is_ok(), "{words:?}");
    assert_eq!(words.split('\0').nth(3), Some("--"), "{words:?}");
}

/// Also when the command had ended before: the lease is what matters.
#[test]
fn a_run_that_is_frozen_after_its_command_ended_lets_others_in() {
    let place = Place::new();
    let running = place.start(&["--ttl", "2s"], "until [ -e done ]; do sleep 0.01; done");
    running.signal("STOP");
    place.write("done", "");
    let next = place.leasehold(["run", "demo", "-w20s", "--", "true"]).output().unwrap();
    assert_eq!(code(next.status), 0, "{next:?}");
    running.signal("CONT");
    assert_eq!(code(running.output().status), 79);
}

/// The cgroup of a process, if it is one of ours.
fn shelter_of(pid: u32) -> Option<std::path::PathBuf> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?.to_owned();
    let folders = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(|root| Path::new(root).join(&path));
    let ours = path.rsplit('/').next()?.starts_with("leasehold-");
    folders.into_iter().find(|folder| ours && folder.join("cgroup.kill").exists())
}

#[test]
fn a_cgroup_reaches_all_of_the_tree_although_guard_and_run_are_killed_in_turn() {
    within(Duration::from_millis(500), Duration::from_secs(30), || {
        let place = Place::new();
        let (running, tree) = planted(&place, &[], "wait");
        let clock = Clock::system();
        let start = clock.now();
        until("the command has a cgroup, or gets none", || {
            shelter_of(tree[3]).is_some() || clock.now().since(start) > Duration::from_secs(5)
        });
        let Some(folder) = shelter_of(tree[3]) else {
            eprintln!("skipped: no cgroup of version 2 may be made here");
            running.signal("KILL");
            return Seen { after: Duration::ZERO, gap: Duration::ZERO };
        };
        // One after the other.
        until("all of it is there", || tree.iter().all(|pid| shelter_of(*pid).as_ref() == Some(&folder)));
        let first = guard_of(&running).expect("it has a guard");
        assert_eq!(shelter_of(first), None, "the guard must not kill itself");
        signal(first, "KILL");
        until("there is a new guard", || guard_of(&running).is_some_and(|guard| guard != first));
        running.signal("KILL");
        let seen = watch("the tree is dead", || living(&tree).is_empty());
        until("the cgroup is gone", || !folder.exists());
        seen
    });
}

#[test]
fn what_is_left_to_itself_leaves_no_cgroup_behind() {
    let place = Place::new();
    let running = place.start(
        &["--descendants", "release"],
        "setsid sleep 600 > /dev/null 2>&1 & echo $! > left; until [ -e done ]; do sleep 0.02; done",
    );
    until("it is there", || place.read("left").ends_with('\n'));
    let left: u32 = place.read("left").trim().parse().unwrap();
    let clock = Clock::system();
    let start = clock.now();
    until("the command has a cgroup, or gets none", || {
        shelter_of(left).is_some() || clock.now().since(start) > Duration::from_secs(5)
    });
    let folder = shelter_of(left);
    place.write("done", "");
    assert_eq!(code(running.output().status), 0);
    if let Some(folder) = folder {
        until("the cgroup is gone", || !folder.exists());
    } else {
        eprintln!("skipped: no cgroup of version 2 may be made here");
    }
    assert_eq!(living(&[left]), [left]);
    signal(left, "KILL");
}
