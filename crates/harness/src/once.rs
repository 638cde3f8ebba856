//! Many processes do one thing after the other, each once, while they are killed and frozen at random points.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use leasehold::{BootTime, Clock, Leasehold, Ledger, LockName, MarkKind};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::puppet::Trouble;
use crate::resource::{Books, Resource};

/// How it goes.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The program of those who do it.
    pub doer: PathBuf,
    /// How many at once.
    pub processes: u32,
    /// For how long.
    pub lasting: Duration,
    /// The ttl of each lease.
    pub ttl: Duration,
    /// From what the choices are made.
    pub seed: u64,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// The books of the resource.
    pub books: Books,
    /// How many processes were killed.
    pub kills: u32,
    /// How many were frozen beyond their ttl.
    pub freezes: u32,
    /// Keys that are done by the books, and have no mark.
    pub unmarked: u64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { books, kills, freezes, unmarked } = self;
        let Books { effects, starts, done, again, stale, started_after_done, done_without_effect, last: _ } =
            books;
        write!(
            f,
            "{done} keys done, {starts} starts, {effects} effects; {again} effects were there already, {stale} smaller \
             tokens were refused; killed {kills}, frozen {freezes}; started after done: {started_after_done}, done \
             without effect: {done_without_effect}, without mark: {unmarked}"
        )
    }
}

impl Outcome {
    /// Whether each key was done once, and enough happened in its seconds to say so.
    ///
    /// # Errors
    ///
    /// When a key was started after somebody heard that it was done, is done without effect or mark; and when too
    /// little happened: what was never started twice proves nothing.
    pub fn judge(&self, seconds: u64) -> Result<(), Trouble> {
        let Self { books, kills, freezes: _, unmarked } = self;
        if (books.started_after_done, books.done_without_effect, *unmarked) != (0, 0, 0) {
            return Err(format!("not once: {self}").into());
        }
        // The last key may have been started, and neither done nor marked, when the time was up.
        if books.effects > books.done + 1 || books.effects < books.done {
            return Err(format!("effects that nobody heard of: {self}").into());
        }
        if books.done < seconds || u64::from(*kills) < seconds || books.starts <= books.done {
            return Err(format!("too little happened: {self}").into());
        }
        Ok(())
    }
}

struct Ring<'a> {
    plan: &'a Plan,
    folder: &'a Path,
    until: BootTime,
    clock: Clock,
    doers: HashMap<u32, (Child, Pid)>,
    random: fastrand::Rng,
    frozen: Option<(u32, BootTime)>,
    kills: u32,
    freezes: u32,
}

/// Where the locks and marks are.
#[must_use]
pub fn store(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("locks.db").display())
}

/// Where the resource is.
#[must_use]
pub fn resource(folder: &Path) -> PathBuf {
    folder.join("resource.db")
}

/// The name under which a key is done.
#[must_use]
pub fn name(key: u64) -> String {
    format!("payment:{key}")
}

/// Does it, and gathers what happened.
///
/// # Errors
///
/// When a process cannot be started, or ends otherwise than it should.
pub async fn once(plan: &Plan, folder: &Path) -> Result<Outcome, Trouble> {
    let clock = Clock::system();
    let books = Resource::open(&resource(folder))?;
    let client = Leasehold::builder().timeout(Duration::from_secs(20)).connect(&store(folder)).await?;
    let mut ring = Ring {
        plan,
        folder,
        until: clock.now().after(plan.lasting),
        clock: clock.clone(),
        doers: HashMap::new(),
        random: fastrand::Rng::with_seed(plan.seed),
        frozen: None,
        kills: 0,
        freezes: 0,
    };
    for _ in 0..plan.processes {
        ring.start()?;
    }
    while clock.now() < ring.until {
        ring.disturb(&books).await?;
    }
    ring.thaw(true)?;
    ring.wait().await?;
    let Ring { kills, freezes, .. } = ring;
    let found = books.books()?;
    let mut unmarked = 0;
    for key in 0..=books.last_done()? {
        unmarked += u64::from(!is_marked(&client, key).await?);
    }
    client.close().await?;
    Ok(Outcome { books: found, kills, freezes, unmarked })
}

