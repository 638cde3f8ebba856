//! Many processes fight for one lock while their holders and waiters are killed and frozen; then the history of all
//! of them is checked.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use leasehold::{BootTime, Clock, Leasehold, Snapshot};
use leasehold_conformance::{FaultKind, Happened, HistoryWriter, Least, Record, Report, read_history};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::puppet::Trouble;

/// What is fought for.
const NAME: &str = "fight";
/// A store that answers at all has answered by then.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a fight goes.
#[derive(Debug, Clone)]
pub struct Fight {
    /// The store's URL; without one, a new SQLite file in the folder of the histories.
    pub store: Option<String>,
    /// The program of a contender.
    pub contender: PathBuf,
    /// How many fight at once.
    pub processes: u32,
    /// For how long.
    pub lasting: Duration,
    /// The ttl of each lease.
    pub ttl: Duration,
    /// How long a lease is held at the most.
    pub hold: Duration,
    /// How long each rests between two at the most: where all stand in line for ever, nobody comes while somebody is inside.
    pub rest: Duration,
    /// Whether they keep strict order.
    pub fair: bool,
    /// Whether holders and waiters are killed and frozen meanwhile.
    pub disturbed: bool,
    /// The longest pause between two of them: whoever dies holds up the others for a ttl.
    pub calm: Duration,
    /// From what the choices are made.
    pub seed: u64,
}

/// What came of a fight.
#[derive(Debug)]
pub struct Fought {
    /// All records, of all processes.
    pub history: Vec<Record>,
    /// How many holders and waiters were killed.
    pub kills: u32,
    /// How many were frozen beyond their ttl.
    pub freezes: u32,
    /// The longest time for which who watches did not run.
    pub starved: Duration,
    /// Holders and waiters that are left in the store, long after everybody has ended.
    pub orphans: usize,
}

impl Fought {
    /// Whether it went as promised, and enough happened in its time to say so.
    ///
    /// # Errors
    ///
    /// Overlaps, falling tokens, orphans; and a fight in which too little happened: what was not contended could
    /// not overlap.
    pub fn judge(&self, report: &Report, fight: &Fight) -> Result<(), Trouble> {
        if self.orphans > 0 {
            return Err(format!("{} holders or waiters were left behind", self.orphans).into());
        }
        // Half as often as on the average.
        let seconds = fight.lasting.as_secs();
        let faults = (fight.lasting.as_millis() / (2 * fight.calm).as_millis().max(1)) as u64;
        let least = Least { grants: 5 * seconds, contended: seconds, faults };
        report.judge(&least).map_err(|failure| failure.to_string().into())
    }
}

/// A contender that runs.
#[derive(Debug)]
struct Contender {
    child: Child,
    pid: Pid,
    number: u32,
}

/// A fight under way.
struct Ring<'a> {
    fight: &'a Fight,
    folder: &'a Path,
    store: String,
    until: BootTime,
    clock: Clock,
    contenders: HashMap<u32, Contender>,
    next: u32,
    pen: HistoryWriter,
    random: fastrand::Rng,
    frozen: Option<(u32, BootTime)>,
    kills: u32,
    freezes: u32,
    starved: Duration,
}

/// Fights, and gathers what happened.
///
/// # Errors
///
/// When a process cannot be started, or ends otherwise than it should.
pub async fn fight(fight: &Fight, folder: &Path) -> Result<Fought, Trouble> {
    let clock = Clock::system();
    let own = || format!("sqlite:{}", folder.join("locks.db").display());
    let store = fight.store.clone().unwrap_or_else(own);
    let client = Leasehold::builder().timeout(Duration::from_secs(20)).connect(&store).await?;
    let mut ring = Ring {
        fight,
        folder,
        store,
        until: clock.now().after(fight.lasting),
        clock: clock.clone(),
        contenders: HashMap::new(),
        next: 1,
        pen: HistoryWriter::open(folder.join("0.history"))?,
        random: fastrand::Rng::with_seed(fight.seed),
        frozen: None,
        kills: 0,
        freezes: 0,
        starved: Duration::ZERO,
    };
    for _ in 0..fight.processes {
        ring.start()?;
    }
    while clock.now() < ring.until {
        if fight.disturbed {
            ring.disturb(&client).await?;
        } else {
            clock.sleep_until(ring.until).await;
        }
    }
    ring.thaw(true)?;
    ring.wait().await?;
    let orphans = orphans(&client, fight.ttl).await?;
    client.close().await?;
    let mut history = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "history") {
            history.extend(read_history(&path)?);
        }
    }
    let Ring { kills, freezes, starved, .. } = ring;
    Ok(Fought { history, kills, freezes, starved, orphans })
}

