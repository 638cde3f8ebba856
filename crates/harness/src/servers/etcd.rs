//! An etcd for tests: one server, or the members of a cluster.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use super::net::Host;
use super::{NoServer, Recipe, Server, free_port, start_all, talk, until};

/// Somebody else may take a free port before a member does.
const TRIES: usize = 3;

/// The program of the version that comes in a Python package: `etcd` is Debian's.
pub const NEWER: &str = "etcd-3.5";

/// In seconds: under leases of so much or more our store remembers what has ended.
const REMEMBERED: u64 = 16;
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// What an etcd for tests is to be like.
#[derive(Debug, Clone, Default)]
pub struct Etcd {
    /// [`NEWER`], say, instead of `etcd`.
    pub program: Option<&'static str>,
    /// More words of its command line, such as `--quota-backend-bytes=1048576`.
    pub words: Vec<String>,
    /// On which host of a network it runs, instead of this machine.
    pub host: Option<Host>,
    member: Member,
}

/// Its place among others.
#[derive(Debug, Clone, Default)]
struct Member {
    number: usize,
    /// Where it listens for the others; alone, any port does.
    peers_at: Option<u16>,
    /// All of them, as the command line has it.
    all: String,
}

impl Etcd {
    /// The newer one, instead of the distribution's.
    #[must_use]
    pub fn newer() -> Self {
        Self { program: Some(NEWER), ..Self::default() }
    }

    /// Starts it, and returns once it answers.
    ///
    /// # Errors
    ///
    /// When it is not on this machine, or does not start.
    pub fn start(self) -> Result<Server, NoServer> {
        Server::start(self)
    }

    /// Another program, such as [`NEWER`].
    #[must_use]
    pub fn program(mut self, program: &'static str) -> Self {
        self.program = Some(program);
        self
    }

    /// One more word of its command line.
    #[must_use]
    pub fn word(mut self, word: impl Into<String>) -> Self {
        self.words.push(word.into());
        self
    }
}

/// The URL of the store in an etcd that was started here.
#[must_use]
pub fn url(server: &Server) -> String {
    format!("etcd://{}", server.address())
}

/// Asks it something by its gateway for JSON, such as `/v3/maintenance/status` with `{}`; gives its answer.
///
/// # Errors
///
/// When it does not answer, or refuses.
pub fn ask(server: &Server, path: &str, body: &str) -> io::Result<String> {
    talk::http(None, server.address(), path, Some(body))
}