impl Ring<'_> {
    fn start(&mut self) -> Result<(), Trouble> {
        let plan = self.plan;
        let mut command = Command::new(&plan.doer);
        command
            .arg("--folder")
            .arg(self.folder)
            .args(["--ttl-ms", &plan.ttl.as_millis().to_string()])
            .args(["--until-ns", &self.until.as_nanos().to_string()])
            .args(["--seed", &self.random.u64(..).to_string()])
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let child = command.spawn()?;
        let id = child.id().ok_or("no process id")?;
        let pid = Pid::from_raw(id.cast_signed()).ok_or("no process id")?;
        self.doers.insert(id, (child, pid));
        Ok(())
    }

    /// Waits a little, then kills or freezes somebody: most often whoever started last, who is likely to be at it.
    async fn disturb(&mut self, books: &Resource) -> Result<(), Trouble> {
        let pause = Duration::from_millis(self.random.u64(5..150));
        self.clock.sleep_until(self.clock.now().after(pause)).await;
        self.thaw(false)?;
        let at_it = if self.random.u8(..) < 220 { books.last_start()?.map(|(pid, _)| pid) } else { None };
        let frozen = self.frozen.map(|(pid, _)| pid);
        let others: Vec<u32> = self.doers.keys().copied().filter(|pid| Some(*pid) != frozen).collect();
        let chosen = at_it.filter(|pid| others.contains(pid)).or_else(|| self.random.choice(others));
        let Some(pid) = chosen else { return Ok(()) };
        let left = self.until.since(self.clock.now());
        if self.frozen.is_none() && self.random.u8(..) < 30 && left > self.plan.ttl * 2 {
            return self.freeze(pid);
        }
        self.kill(pid).await
    }

    async fn kill(&mut self, id: u32) -> Result<(), Trouble> {
        let Some((mut child, pid)) = self.doers.remove(&id) else { return Ok(()) };
        kill_process(pid, Signal::KILL)?;
        child.wait().await?;
        self.kills += 1;
        self.start()
    }

    fn freeze(&mut self, id: u32) -> Result<(), Trouble> {
        let Some((_, pid)) = self.doers.get(&id) else { return Ok(()) };
        kill_process(*pid, Signal::STOP)?;
        self.freezes += 1;
        self.frozen = Some((id, self.clock.now().after(self.plan.ttl.mul_f64(1.3))));
        Ok(())
    }

    fn thaw(&mut self, now: bool) -> Result<(), Trouble> {
        let Some((id, until)) = self.frozen else { return Ok(()) };
        if !now && self.clock.now() < until {
            return Ok(());
        }
        self.frozen = None;
        let Some((_, pid)) = self.doers.get(&id) else { return Ok(()) };
        Ok(kill_process(*pid, Signal::CONT)?)
    }

    /// Waits until all have ended by themselves.
    async fn wait(&mut self) -> Result<(), Trouble> {
        let most = self.plan.ttl * 20 + Duration::from_secs(30);
        for (pid, (mut child, _)) in self.doers.drain() {
            let ended = tokio::time::timeout(most, child.wait()).await;
            let status = ended.map_err(|_| format!("process {pid} never ended"))??;
            if !status.success() {
                return Err(format!("process {pid} ended with {status}").into());
            }
        }
        Ok(())
    }
}

/// Whether a key is marked as done.
async fn is_marked(client: &Leasehold, key: u64) -> Result<bool, Trouble> {
    let name = LockName::parse(&name(key))?;
    Ok(client.with_ledger(Look(name)).await?)
}

struct Look(LockName);

impl leasehold::AsyncLedger<bool> for Look {
    fn run(
        self,
        ledger: &dyn Ledger,
    ) -> std::pin::Pin<Box<dyn Future<Output = leasehold::Result<bool>> + Send + '_>> {
        Box::pin(async move { Ok(!ledger.marks(MarkKind::Once, &self.0).await?.is_empty()) })
    }
}
