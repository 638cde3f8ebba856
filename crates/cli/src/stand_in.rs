//! A place in line at a terminal, which Ctrl-Z does not cost: a process of its own stands there for this one.
//!
//! Ctrl-Z stops all threads of a process, also the one that keeps its place. So where somebody can press it, the wait is
//! left to a stand-in, outside of the job that the shell stops. When its turn comes it hands the lease over. To one that
//! is stopped then it does not: others go first, and it stands at the end of the line when this one goes on. Whatever
//! goes wrong with it, this process waits itself, as it would without a terminal.

mod work;

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::config::Wait;
use leasehold::{Clock, Error, Lease, LeaseTicket, Leasehold, Owner};
use serde_json::{Value, json};
use tokio::io::Interest;
use tokio::net::UnixStream;
pub(crate) use work::main;

use crate::alarm::Alarm;
use crate::args::Global;
use crate::plan::Plan;
use crate::talk::Talk;
use crate::{child, hold, pass, sys};

/// The first argument of a stand-in. It is no flag of ours, and stands in no help.
pub(crate) const FLAG: &str = "--stand-in";

/// What both say, a byte each. From the stand-in: its turn has come, is anybody there?
const TURN: u8 = b'?';
/// Here is the lease: a length of two bytes, its ticket, and what keeps it alive.
const LEASE: u8 = b'L';
/// Nobody was there: others go first.
const PASSED: u8 = b'p';
/// To the stand-in: yes.
const HERE: u8 = b'y';
/// The lease is in our hands.
const TAKEN: u8 = b't';

/// How long a stand-in may take to leave the line before it is killed.
const TO_LEAVE: Duration = Duration::from_millis(300);

/// Waits for the lease of a plan, by a stand-in where Ctrl-Z may come. With the lease comes what keeps it alive, if that
/// is not this process.
///
/// # Cancel safety
///
/// The line is left.
pub(crate) async fn acquire(
    client: &Leasehold,
    plan: &Plan,
    global: &Global,
    talk: Talk,
) -> (Result<Lease, Error>, Option<OwnedFd>) {
    let Some(wait) = plan.wait.filter(|_| may_be_stopped()) else {
        return (hold::acquire(client, plan).await, None);
    };
    let asked = hold::Asked::of(plan);
    // In strict order nobody takes it but from the line; else a free lock needs no stand-in.
    if !plan.fair {
        match asked.lock(client).attempt().await {
            Err(Error::Busy(_)) => {}
            answer => return (answer, None),
        }
    }
    let clock = client.clock();
    let until = match wait {
        Wait::For(longest) => Some(clock.now().after(longest)),
        Wait::Forever => None,
    };
    let (alarm, name) = (Alarm::new(), plan.name.as_str());
    let stood = async { StandIn::start(client, &asked, global)?.lease(client, name, talk).await };
    tokio::select! {
        biased;
        stood = stood => match stood {
            Ok((lease, life)) => return (Ok(lease), life),
            Err(error) => talk.explain(format_args!("{name}: Ctrl-Z would lose the place in line: {error}")),
        },
        () = alarm.at(clock, until) => {}
    }
    // What is left of the time, and if nothing is, an answer that says who has it.
    let wait = until.map_or(Wait::Forever, |until| Wait::For(until.since(clock.now())));
    (hold::acquire_in(asked.lock(client), wait).await, None)
}

/// Whether somebody at a terminal may stop this process, and have it go on.
fn may_be_stopped() -> bool {
    child::in_foreground() && !sys::is_ignored(libc::SIGTSTP)
}

/// A process that stands in line.
struct StandIn {
    process: Child,
    link: UnixStream,
    heard: Vec<u8>,
    life: Option<OwnedFd>,
}

impl StandIn {
    fn start(client: &Leasehold, asked: &hold::Asked<'_>, global: &Global) -> io::Result<Self> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("leasehold").arg(FLAG).arg(theirs.as_raw_fd().to_string()).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Before it is there, so that nothing has to be waited for.
        let question = question(client.owner(), asked, global).to_string();
        let length = u16::try_from(question.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        pass::send(&ours, &[&length.to_le_bytes()[..], question.as_bytes()].concat(), None)?;
        rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())?;
        let process = command.spawn()?;
        Ok(Self { process, link: UnixStream::from_std(ours)?, heard: Vec::new(), life: None })
    }

    /// Returns with the lease once it was handed over.
    async fn lease(
        mut self,
        client: &Leasehold,
        name: &str,
        talk: Talk,
    ) -> io::Result<(Lease, Option<OwnedFd>)> {
        loop {
            match self.bytes(1).await?[..] {
                // Said again and again by one who was stopped: what is said to nobody does no harm.
                [TURN] => pass::send(&self.link, &[HERE], None)?,
                [PASSED] => talk.notice(
                    "",
                    format_args!("{name}: its turn came while it was stopped; at the end of the line again"),
                ),
                [LEASE] => break,
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        let length = self.bytes(2).await?;
        let length = u16::from_le_bytes([length[0], length[1]]);
        let ticket = self.bytes(length.into()).await?;
        let ticket = LeaseTicket::from_bytes(&ticket).map_err(io::Error::other)?;
        let lease = client.resume(ticket).await.map_err(io::Error::other)?;
        pass::send(&self.link, &[TAKEN], None)?;
        Ok((lease, self.life.take()))
    }

    /// The next so many bytes.
    async fn bytes(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.heard.len() < count {
            let mut into = [0; 1024];
            let link = &self.link;
            let (got, life) = link.async_io(Interest::READABLE, || pass::receive(link, &mut into)).await?;
            if got == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "who stood there for us is gone"));
            }
            self.heard.extend_from_slice(&into[..got]);
            self.life = life.or(self.life.take());
        }
        let rest = self.heard.split_off(count);
        Ok(std::mem::replace(&mut self.heard, rest))
    }
}

impl Drop for StandIn {
    /// Waits for its end: no process of ours may be left when a command starts, and no place in line when this one
    /// ends. It hears the end of the link.
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.link, rustix::net::Shutdown::Write);
        let clock = Clock::system();
        let end = clock.now().after(TO_LEAVE);
        while clock.now() < end {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the stand-in is told. The store may have a password in its URL, so nothing of it is an argument.
fn question(owner: &Owner, asked: &hold::Asked<'_>, global: &Global) -> Value {
    let Owner { host, user, pid, program, tag } = owner;
    let hold::Asked { name, ttl, grace, fair, note, at_least } = asked;
    let Global { store, namespace, timeout, config, .. } = global;
    let nanos = |duration: &Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    json!({
        "store": store, "namespace": namespace, "timeout": timeout.as_ref().map(nanos),
        "config": config.as_ref().and_then(|path| path.to_str()),
        // Whoever looks at the line shall find the process that can be signalled.
        "owner": {"host": host, "user": user, "pid": pid, "program": program, "tag": tag},
        "name": name.as_str(), "ttl": nanos(ttl), "grace": nanos(grace), "fair": fair, "note": note.text(),
        "at_least": nanos(at_least),
    })
}
