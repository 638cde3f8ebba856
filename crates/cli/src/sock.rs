//! The socket at which a `run` answers its command: how much is left of the lease, and may it be more.
//!
//! As much of HTTP as `curl --unix-socket $LEASE_SOCK http://x/lease` needs, and one line of JSON in answer.
//!
//! | asked | answered |
//! |---|---|
//! | `GET /lease` | the lease: 200, or 410 once it is lost |
//! | `POST /renew {"token", "left_ms"}` | the same, renewed if less was left |
//! | `POST /holds {"name", "store", "token"}` | whether this very lease is held here, and the asker descends from us |

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Lease, LeaseState};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::failure::Failure;
use crate::human::millis;
use crate::job::Held;
use crate::{ancestry, ask};

/// A socket address ends here.
const MOST_PATH: usize = 107;
/// The longest question.
const MOST_BYTES: usize = 16 << 10;
/// How long a question may take to arrive, and an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(2);
/// So many are served at once; the others wait their turn.
const MOST_AT_ONCE: usize = 16;

/// The socket of one `run`; its file goes with it.
pub(crate) struct Door {
    listener: UnixListener,
    path: PathBuf,
}

/// Which lease is answered for.
pub(crate) struct Facts<'a> {
    /// As it was typed.
    pub(crate) name: &'a str,
    /// The store, by what it is.
    pub(crate) store: String,
    pub(crate) held: &'a Held,
}

/// A question that came in.
enum Asked {
    Lease,
    Renew(Value),
    /// By the process with this number.
    Holds(Value, Option<u32>),
}

type Reply = oneshot::Sender<(u16, Value)>;