/// All its keys with what is in them, read as text.
///
/// # Errors
///
/// When it does not answer.
pub fn keys(server: &Server) -> io::Result<Vec<(String, String)>> {
    let said = ask(server, "/v3/kv/range", r#"{"key":"AA==","range_end":"AA=="}"#)?;
    let said: serde_json::Value = serde_json::from_str(unchunked(&said)).map_err(io::Error::other)?;
    let pairs = said["kvs"].as_array().into_iter().flatten();
    Ok(pairs.map(|pair| (plain(&text(&pair["key"])), plain(&text(&pair["value"])))).collect())
}

/// Those of its keys that begin with this.
///
/// # Errors
///
/// When it does not answer.
pub fn keys_from(server: &Server, prefix: &str) -> io::Result<Vec<String>> {
    let all = keys(server)?.into_iter().map(|(key, _)| key);
    Ok(all.filter(|key| key.starts_with(prefix)).collect())
}

/// Takes a key away, as an administrator may.
///
/// # Errors
///
/// When it does not answer.
pub fn remove(server: &Server, key: &str) -> io::Result<()> {
    ask(server, "/v3/kv/deleterange", &format!(r#"{{"key":"{}"}}"#, written(key))).map(drop)
}

impl Recipe for Etcd {
    fn tool(&self) -> &'static str {
        self.program.unwrap_or("etcd")
    }

    fn command(&self, program: &Path, folder: &Path, port: u16) -> io::Result<Command> {
        let Self { program: _, words, host, member } = self;
        let Member { number, peers_at, all } = member;
        let (ip, name) = (self.ip(), name(*number));
        let at = format!("http://{ip}:{port}");
        let peers_at = match peers_at {
            Some(port) => *port,
            None => free_port()?,
        };
        let peers = format!("http://{ip}:{peers_at}");
        let all = if all.is_empty() { format!("{name}={peers}") } else { all.clone() };
        let mut command = Host::command_on(host.as_ref(), program);
        command.arg(format!("--name={name}"));
        command.arg(format!("--data-dir={}", folder.join("data").display()));
        command.arg(format!("--listen-client-urls={at}")).arg(format!("--advertise-client-urls={at}"));
        command
            .arg(format!("--listen-peer-urls={peers}"))
            .arg(format!("--initial-advertise-peer-urls={peers}"));
        command.arg(format!("--initial-cluster={all}"));
        command.args(["--logger=zap", "--log-outputs=stderr", "--log-level=warn"]);
        command.args(words).current_dir(folder);
        Ok(command)
    }

    fn answers(&self, _folder: &Path, port: u16) -> bool {
        // It is healthy when it has a leader and could write.
        let health = talk::http(self.host.as_ref(), (self.ip(), port).into(), "/health", None);
        health.is_ok_and(|health| health.contains("true"))
    }

    fn ip(&self) -> Ipv4Addr {
        self.host.as_ref().map_or(Ipv4Addr::LOCALHOST, |host| host.address)
    }
}

fn name(number: usize) -> String {
    format!("m{number}")
}

/// The members of a cluster.
#[derive(Debug)]
pub struct Members {
    /// Each of them. Signals and kills go straight to them.
    pub servers: Vec<Server>,
    hosts: Vec<Host>,
}

/// What a member says of itself.
struct Status {
    id: String,
    leader: String,
}

impl Members {
    /// Starts so many members that are like this, and returns once they serve.
    ///
    /// # Errors
    ///
    /// When there is no such server on this machine, or they do not come together.
    pub fn start(count: usize, like: &Etcd) -> Result<Self, NoServer> {
        Self::on_hosts(count, &[], like)
    }

    /// Starts a member on each of these hosts.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn on(hosts: &[Host], like: &Etcd) -> Result<Self, NoServer> {
        Self::on_hosts(hosts.len(), hosts, like)
    }

    fn on_hosts(count: usize, hosts: &[Host], like: &Etcd) -> Result<Self, NoServer> {
        let mut last = None;
        for _ in 0..TRIES {
            match start_all(members(count, hosts, like)?, Etcd::start) {
                Ok(servers) => return Ok(Self { servers, hosts: hosts.to_owned() }),
                Err(error @ NoServer::Missing(_)) => return Err(error),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or(NoServer::Missing("etcd")))
    }

    /// The URL of the store in them, with this behind it.
    #[must_use]
    pub fn url(&self, more: &str) -> String {
        let addresses: Vec<_> = self.servers.iter().map(|server| server.address().to_string()).collect();
        format!("etcd://{}{more}", addresses.join(","))
    }

    /// The number of the member that leads, as most of those that answer say.
    ///
    /// # Errors
    ///
    /// When most members name none.
    pub fn leader(&self) -> io::Result<usize> {
        let count = self.servers.len();
        let told: Vec<_> = (0..count).map(|member| self.status(member).ok()).collect();
        let says = |leader: &str| told.iter().flatten().filter(|status| status.leader == leader).count();
        let leads =
            |status: &Option<Status>| status.as_ref().is_some_and(|status| says(&status.id) * 2 > count);
        told.iter().position(leads).ok_or_else(|| io::Error::other("no member leads"))
    }

    /// The numbers of all others.
    ///
    /// # Errors
    ///
    /// As [`leader`](Self::leader).
    pub fn followers(&self) -> io::Result<Vec<usize>> {
        let leader = self.leader()?;
        Ok((0..self.servers.len()).filter(|member| *member != leader).collect())
    }

    /// Waits until all is well: every member answers, and all name the same leader.
    ///
    /// # Errors
    ///
    /// When it is not in time.
    pub fn settled(&self) -> io::Result<()> {
        until("all members name the same leader", || {
            let told: Vec<_> =
                (0..self.servers.len()).filter_map(|member| self.status(member).ok()).collect();
            let leader = told.first().map(|status| status.leader.clone()).unwrap_or_default();
            let agreed = told.iter().all(|status| status.leader == leader);
            Ok(told.len() == self.servers.len() && agreed && told.iter().any(|status| status.id == leader))
        })
    }

    /// Asks a member something by its gateway for JSON.
    ///
    /// # Errors
    ///
    /// When it does not answer, or refuses.
    pub fn ask(&self, member: usize, path: &str, body: &str) -> io::Result<serde_json::Value> {
        let said = talk::http(self.hosts.get(member), self.servers[member].address(), path, Some(body))?;
        serde_json::from_str(unchunked(&said)).map_err(io::Error::other)
    }

    /// Forgets all that was before now.
    ///
    /// # Errors
    ///
    /// As [`ask`](Self::ask).
    pub fn compact(&self, member: usize) -> io::Result<()> {
        let now = text(&self.ask(member, "/v3/kv/range", r#"{"key":"AA=="}"#)?["header"]["revision"]);
        match self.ask(member, "/v3/kv/compaction", &format!(r#"{{"revision":"{now}","physical":true}}"#)) {
            // Nothing was written since the last time.
            Err(error) if error.to_string().contains("has been compacted") => Ok(()),
            said => said.map(drop),
        }
    }

    /// Revokes all leases there are, as an administrator may.
    ///
    /// # Errors
    ///
    /// As [`ask`](Self::ask).
    pub fn revoke_all(&self, member: usize) -> io::Result<()> {
        for id in self.lease_ids(member)? {
            match self.ask(member, "/v3/lease/revoke", &format!(r#"{{"ID":"{id}"}}"#)) {
                // Its owner was quicker.
                Err(error) if error.to_string().contains("lease not found") => {}
                said => drop(said?),
            }
        }
        Ok(())
    }

    /// The keys in all lines under the prefix that is ours by default.
    pub(super) fn line_keys(&self, member: usize) -> io::Result<Vec<String>> {
        let said =
            self.ask(member, "/v3/kv/range", r#"{"key":"AA==","range_end":"AA==","keys_only":true}"#)?;
        let keys = said["kvs"].as_array().into_iter().flatten().map(|pair| plain(&text(&pair["key"])));
        Ok(keys.filter(|key| key.starts_with("lock/") && !key.starts_with("lock/~")).collect())
    }

    /// The leases that live so short as those of claims do: by longer ones it is remembered which claims have ended.
    pub(super) fn leases(&self, member: usize) -> io::Result<Vec<String>> {
        let mut short = Vec::new();
        for id in self.lease_ids(member)? {
            let said = self.ask(member, "/v3/lease/timetolive", &format!(r#"{{"ID":"{id}"}}"#))?;
            let ttl = text(&said["grantedTTL"]).parse::<u64>().unwrap_or(0);
            if (1..REMEMBERED).contains(&ttl) {
                short.push(format!("lease {id} of {ttl} s"));
            }
        }
        Ok(short)
    }

    fn lease_ids(&self, member: usize) -> io::Result<Vec<String>> {
        let said = self.ask(member, "/v3/lease/leases", "{}")?;
        Ok(said["leases"].as_array().into_iter().flatten().map(|lease| text(&lease["ID"])).collect())
    }

    fn status(&self, member: usize) -> io::Result<Status> {
        if !self.servers[member].is_awake() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let said = self.ask(member, "/v3/maintenance/status", "{}")?;
        Ok(Status { id: text(&said["header"]["member_id"]), leader: text(&said["leader"]) })
    }
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// What the gateway has written in base64.
fn plain(written: &str) -> String {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for digit in written.bytes().filter_map(|byte| DIGITS.iter().position(|digit| *digit == byte)) {
        (bits, count) = (bits << 6 | u32::try_from(digit).unwrap_or(0), count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What the gateway reads, in base64.
fn written(plain: &str) -> String {
    let mut text = String::new();
    for three in plain.as_bytes().chunks(3) {
        let bits =
            three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 63;
            text.push(if digit > three.len() { '=' } else { char::from(DIGITS[value as usize]) });
        }
    }
    text
}

/// What is between the braces: the gateway may send it in pieces, of which there is one.
fn unchunked(body: &str) -> &str {
    let (start, end) = (body.find('{').unwrap_or(0), body.rfind('}').map_or(body.len(), |end| end + 1));
    &body[start..end]
}

/// The recipes of members that know each other.
fn members(count: usize, hosts: &[Host], like: &Etcd) -> io::Result<Vec<Etcd>> {
    let ports = (0..count).map(|_| free_port()).collect::<io::Result<Vec<_>>>()?;
    let ip = |member: usize| hosts.get(member).map_or(Ipv4Addr::LOCALHOST, |host| host.address);
    let one = |member: usize| format!("{}=http://{}:{}", name(member), ip(member), ports[member]);
    let all = (0..count).map(one).collect::<Vec<_>>().join(",");
    let member = |number: usize| {
        let member = Member { number, peers_at: Some(ports[number]), all: all.clone() };
        Etcd { host: hosts.get(number).cloned(), member, ..like.clone() }
    };
    Ok((0..count).map(member).collect())
}

#[cfg(test)]
mod tests {
    use super::super::net::Net;
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        assert_eq!([written("a"), written("ab"), written("abc")], ["YQ==", "YWI=", "YWJj"]);
        for text in ["", "lock/demo/7587", "~\u{ff}"] {
            assert_eq!(plain(&written(text)), text);
        }
    }

    fn there<T>(started: Result<T, NoServer>) -> Option<T> {
        match started {
            Ok(server) => Some(server),
            Err(NoServer::Missing(tool)) => {
                eprintln!("skipped: there is no {tool} here");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn one_starts_dies_and_goes_on() {
        let Some(mut server) = there(Etcd::default().start()) else { return };
        assert!(ask(&server, "/v3/kv/put", r#"{"key":"YQ==","value":"Yg=="}"#).unwrap().contains("revision"));
        server.kill();
        assert!(ask(&server, "/v3/kv/range", r#"{"key":"YQ=="}"#).is_err());
        server.go_on().unwrap();
        assert!(ask(&server, "/v3/kv/range", r#"{"key":"YQ=="}"#).unwrap().contains("Yg=="));
    }

    #[test]
    fn when_the_leader_of_three_dies_another_leads() {
        let Some(mut three) = there(Members::start(3, &Etcd::default())) else { return };
        three.settled().unwrap();
        let old = three.leader().unwrap();
        three.servers[old].kill();
        until("another leads", || Ok(three.leader().is_ok_and(|leader| leader != old))).unwrap();
        three.servers[old].go_on().unwrap();
        three.settled().unwrap();
        assert_eq!(three.followers().unwrap().len(), 2);
    }

    #[test]
    fn three_on_hosts_of_their_own_find_each_other_and_lose_a_leader_that_is_cut_off() {
        let Some(net) = there(Net::start(3)) else { return };
        let Some(three) = there(Members::on(&net.hosts, &Etcd::default())) else { return };
        three.settled().unwrap();
        let old = three.leader().unwrap();
        net.cut(&[old], &net.but(&[old])).unwrap();
        until("another leads", || Ok(three.leader().is_ok_and(|leader| leader != old))).unwrap();
        net.heal().unwrap();
        three.settled().unwrap();
    }
}
