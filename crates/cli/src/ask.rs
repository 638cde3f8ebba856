//! Questions to the `run` around this process, over its socket.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// How long to wait for an answer that needs no store: whoever is silent for longer is stopped or frozen.
pub(crate) const SOON: Duration = Duration::from_secs(1);
/// The longest answer.
const MOST_BYTES: u64 = 64 << 10;

/// Asks, and gives what is answered within `most`.
pub(crate) async fn ask(path: &Path, question: Question<'_>, most: Duration) -> io::Result<Value> {
    match tokio::time::timeout(most, dialogue(path, question)).await {
        Ok(answer) => answer,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// What is asked: a verb and a path, and perhaps details.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) line: &'static str,
    pub(crate) details: Option<&'a Value>,
}

async fn dialogue(path: &Path, Question { line, details }: Question<'_>) -> io::Result<Value> {
    let mut stream = UnixStream::connect(path).await?;
    // What others answer about our leases is worth nothing.
    if !is_trusted(stream.peer_cred()?.uid()) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let body = details.map_or_else(String::new, Value::to_string);
    let text = format!("{line} HTTP/1.1\r\nHost: lease\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(text.as_bytes()).await?;
    let mut answer = String::new();
    stream.take(MOST_BYTES).read_to_string(&mut answer).await?;
    let (_, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
    Ok(serde_json::from_str(body)?)
}

/// Whether a user may ask us, and be asked: the same one, or root.
pub(crate) fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}