impl Ring<'_> {
    fn start(&mut self) -> Result<(), Trouble> {
        let number = self.next;
        self.next += 1;
        let fight = self.fight;
        let mut command = Command::new(&fight.contender);
        command
            .args(["--store", &self.store, "--name", NAME])
            .arg("--history")
            .arg(self.folder.join(format!("{number}.history")))
            .args(["--process", &number.to_string()])
            .args(["--ttl-ms", &fight.ttl.as_millis().to_string()])
            .args(["--until-ns", &self.until.as_nanos().to_string()])
            .args(["--hold-us", &fight.hold.as_micros().to_string()])
            .args(["--rest-us", &fight.rest.as_micros().to_string()])
            .args(["--seed", &self.random.u64(..).to_string()])
            .args(fight.fair.then_some("--fair"))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let child = command.spawn()?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).ok_or("no process id")?;
        self.contenders.insert(child.id().unwrap_or_default(), Contender { child, pid, number });
        Ok(())
    }

    fn note(&mut self, at: BootTime, process: u32, kind: FaultKind) -> Result<(), Trouble> {
        Ok(self.pen.write(&Record { at, process, claim: 0, what: Happened::Fault(kind) })?)
    }

    /// Waits a little, then kills or freezes somebody.
    async fn disturb(&mut self, client: &Leasehold) -> Result<(), Trouble> {
        let pause = self.fight.calm.mul_f64(0.04 + 0.96 * self.random.f64());
        let wanted = self.clock.now().after(pause);
        self.clock.sleep_until(wanted).await;
        self.starved = self.starved.max(self.clock.now().since(wanted));
        self.thaw(false)?;
        // Holders more often than not: their end is what must be noticed.
        let holder = if self.random.u8(..) < 200 { holder(client).await? } else { None };
        let frozen = self.frozen.map(|(pid, _)| pid);
        let others: Vec<u32> = self.contenders.keys().copied().filter(|pid| Some(*pid) != frozen).collect();
        let chosen = holder.filter(|pid| others.contains(pid)).or_else(|| self.random.choice(others));
        let Some(pid) = chosen else { return Ok(()) };
        let left = self.until.since(self.clock.now());
        if self.frozen.is_none() && self.random.u8(..) < 40 && left > self.fight.ttl * 2 {
            return self.freeze(pid);
        }
        self.kill(pid).await
    }

    async fn kill(&mut self, pid: u32) -> Result<(), Trouble> {
        let Some(mut contender) = self.contenders.remove(&pid) else { return Ok(()) };
        let before = self.clock.now();
        kill_process(contender.pid, Signal::KILL)?;
        self.note(before, contender.number, FaultKind::Killed)?;
        contender.child.wait().await?;
        self.kills += 1;
        self.start()
    }

    fn freeze(&mut self, pid: u32) -> Result<(), Trouble> {
        let Some(contender) = self.contenders.get(&pid) else { return Ok(()) };
        let (process, number) = (contender.pid, contender.number);
        let before = self.clock.now();
        kill_process(process, Signal::STOP)?;
        self.freezes += 1;
        self.frozen = Some((pid, before.after(self.fight.ttl.mul_f64(1.3))));
        self.note(before, number, FaultKind::Stopped)
    }

    fn thaw(&mut self, now: bool) -> Result<(), Trouble> {
        let Some((pid, until)) = self.frozen else { return Ok(()) };
        if !now && self.clock.now() < until {
            return Ok(());
        }
        self.frozen = None;
        let Some(contender) = self.contenders.get(&pid) else { return Ok(()) };
        let (process, number) = (contender.pid, contender.number);
        let before = self.clock.now();
        kill_process(process, Signal::CONT)?;
        self.note(before, number, FaultKind::Continued)
    }

    /// Waits until all have ended by themselves.
    async fn wait(&mut self) -> Result<(), Trouble> {
        let most = self.fight.ttl * 20 + Duration::from_secs(30);
        for (pid, mut contender) in self.contenders.drain() {
            let ended = tokio::time::timeout(most, contender.child.wait()).await;
            let status = ended.map_err(|_| format!("process {pid} never ended"))??;
            if !status.success() {
                return Err(format!("process {pid} ended with {status}").into());
            }
        }
        Ok(())
    }
}

/// Who holds it and who waits. A machine with much else to do may leave a question or two without an answer in time.
async fn look(client: &Leasehold) -> Result<Snapshot, Trouble> {
    let clock = client.clock();
    let end = clock.now().after(PATIENCE);
    loop {
        match client.inspect(NAME).await {
            Ok(snapshot) => return Ok(snapshot),
            Err(error) if !error.is_retryable() || clock.now() >= end => return Err(error.into()),
            Err(_) => {}
        }
    }
}

/// The process id of who holds it now.
async fn holder(client: &Leasehold) -> Result<Option<u32>, Trouble> {
    let snapshot = look(client).await?;
    Ok(snapshot.holders.first().map(|holder| holder.owner.pid))
}

/// How many holders and waiters are left once the leases of the dead have run out.
async fn orphans(client: &Leasehold, ttl: Duration) -> Result<usize, Trouble> {
    let clock = client.clock();
    let end = clock.now().after(ttl * 2 + Duration::from_secs(2));
    loop {
        let snapshot = look(client).await?;
        let left = snapshot.holders.len() + snapshot.waiters.len();
        if left == 0 || clock.now() >= end {
            return Ok(left);
        }
        clock.sleep_until(clock.now().after(Duration::from_millis(20))).await;
    }
}