impl Door {
    /// Opens the socket of this process.
    pub(crate) fn open() -> io::Result<Self> {
        let folder = folder()?;
        tidy(&folder);
        let pid = std::process::id();
        // The number may be that of a living process elsewhere: containers may share the folder.
        let names =
            (0..8).map(|more| if more == 0 { format!("{pid}.sock") } else { format!("{pid}-{more}.sock") });
        for path in names.map(|name| folder.join(name)) {
            if path.as_os_str().len() > MOST_PATH {
                return Err(io::Error::other(format!("the path {} is too long", path.display())));
            }
            match UnixListener::bind(&path) {
                Ok(listener) => {
                    let door = Self { listener, path };
                    std::fs::set_permissions(&door.path, std::fs::Permissions::from_mode(0o600))?;
                    return Ok(door);
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Answers until it is dropped.
    pub(crate) async fn serve(&self, facts: &Facts<'_>) {
        let (quick, mut questions) = mpsc::channel::<(Asked, Reply)>(MOST_AT_ONCE);
        let (slow, mut renewals) = mpsc::channel::<(Asked, Reply)>(MOST_AT_ONCE);
        let room = Arc::new(Semaphore::new(MOST_AT_ONCE));
        let accept = async {
            loop {
                let Ok(permit) = room.clone().acquire_owned().await else { return };
                let Ok((stream, _)) = self.listener.accept().await else {
                    // Out of descriptors, as a rule: others need time to close theirs.
                    tokio::time::sleep(PATIENCE / 20).await;
                    continue;
                };
                let (quick, slow) = (quick.clone(), slow.clone());
                tokio::spawn(async move {
                    // Whoever goes away in the middle hears nothing.
                    drop(visit(stream, quick, slow).await);
                    drop(permit);
                });
            }
        };
        let answer = async {
            while let Some((asked, reply)) = questions.recv().await {
                drop(reply.send(facts.answer(asked).await));
            }
        };
        // Apart: a store that is silent must not make everybody wait who only looks.
        let renew = async {
            while let Some((asked, reply)) = renewals.recv().await {
                drop(reply.send(facts.answer(asked).await));
            }
        };
        tokio::join!(accept, answer, renew);
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.path));
    }
}

impl Facts<'_> {
    async fn answer(&self, asked: Asked) -> (u16, Value) {
        let Some(lease) = self.held.now() else {
            return (410, json!({"v": 1, "error": "the lease was lost while its command was stopped"}));
        };
        let token = lease.token().get();
        match asked {
            Asked::Lease => self.shown(&lease, None),
            Asked::Renew(details) => {
                let Some(least) = details["left_ms"].as_u64().filter(|_| details["token"] == token) else {
                    return (400, json!({"v": 1, "error": "which lease, and how much?"}));
                };
                let ensured = lease.ensure(Duration::from_millis(least)).await;
                self.shown(&lease, ensured.err().map(|error| Failure::from(&error)))
            }
            Asked::Holds(details, pid) => {
                let same = details["token"] == token
                    && details["name"] == lease.name().as_str()
                    && details["store"] == self.store.as_str();
                // Read last: what it says is true for as long as the asker's own ancestors live.
                let yes = same
                    && lease.check().is_ok()
                    && pid.is_some_and(|pid| ancestry::descends(pid, std::process::id()));
                if !yes {
                    return (200, json!({"v": 1, "yes": false}));
                }
                let (holder, ttl) = (lease.owner_id(), millis(lease.ttl()));
                (200, json!({"v": 1, "yes": true, "token": token, "holder": holder, "ttl_ms": ttl}))
            }
        }
    }

    fn shown(&self, lease: &Lease, problem: Option<Failure>) -> (u16, Value) {
        let stands = lease.check();
        let state = match (&stands, lease.state()) {
            (Err(_), _) | (_, LeaseState::Lost) => "lost",
            (_, LeaseState::Endangered) => "endangered",
            (_, LeaseState::Held) => "held",
        };
        let problem = problem.map(|failure| {
            json!({"code": failure.code.to_string(), "exit": failure.exit, "message": failure.message})
        });
        let status = match (state, &problem) {
            ("lost", _) => 410,
            (_, Some(_)) => 503,
            _ => 200,
        };
        let answer = json!({
            "v": 1, "name": self.name, "names": [self.name], "token": lease.token().get(),
            "holder": lease.owner_id(), "state": state, "left_ms": millis(lease.remaining()),
            "ttl_ms": millis(lease.ttl()), "reason": stands.err().map(|lost| lost.reason.to_string()),
            "problem": problem,
        });
        (status, answer)
    }
}

/// One conversation: a question, an answer, the end.
async fn visit(
    mut stream: UnixStream,
    quick: mpsc::Sender<(Asked, Reply)>,
    slow: mpsc::Sender<(Asked, Reply)>,
) -> io::Result<()> {
    let peer = stream.peer_cred()?;
    if !ask::is_trusted(peer.uid()) {
        return Ok(());
    }
    let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok());
    let question = tokio::time::timeout(PATIENCE, read(&mut stream)).await;
    let (status, answer) = match question.map_err(|_| io::ErrorKind::TimedOut)?? {
        Ok((line, body)) => {
            let asked = match line.as_str() {
                "GET /lease" => Some((Asked::Lease, quick)),
                "POST /renew" => Some((Asked::Renew(body), slow)),
                "POST /holds" => Some((Asked::Holds(body, pid), quick)),
                _ => None,
            };
            match asked {
                Some((asked, to)) => {
                    let (reply, answer) = oneshot::channel();
                    to.send((asked, reply)).await.map_err(|_| io::ErrorKind::BrokenPipe)?;
                    answer.await.map_err(|_| io::ErrorKind::BrokenPipe)?
                }
                None => (404, json!({"v": 1, "error": "known: GET /lease, POST /renew, POST /holds"})),
            }
        }
        Err(problem) => (400, json!({"v": 1, "error": problem})),
    };
    let body = format!("{answer}\n");
    let word = match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        410 => "Gone",
        _ => "Service Unavailable",
    };
    let text = format!(
        "HTTP/1.1 {status} {word}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let write = async {
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await
    };
    tokio::time::timeout(PATIENCE, write).await.map_err(|_| io::ErrorKind::TimedOut)?
}

