//! The second half of the proof `overhead`: what a `run` takes while its command does nothing, in memory and wake-ups.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::overhead::Bench;
use super::{Proof, machine};
use crate::Result;

/// What an idle run may take of memory, guard included, in KiB of Pss.
const MOST_MEMORY: u64 = 8 * 1024;
/// Until an idle run has settled down.
const SETTLED: Duration = Duration::from_secs(2);
/// How long wake-ups are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// A ttl that is renewed far less often than that.
const LONG: &str = "1h";
/// How often all threads together may wake for one renewal: the engine, the store's thread, `run` itself, and the guard,
/// and the waits of these for each other.
const MOST_FOR_RENEWAL: u64 = 10;

/// A run whose command sleeps.
struct Idle {
    child: Child,
    /// `run`, and its guard.
    pids: Vec<u32>,
}

impl Idle {
    fn start(bench: &Bench, name: &str, flags: &[&str]) -> Result<Self> {
        let mut idle = bench.leased(name, flags, &["sleep", "600"]);
        let child = idle.stderr(Stdio::null()).spawn()?;
        std::thread::sleep(SETTLED);
        let pids = processes_of(&child, &bench.program);
        let mut idle = Self { child, pids: pids.unwrap_or_default() };
        if idle.pids.is_empty() {
            idle.end()?;
            return Err("the idle run ended before it could be measured".into());
        }
        Ok(idle)
    }

    fn pss(&self) -> Result<u64> {
        self.pids.iter().copied().map(pss).sum()
    }

    fn switches(&self) -> Result<Switches> {
        self.pids.iter().try_fold(Switches::default(), |sum, pid| Ok(sum + switches(*pid)?))
    }

    fn end(&mut self) -> Result<()> {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
            && self.child.try_wait()?.is_none()
        {
            kill_process(pid, Signal::TERM)?;
        }
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        // It ends by itself, if it must.
        let _ = self.end();
    }
}

pub(super) fn run(proof: &mut Proof, bench: &Bench) -> Result<bool> {
    if !Path::new("/proc/self/smaps_rollup").exists() {
        proof.say("idle       not measured: there is no /proc/PID/smaps_rollup here")?;
        return Ok(true);
    }
    let usual = Idle::start(bench, "idle", &[])?;
    // While it is alone: what two share counts half for each.
    let kib = usual.pss()?;
    proof.say(&format!(
        "memory     {kib} KiB of Pss while idle (processes: {}), {MOST_MEMORY} are the most",
        usual.pids.len()
    ))?;
    let rare = Idle::start(&bench.beside("long.db"), "idle", &["--ttl", LONG])?;
    let renewed = renewals(bench)?;
    let before = (usual.switches()?, rare.switches()?);
    std::thread::sleep(WINDOW);
    let after = (usual.switches()?, rare.switches()?);
    let renewed = renewals(bench)? - renewed;
    let most = renewed * MOST_FOR_RENEWAL;
    let often = after.0.woken - before.0.woken;
    let seldom = after.1.woken - before.1.woken;
    let displaced = after.0.displaced - before.0.displaced;
    proof.say(&format!(
        "wake-ups   {often} in {} s with the usual ttl, all threads together, for {renewed} renewals ({most} are the \
         most); and {displaced} times off the processor for others",
        WINDOW.as_secs()
    ))?;
    proof.say(&format!(
        "           {seldom} in that time with a ttl of {LONG}, without a renewal (0 are the most)"
    ))?;
    Ok(kib <= MOST_MEMORY && (1..=most).contains(&often) && seldom == 0)
}

/// How often the lease was renewed so far.
fn renewals(bench: &Bench) -> Result<u64> {
    let output = bench.command(&["status", "idle", "--json"]).stdout(Stdio::piped()).output()?;
    let status: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    status["holders"][0]["renewals"].as_u64().ok_or_else(|| format!("not held: {status}").into())
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

/// How often threads gave the processor back.
#[derive(Debug, Clone, Copy, Default)]
struct Switches {
    /// Of their own accord: once for each time that they were woken.
    woken: u64,
    /// For others. How often that is depends on what else runs.
    displaced: u64,
}

impl std::ops::Add for Switches {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self { woken: self.woken + more.woken, displaced: self.displaced + more.displaced }
    }
}

fn switches(pid: u32) -> Result<Switches> {
    let mut sum = Switches::default();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = fs::read_to_string(thread?.path().join("status"))?;
        let read = |name| machine::field(&status, name).parse::<u64>();
        let (woken, displaced) = (read("voluntary_ctxt_switches")?, read("nonvoluntary_ctxt_switches")?);
        sum = sum + Switches { woken, displaced };
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn family_memory_and_switches_of_a_process_are_found() {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let exe = format!("/proc/{}/exe", child.id());
        // Until it has become `sleep`.
        let program = loop {
            let program = fs::read_link(&exe).unwrap();
            if program != std::env::current_exe().unwrap() {
                break program;
            }
        };
        assert_eq!(processes_of(&child, &program).unwrap(), [child.id()]);
        let mut idle = Idle { pids: vec![child.id()], child };
        assert!(idle.pss().unwrap() > 0);
        let Switches { woken, displaced } = idle.switches().unwrap();
        assert!(woken + displaced > 0);
        idle.end().unwrap();
    }
}
