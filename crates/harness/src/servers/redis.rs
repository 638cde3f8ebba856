//! A Redis, or what speaks like one, for tests: on a port and on a socket in its folder.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use leasehold_core::Clock;

use super::certificates::{Certificates, HOST};
use super::clock::ToldClock;
use super::net::Host;
use super::{NoServer, Recipe, Server, clock};

/// What a Redis for tests is to be like.
#[derive(Debug, Clone, Default)]
pub struct Redis {
    /// `valkey-server`, say, instead of `redis-server`.
    pub program: Option<&'static str>,
    /// Lines of its configuration, such as `maxmemory 2mb`. By default it keeps nothing on disk.
    pub lines: Vec<String>,
    /// The library of a clock that tests set and move: see [`clock::library`].
    pub clock: Option<PathBuf>,
    /// Its port speaks TLS and nothing else; its socket does not. See [`Certificates::of`] for whom to trust.
    pub tls: bool,
    /// Where the certificates lie that it shares with others, unless it has its own.
    pub certificates: Option<PathBuf>,
    /// On which host of a network it runs, instead of this machine.
    pub host: Option<Host>,
}

impl Redis {
    /// Starts it, and returns once it answers.
    ///
    /// # Errors
    ///
    /// When it is not on this machine, or does not start.
    pub fn start(self) -> Result<Server, NoServer> {
        Server::start(self)
    }

    /// As a node of a cluster, that is told later which others there are.
    #[must_use]
    pub fn clustered(self) -> Self {
        self.line(CLUSTERED)
    }

    /// On this host.
    #[must_use]
    pub fn on(self, host: &Host) -> Self {
        Self { host: Some(host.clone()), ..self }
    }

    /// One more line of its configuration.
    #[must_use]
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }
}

const CLUSTERED: &str = "cluster-enabled yes";
/// So far above its port is the one by which nodes of a cluster speak to each other.
const BUS: u16 = 10_000;

/// The program that carries Valkey.
pub const VALKEY: &str = "valkey-server";

/// The URL of the store in a Redis that was started here, at its port.
#[must_use]
pub fn url(server: &Server) -> String {
    format!("redis://{}", server.address())
}

/// The same over TLS, for one that speaks it: by the name that its certificate has, and with whom to trust.
#[must_use]
pub fn tls_url(server: &Server) -> String {
    let ca = Certificates::of(server.folder()).ca;
    format!("rediss://{HOST}:{}?ca={}", server.address().port(), ca.display())
}

/// The same at its socket.
#[must_use]
pub fn socket_url(server: &Server) -> String {
    format!("redis+unix://{}", socket(server).display())
}

/// Moves the clock of a server that was started with [one of its own](Redis::clock) to so many nanoseconds from the
/// machine's.
///
/// # Errors
///
/// When its file cannot be written.
pub fn step(server: &Server, nanos: i64) -> io::Result<()> {
    ToldClock::of(server)?.step(nanos)
}

/// Lets the clock of such a server stand still from now on: nothing there runs out by itself any more.
///
/// # Errors
///
/// When its file cannot be written.
pub fn freeze(server: &Server, clock: &Clock) -> io::Result<()> {
    ToldClock::of(server)?.set(clock.wall_micros())
}

/// The socket of a Redis that was started here.
#[must_use]
pub fn socket(server: &Server) -> PathBuf {
    socket_in(server.folder())
}

fn socket_in(folder: &Path) -> PathBuf {
    folder.join("redis.sock")
}

/// Asks it something by the words of a command, without any client library; gives the raw reply's first part.
///
/// # Errors
///
/// When it does not answer.
pub fn ask(server: &Server, words: &[&str]) -> io::Result<String> {
    ask_at(&socket(server), words)
}

