//! A few words with a server over TCP, without any client library.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::net::Host;

/// A server that is asked whether it is there answers soon, or is not there.
const PATIENCE: Duration = Duration::from_secs(2);

/// Sends it this, from its own host, and gives all that it says until it hangs up.
pub(super) fn all_of(host: Option<&Host>, address: SocketAddr, words: &str) -> io::Result<String> {
    Host::there(host, || {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(words.as_bytes())?;
        let mut said = Vec::new();
        stream.read_to_end(&mut said)?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    })
}

/// Asks a server of HTTP for this, and gives the body of what it answers.
pub(super) fn http(
    host: Option<&Host>,
    address: SocketAddr,
    path: &str,
    body: Option<&str>,
) -> io::Result<String> {
    let method = if body.is_some() { "POST" } else { "GET" };
    let body = body.unwrap_or_default();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    let words = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    let said = all_of(host, address, &words)?;
    match said.split_once("\r\n\r\n") {
        Some((head, body)) if head.split_whitespace().nth(1) == Some("200") => Ok(body.to_owned()),
        _ => Err(io::Error::other(said)),
    }
}
