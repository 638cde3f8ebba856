//! The cases of the proof `wrappers`: a shell script each, the same for every wrapper, that tells what it saw.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::Result;
use crate::stopwatch::Stopwatch;

/// No case takes longer.
const LONGEST: Duration = Duration::from_secs(6);
/// How often a running script is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What the scripts have in common. `hold` becomes the wrapper that waits and then runs a command, `attempt` one that
/// gives up soon, `limited` one that waits and bounds the command by its own means, if it has any; all three are defined
/// for each wrapper.
const COMMON: &str = r#"
say() { echo "$*" >&3; exit 0; }
alive() { grep -qs ') [^ZX] ' "/proc/$1/stat"; }
seen() { # FILE TENTHS: waits until something is in the file
    tenths=$2
    until [ -s "$1" ]; do
        [ "$tenths" -gt 0 ] || return 1
        tenths=$((tenths - 1)); sleep 0.1
    done
}
started() { seen pid 15 || say 'fails the command did not start'; }
# The second: when it gets in, it looks whether the first command is still running.
second() { hold sh -c 'if grep -qs ") [^ZX] " "/proc/$(cat pid)/stat"; then echo overlap; else echo after; fi >second'; }
# Whether the second gets in beside what is in `pid`; if not, it must get in after the end of that.
judge() {
    if ! seen second 34 && alive "$(cat pid)"; then
        kill -CONT "$first" 2>/dev/null
        kill -KILL "$(cat pid)"
        seen second 10 && [ "$(cat second)" = after ] && say "holds locked as long as $1 lived"
        say "fails nobody got in when $1 had ended"
    fi
    case $(cat second) in
        after) say "holds $1 was dead before the second got in" ;;
        overlap) say "fails the second got in beside $1" ;;
        *) say "fails $1 was dead, and the second did not get in" ;;
    esac
}
"#;

/// One question.
pub(super) struct Case {
    pub(super) question: &'static str,
    script: &'static str,
}

/// All cases. The ttl, where there is one, is 2 s.
pub(super) const CASES: &[Case] = &[
    Case {
        question: "SIGKILL of the wrapper: nobody gets in beside the command",
        script: "hold sh -c 'echo $$ >pid; exec sleep 30' & first=$!
            started; second & kill -KILL $first; judge 'the command'",
    },
    Case {
        question: "SIGSTOP of the wrapper beyond the ttl: nobody gets in beside the command",
        script: "hold sh -c 'echo $$ >pid; exec sleep 30' & first=$!
            started; second & kill -STOP $first; judge 'the command'",
    },
    Case {
        question: "SIGTERM to the wrapper: the command gets it, and the lock is free only after its end",
        script: r#"hold sh -c 'trap "echo got >term; sleep 0.5; exit 0" TERM; echo $$ >pid; while :; do sleep 0.1; done' &
            first=$!
            started; second & kill -TERM $first; seen second 34
            got=$(cat term 2>/dev/null); in=$(cat second 2>/dev/null)
            case $got-$in in
                got-after) say 'holds the command cleaned up, then the second got in' ;;
                got-overlap) say 'fails the command got it, and the second came in while it cleaned up' ;;
                -overlap) say 'fails the command did not get it, and the second came in beside it' ;;
                -) say 'fails the command did not get it; it went on, and the lock with it' ;;
                *) say 'fails the command ended without a chance to clean up' ;;
            esac"#,
    },
    Case {
        question: "A background child outlives the command: nobody gets in beside it",
        script: "hold sh -c 'setsid sleep 30 </dev/null >/dev/null 2>&1 & echo $! >pid; sleep 0.2' & first=$!
            started; second & judge 'the child'",
    },
    Case {
        question: "The command's exit code 7 comes through",
        script: "(hold sh -c 'exit 7'); code=$?
            [ $code = 7 ] && say 'holds exit code 7'; say \"fails exit code $code\"",
    },
    Case {
        question: "A killed command gives 137",
        script: "(hold sh -c 'kill -KILL $$'); code=$?
            [ $code = 137 ] && say 'holds exit code 137'; say \"fails exit code $code\"",
    },
    Case {
        question: "Busy: the second says who has it",
        script: r#"hold sh -c 'echo $$ >pid; exec sleep 30' & first=$!
            started; attempt true >said 2>&1
            grep -qwE "$first|$(cat pid)" said && say 'holds it names the process that has it'
            [ -s said ] && say "fails it says: $(tail -n 1 said)"
            say 'fails it says nothing'"#,
    },
    Case {
        question: "The command sees a fencing token that rises",
        script: r#"env >env0
            for turn in 1 2 3; do (hold env >"env$turn"); done
            given=$(awk -F= '
                FILENAME == "env0" { was[$1] = 1; next }
                $1 == "_" || $1 in was { next }
                { added = 1 }
                $1 !~ /PID/ && $2 ~ /^[0-9]+$/ && $2 > last[$1] + 0 { last[$1] = $2 + 0; rises[$1]++ }
                END { for (name in rises) if (rises[name] == 3) { print name; exit } if (added) print "-" }
            ' env0 env1 env2 env3)
            case $given in
                '') say 'not applicable it gives the command no variable' ;;
                -) say 'fails it gives variables, none of which rises' ;;
                *) say "holds $given" ;;
            esac"#,
    },
    Case {
        question: "A hung command is ended by a limit of the wrapper",
        script: "limited sh -c 'echo $$ >pid; exec sleep 30' & first=$!
            started; second & seen second 30 && judge 'the command'
            say 'fails it had no end within 3 s'",
    },
];