pub(crate) fn ask_at(socket: &Path, words: &[&str]) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(request.as_bytes())?;
    let mut bytes = vec![0; 64 * 1024];
    let count = stream.read(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

/// What makes a server speak TLS at this port, with the certificates of this folder.
pub(super) fn tls_lines(port: u16, folder: &Path) -> io::Result<[String; 5]> {
    let certificates = Certificates::of(folder);
    certificates.make()?;
    let Certificates { ca, certificate, key } = certificates;
    Ok([
        format!("tls-port {port}"),
        format!("tls-ca-cert-file {}", ca.display()),
        format!("tls-cert-file {}", certificate.display()),
        format!("tls-key-file {}", key.display()),
        "tls-auth-clients no".to_owned(),
    ])
}

/// Asks it something that it answers with a text.
pub(crate) fn said(server: &Server, words: &[&str]) -> io::Result<String> {
    let answer = ask(server, words)?;
    refused(&answer)?;
    let text = answer.split_once("\r\n").map(|(_length, text)| text.trim_end());
    text.map(str::to_owned).ok_or_else(|| io::Error::other(answer.clone()))
}

/// What it refuses is an error.
pub(crate) fn refused(answer: &str) -> io::Result<()> {
    if answer.starts_with('-') { Err(io::Error::other(answer.trim().to_owned())) } else { Ok(()) }
}

/// Asks it for something that it does or does not.
pub(crate) fn ok(server: &Server, words: &[&str]) -> io::Result<()> {
    let answer = ask(server, words)?;
    if answer.starts_with("+OK") { Ok(()) } else { Err(io::Error::other(format!("{words:?}: {answer}"))) }
}

impl Recipe for Redis {
    fn tool(&self) -> &'static str {
        self.program.unwrap_or("redis-server")
    }

    fn command(&self, program: &Path, folder: &Path, port: u16) -> io::Result<Command> {
        let mut lines = vec![
            format!("bind {}", self.ip()),
            format!("port {}", if self.tls { 0 } else { port }),
            format!("unixsocket {}", socket_in(folder).display()),
            format!("dir {}", folder.display()),
            "save \"\"".to_owned(),
            "daemonize no".to_owned(),
        ];
        if self.tls {
            lines.extend(tls_lines(port, self.certificates.as_deref().unwrap_or(folder))?);
        }
        if self.host.is_some() {
            // Nobody but the test reaches it.
            lines.push("protected-mode no".to_owned());
        }
        lines.extend(self.lines.iter().cloned());
        let file = folder.join("redis.conf");
        std::fs::write(&file, lines.join("\n") + "\n")?;
        let mut command = Host::command_on(self.host.as_ref(), program);
        command.arg(file).current_dir(folder);
        if let Some(library) = &self.clock {
            clock::give(&mut command, library, folder)?;
        }
        Ok(command)
    }

    fn answers(&self, folder: &Path, _port: u16) -> bool {
        // One that wants a password is there, too.
        let answer = ask_at(&socket_in(folder), &["PING"]);
        answer.is_ok_and(|answer| answer.starts_with("+PONG") || answer.starts_with("-NOAUTH"))
    }

    fn ip(&self) -> Ipv4Addr {
        self.host.as_ref().map_or(Ipv4Addr::LOCALHOST, |host| host.address)
    }

    fn suits(&self, port: u16) -> bool {
        let is_free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        self.lines.iter().all(|line| line != CLUSTERED) || port.checked_add(BUS).is_some_and(is_free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_starts_dies_and_goes_on_in_its_folder() {
        let redis = Redis::default().line("appendonly yes").line("appendfsync always");
        let mut server = match redis.start() {
            Ok(server) => server,
            Err(NoServer::Missing(tool)) => return eprintln!("skipped: there is no {tool} here"),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(ask(&server, &["SET", "a", "b"]).unwrap(), "+OK\r\n");
        server.kill();
        assert!(ask(&server, &["GET", "a"]).is_err());
        server.go_on().unwrap();
        assert_eq!(ask(&server, &["GET", "a"]).unwrap(), "$1\r\nb\r\n");
    }

    #[test]
    fn its_clock_is_moved() {
        let clock = clock::library().unwrap();
        let redis = Redis { clock: Some(clock), ..Redis::default() };
        let server = match redis.start() {
            Ok(server) => server,
            Err(NoServer::Missing(tool)) => return eprintln!("skipped: there is no {tool} here"),
            Err(error) => panic!("{error}"),
        };
        let time = || -> u64 { ask(&server, &["TIME"]).unwrap().lines().nth(2).unwrap().parse().unwrap() };
        let before = time();
        step(&server, -3_600_000_000_000).unwrap();
        // It looks at its clock a few times a second.
        while time() + 3000 > before {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_line_that_it_does_not_know_is_told() {
        match Redis::default().line("no-such-thing 1").start() {
            Err(NoServer::Missing(tool)) => eprintln!("skipped: there is no {tool} here"),
            Err(NoServer::Broken { why, .. }) => assert!(!why.is_empty()),
            other => panic!("{other:?}"),
        }
    }
}