/// A question: its verb and path, and its details.
async fn read(stream: &mut UnixStream) -> io::Result<Result<(String, Value), &'static str>> {
    let mut bytes = Vec::new();
    loop {
        if let Some(question) = parse(&bytes) {
            return Ok(question);
        }
        if bytes.len() >= MOST_BYTES {
            return Ok(Err("too long"));
        }
        let room = u64::try_from(MOST_BYTES - bytes.len()).unwrap_or(0);
        if (&mut *stream).take(room).read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// `None` as long as something is missing.
fn parse(bytes: &[u8]) -> Option<Result<(String, Value), &'static str>> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let (head, body) = (&bytes[..end], &bytes[end + 4..]);
    let Ok(head) = std::str::from_utf8(head) else { return Some(Err("not text")) };
    let mut lines = head.split("\r\n");
    let Some((line, version)) = lines.next().unwrap_or("").rsplit_once(' ') else {
        return Some(Err("not HTTP"));
    };
    if !version.starts_with("HTTP/1.") {
        return Some(Err("not HTTP/1.1"));
    }
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>())
    });
    let length = match length {
        None => 0,
        Some(Ok(length)) if length <= MOST_BYTES => length,
        Some(_) => return Some(Err("too long")),
    };
    let body = body.get(..length)?;
    if body.is_empty() {
        return Some(Ok((line.to_owned(), Value::Null)));
    }
    Some(serde_json::from_slice(body).map(|body| (line.to_owned(), body)).map_err(|_| "not JSON"))
}

/// The folder for sockets: below the user's run directory where there is one, else in the state directory.
fn folder() -> io::Result<PathBuf> {
    let me = rustix::process::geteuid();
    let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let usual = PathBuf::from(format!("/run/user/{}", me.as_raw()));
    // After `su` the variable is another user's.
    let mine = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == me.as_raw())
    };
    let folder = match given.into_iter().chain([usual]).find(mine) {
        Some(run) => run.join("leasehold"),
        None => {
            let database = leasehold::config::default_database().map_err(io::Error::other)?;
            let state = database.parent().ok_or(io::ErrorKind::NotFound)?;
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(state)?;
            state.join("run")
        }
    };
    match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = std::fs::symlink_metadata(&folder)?;
    if !found.is_dir() || found.uid() != me.as_raw() || found.mode() & 0o077 != 0 {
        return Err(io::Error::other(format!("{} is not a folder of this user alone", folder.display())));
    }
    Ok(folder)
}

/// Takes away what processes left behind that were killed: nobody listens there, and the number is nobody's, or
/// our own.
fn tidy(folder: &Path) {
    let Ok(files) = std::fs::read_dir(folder) else { return };
    for path in files.flatten().map(|file| file.path()) {
        let Some(stem) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".sock")) else {
            continue;
        };
        let Ok(pid) = stem.split('-').next().unwrap_or(stem).parse::<i32>() else { continue };
        let Some(number) = rustix::process::Pid::from_raw(pid) else { continue };
        let lives = rustix::process::test_kill_process(number) != Err(rustix::io::Errno::SRCH);
        if lives && number != rustix::process::getpid() {
            continue;
        }
        let nobody = std::os::unix::net::UnixStream::connect(&path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
        if nobody {
            drop(std::fs::remove_file(&path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_whole_or_not_yet() {
        let line = |text: &str| parse(text.as_bytes());
        assert_eq!(line("GET /lease HTTP/1.1\r\nHost: x\r\n"), None);
        assert_eq!(
            line("GET /lease HTTP/1.1\r\nHost: x\r\n\r\n"),
            Some(Ok(("GET /lease".into(), Value::Null)))
        );
        assert_eq!(line("POST /renew HTTP/1.1\r\ncontent-length: 2\r\n\r\n{"), None);
        let asked = line("POST /renew HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}");
        assert_eq!(asked, Some(Ok(("POST /renew".into(), json!({})))));
        for wrong in [
            "\r\n\r\n",
            "GET /lease\r\n\r\n",
            "a b HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
            "a HTTP/1.1\r\nContent-Length: 1\r\n\r\nx",
        ] {
            assert!(matches!(line(wrong), Some(Err(_))), "{wrong:?}");
        }
        assert!(matches!(parse(b"\xff HTTP/1.1\r\n\r\n"), Some(Err("not text"))));
    }
}