/// What a script said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) word: &'static str,
    pub(super) seen: String,
}

impl Verdict {
    fn of(said: &str) -> Self {
        let words = ["holds", "fails", "not applicable"];
        let found = words.iter().find_map(|word| Some((*word, said.strip_prefix(word)?.trim())));
        let (word, seen) = found.unwrap_or(("fails", "the script came to no end"));
        Self { word, seen: seen.to_owned() }
    }
}

impl Case {
    /// Runs it in a folder of its own, and leaves no process behind.
    pub(super) fn run(&self, wrapper: &str, mut shell: Command, folder: &Path) -> Result<Verdict> {
        fs::create_dir_all(folder)?;
        let folder = fs::canonicalize(folder)?;
        let verdict = folder.join("verdict");
        let script = format!("exec 3>verdict\n{COMMON}\n{wrapper}\n{}\n", self.script);
        shell.args(["-c", &script]).current_dir(&folder).process_group(0);
        shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(folder.join("stderr"))?);
        let mut child = shell.spawn()?;
        let watch = Stopwatch::start();
        while child.try_wait()?.is_none() && watch.elapsed() < LONGEST {
            std::thread::sleep(LOOK_EVERY);
        }
        end_all_in(&folder)?;
        child.wait()?;
        Ok(Verdict::of(fs::read_to_string(verdict)?.trim()))
    }
}

/// Ends every process that works in a folder, by its id, until there is none.
fn end_all_in(folder: &Path) -> Result<()> {
    let watch = Stopwatch::start();
    while watch.elapsed() < LONGEST {
        let mut found = false;
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
            let Some(pid) = pid.and_then(Pid::from_raw) else { continue };
            if fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder)) {
                found = true;
                // It may have ended meanwhile: just what is wanted.
                _ = kill_process(pid, Signal::KILL);
            }
        }
        if !found {
            return Ok(());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Err(format!("processes in {} do not end", folder.display()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without_a_lock(index: usize) -> Verdict {
        let folder = tempfile::tempdir().unwrap();
        let none = "hold() { exec \"$@\"; }\nattempt() { hold \"$@\"; }";
        CASES[index].run(none, Command::new("sh"), folder.path()).unwrap()
    }

    #[test]
    fn what_locks_nothing_is_found_out() {
        let stopped = without_a_lock(1);
        assert_eq!((stopped.word, stopped.seen.as_str()), ("fails", "the second got in beside the command"));
        assert_eq!(without_a_lock(3).seen, "the second got in beside the child");
        assert_eq!(without_a_lock(4).word, "holds");
        assert_eq!(without_a_lock(7).word, "not applicable");
    }

    #[test]
    fn nothing_is_left_in_the_folder_and_a_silent_script_fails() {
        let folder = tempfile::tempdir().unwrap();
        let mut left = Command::new("sleep").arg("60").current_dir(folder.path()).spawn().unwrap();
        // A process that has ended works nowhere, also before it is waited for.
        end_all_in(&fs::canonicalize(folder.path()).unwrap()).unwrap();
        assert!(!left.wait().unwrap().success());
        assert_eq!(Verdict::of("").word, "fails");
        assert_eq!(Verdict::of("not applicable none").seen, "none");
    }
}
