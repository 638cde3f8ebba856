//! The stand-in itself: it stands in line, and hands the lease over to the process that it stands there for.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::config::{Config, Overrides};
use leasehold::{Lease, Leasehold, LockName, Note, Owner};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::{HERE, LEASE, PASSED, TAKEN, TURN};
use crate::{exit, hold, pass, sys};

/// How long to wait for an answer before it is looked whether the other one is stopped.
const SOON: Duration = Duration::from_millis(100);
/// How long giving everything back may take.
const CLOSING: Duration = Duration::from_secs(1);

/// Stands in line until the lease is handed over, or nobody wants it any more.
pub(crate) fn main(words: &[OsString]) -> u8 {
    let link = words.get(2).and_then(|word| word.to_str()?.parse().ok()).map(sys::inherited_socket);
    let Some(Ok(link)) = link else {
        crate::talk::complain(
            "this is for leasehold itself: `leasehold run` starts who stands in line with it",
        );
        return exit::USAGE;
    };
    // What `ps` shows; without it, it would be called `exe`.
    let _ = rustix::thread::set_name(c"leasehold-queue");
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return exit::BUG;
    };
    // Whoever started it sees the end of the link, and waits himself.
    match runtime.block_on(stand(link)) {
        Ok(()) => exit::OK,
        Err(_) => exit::BUG,
    }
}

/// What became of a turn.
enum Turn {
    /// The lease is somebody else's now.
    Handed,
    /// Nobody was there to take it.
    Passed,
    /// Nobody wants it any more.
    Over,
}

async fn stand(link: std::os::unix::net::UnixStream) -> io::Result<()> {
    link.set_nonblocking(true)?;
    let mut link = UnixStream::from_std(link)?;
    let length = link.read_u16_le().await?;
    let mut question = vec![0; length.into()];
    link.read_exact(&mut question).await?;
    let question: Value = serde_json::from_slice(&question)?;
    let client = open(&question).await.ok_or(io::ErrorKind::InvalidInput)?;
    let ended = take_turns(&client, &question, &mut link).await;
    if matches!(ended, Ok(Turn::Handed)) {
        // The lease lives by the life of this client, and that goes on with whoever has it now: nothing is closed here.
        std::process::exit(exit::OK.into());
    }
    let _ = tokio::time::timeout(CLOSING, client.close()).await;
    ended.map(drop)
}

async fn open(question: &Value) -> Option<Leasehold> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let overrides = Overrides {
        store: text(&question["store"]),
        namespace: text(&question["namespace"]),
        timeout: question["timeout"].as_u64().map(Duration::from_nanos),
        config: text(&question["config"]).map(PathBuf::from),
        // It was looked at already.
        scope: None,
    };
    let config = Config::load(overrides).ok()?;
    let choice = config.store(question["name"].as_str()).ok()?;
    let owner = &question["owner"];
    let owner = Owner {
        host: text(&owner["host"])?,
        user: text(&owner["user"])?,
        pid: owner["pid"].as_u64()?.try_into().ok()?,
        program: text(&owner["program"])?,
        tag: text(&owner["tag"])?,
    };
    let builder = Leasehold::builder().namespace(config.namespace().value).owner(owner);
    builder.timeout(choice.timeout.value).open(choice.url).await.ok()
}

/// Takes one turn after the other, until one is not in vain.
async fn take_turns(client: &Leasehold, question: &Value, link: &mut UnixStream) -> io::Result<Turn> {
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let name = LockName::parse(question["name"].as_str().ok_or_else(wrong)?).map_err(io::Error::other)?;
    let note = Note::parse(question["note"].as_str().unwrap_or("")).map_err(io::Error::other)?;
    let nanos = |key: &str| question[key].as_u64().map(Duration::from_nanos).ok_or_else(wrong);
    let (ttl, grace, fair) = (nanos("ttl")?, nanos("grace")?, question["fair"] == true);
    let lock =
        hold::Asked { name: &name, ttl, grace, fair, note: &note, at_least: nanos("at_least")? }.lock(client);
    let for_whom = client.owner().pid;
    loop {
        let lease = tokio::select! {
            biased;
            // Nothing is said to us now, so this is its end.
            _ = link.read_u8() => return Ok(Turn::Over),
            lease = lock.acquire() => lease.map_err(io::Error::other)?,
        };
        match take_turn(client, lease, for_whom, link).await? {
            Turn::Passed => {
                link.write_all(&[PASSED]).await?;
                // The answer to the question of before: it goes on.
                if link.read_u8().await.is_err() {
                    return Ok(Turn::Over);
                }
            }
            done => return Ok(done),
        }
    }
}

/// Hands the lease over if somebody is there; gives it back if not.
async fn take_turn(
    client: &Leasehold,
    lease: Lease,
    for_whom: u32,
    link: &mut UnixStream,
) -> io::Result<Turn> {
    link.write_all(&[TURN]).await?;
    loop {
        match tokio::time::timeout(SOON, link.read_u8()).await {
            Ok(Ok(HERE)) => break,
            Ok(_) => {
                let _ = tokio::time::timeout(CLOSING, lease.unused().release()).await;
                return Ok(Turn::Over);
            }
            Err(_) if is_stopped(for_whom) || lease.check().is_err() => {
                let _ = tokio::time::timeout(CLOSING, lease.unused().release()).await;
                return Ok(Turn::Passed);
            }
            Err(_) => {}
        }
    }
    let ticket = lease.ticket().await.map_err(io::Error::other)?.to_bytes();
    let life = client.life().await.map_err(io::Error::other)?;
    // Kept before anybody hears of it: of two that renew, one would release what the other has.
    lease.keep();
    let length = u16::try_from(ticket.len()).map_err(|_| io::ErrorKind::InvalidData)?;
    let bytes = [&[LEASE][..], &length.to_le_bytes(), &ticket].concat();
    pass::send(&*link, &bytes, life.as_ref().map(|life| life.as_fd()))?;
    // Without that word it was not taken. Then it ends with us, or with its ttl.
    match link.read_u8().await {
        Ok(TAKEN) => Ok(Turn::Handed),
        _ => Ok(Turn::Over),
    }
}

/// Whether a process is stopped, as by Ctrl-Z.
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
}
