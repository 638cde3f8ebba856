//! The proof `overhead`: what `leasehold run` adds to a command, in time and in memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::samples::{Samples, milliseconds};
use super::{Proof, machine, own_settings};
use crate::Result;
use crate::stopwatch::Stopwatch;

/// How often each of the two is run.
const RUNS: usize = 200;
/// Runs before the first that counts: the file is made, and caches are warm.
const WARM_UP: usize = 10;
/// What `leasehold run` may add to the time of a command.
const MOST_TIME: Duration = Duration::from_millis(8);
/// What an idle run may take of memory, guard included, in KiB of Pss.
const MOST_MEMORY: u64 = 8 * 1024;
/// Until an idle run has settled down.
const SETTLED: Duration = Duration::from_secs(2);

pub(super) fn run(proof: &mut Proof) -> Result<bool> {
    let folder = tempfile::tempdir()?;
    let bench =
        Bench { program: proof.build("leasehold-cli", "leasehold")?, folder: folder.path().to_owned() };
    let size = fs::metadata(&bench.program)?.len();
    proof.say(&format!("program    {:.1} MiB", size as f64 / f64::from(1 << 20)))?;
    let quick = time(proof, &bench)?;
    let small = memory(proof, &bench)?;
    Ok(quick && small)
}

/// Where everything is that is measured.
struct Bench {
    program: PathBuf,
    folder: PathBuf,
}

impl Bench {
    /// `leasehold run NAME -- command` on a store of our own.
    fn leased(&self, name: &str, command: &[&str]) -> Command {
        let mut leased = Command::new(&self.program);
        leased.args(["run", name, "--store"]).arg(format!("sqlite:{}", self.folder.join("x.db").display()));
        leased.arg("--").args(command);
        self.alone(&mut leased);
        leased
    }

    fn plain(&self) -> Command {
        let mut plain = Command::new("true");
        self.alone(&mut plain);
        plain
    }

    /// Nothing of whoever measures must count: neither their settings nor their terminal.
    fn alone(&self, command: &mut Command) {
        own_settings().for_each(|name| _ = command.env_remove(name));
        command.env("XDG_STATE_HOME", &self.folder).env("XDG_CONFIG_HOME", &self.folder);
        command.current_dir(&self.folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    }
}

fn once(mut command: Command) -> Result<Duration> {
    let watch = Stopwatch::start();
    let output = command.output()?;
    let took = watch.elapsed();
    if output.status.success() {
        return Ok(took);
    }
    Err(format!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}

fn time(proof: &mut Proof, bench: &Bench) -> Result<bool> {
    let leased = || once(bench.leased("overhead", &["true"]));
    let plain = || once(bench.plain());
    for _ in 0..WARM_UP {
        leased()?;
        plain()?;
    }
    let (mut with, mut without) = (Samples::default(), Samples::default());
    let watch = Stopwatch::start();
    let goes_on = |runs: usize| match proof.seconds {
        Some(seconds) => watch.elapsed() < Duration::from_secs(seconds),
        None => runs < RUNS,
    };
    // One after the other, and each first as often as second: what else the machine does hits both alike.
    while goes_on(with.len()) {
        if (with.len() as u64 + proof.seed).is_multiple_of(2) {
            with.add(leased()?);
            without.add(plain()?);
        } else {
            without.add(plain()?);
            with.add(leased()?);
        }
    }
    let added = with.median().saturating_sub(without.median());
    let ratio = with.median().as_secs_f64() / without.median().as_secs_f64().max(f64::MIN_POSITIVE);
    proof.say(&format!("runs       {} of each", with.len()))?;
    proof.say(&format!("leasehold run x -- true    {with}"))?;
    proof.say(&format!("true                       {without}"))?;
    proof.say(&format!(
        "added      {} ms at the median ({ratio:.1} times), {} ms are the most",
        milliseconds(added),
        milliseconds(MOST_TIME)
    ))?;
    Ok(added <= MOST_TIME)
}

fn memory(proof: &mut Proof, bench: &Bench) -> Result<bool> {
    if !Path::new("/proc/self/smaps_rollup").exists() {
        proof.say("memory     not measured: there is no /proc/PID/smaps_rollup here")?;
        return Ok(true);
    }
    let mut idle = bench.leased("idle", &["sleep", "60"]);
    let mut child = idle.stderr(Stdio::null()).spawn()?;
    std::thread::sleep(SETTLED);
    let measured = processes_of(&child, &bench.program).and_then(|pids| {
        pids.into_iter().map(|pid| Ok((pid, pss(pid)?))).collect::<Result<Vec<(u32, u64)>>>()
    });
    end(&mut child)?;
    let measured = measured?;
    let sum: u64 = measured.iter().map(|(_, kib)| kib).sum();
    proof.say(&format!(
        "memory     {sum} KiB of Pss while idle (processes: {}), {MOST_MEMORY} are the most",
        measured.len()
    ))?;
    if measured.is_empty() {
        return Err("the idle run ended before it could be measured".into());
    }
    Ok(sum <= MOST_MEMORY)
}

/// The process itself, and those below it that run the same program, such as its guard.
fn processes_of(child: &Child, program: &Path) -> Result<Vec<u32>> {
    let program = fs::canonicalize(program)?;
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // It may have ended since it was listed.
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { continue };
        if let Ok(parent) = machine::field(&status, "PPid").parse::<u32>() {
            parents.push((pid, parent));
        }
    }
    let mut family = vec![child.id()];
    let mut next = 0;
    while let Some(parent) = family.get(next).copied() {
        family.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    let is_ours = |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program);
    Ok(family.into_iter().filter(is_ours).collect())
}

/// What a process has in memory, with what it shares counted by its part, in KiB.
fn pss(pid: u32) -> Result<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let words = machine::field(&rollup, "Pss").split_whitespace().next().unwrap_or_default();
    Ok(words.parse()?)
}

fn end(child: &mut Child) -> Result<()> {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
        && child.try_wait()?.is_none()
    {
        kill_process(pid, Signal::TERM)?;
    }
    child.wait()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_family_of_a_process_are_found() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let exe = format!("/proc/{}/exe", child.id());
        // Until it has become `sleep`.
        let program = loop {
            let program = fs::read_link(&exe).unwrap();
            if program != std::env::current_exe().unwrap() {
                break program;
            }
        };
        assert_eq!(processes_of(&child, &program).unwrap(), [child.id()]);
        assert!(pss(child.id()).unwrap() > 0);
        end(&mut child).unwrap();
    }

    #[test]
    fn a_command_that_fails_is_no_sample() {
        assert!(once(Command::new("true")).is_ok());
        assert!(once(Command::new("false")).is_err());
    }
}
