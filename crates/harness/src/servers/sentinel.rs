//! A master with its replicas, and the sentinels that watch over them, fail over by themselves, or when told to.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use leasehold_core::Clock;
use tempfile::TempDir;

use super::certificates::{Certificates, HOST};
use super::net::Host;
use super::redis::{Redis, ask, ask_at, tls_lines};
use super::{NoServer, PAUSE, Recipe, Server, until};

/// As the sentinels call the master.
pub const NAME: &str = "main";
/// An ordered failover that is not over by then was given up.
const ORDER_AGAIN: Duration = Duration::from_secs(5);

/// What they are to be like.
#[derive(Debug, Clone)]
pub struct Shape {
    /// What each server is like. If it speaks TLS, all of them and the sentinels do.
    pub redis: Redis,
    /// How many replicas the master has.
    pub replicas: usize,
    /// How many sentinels watch, of whom half, rounded up, must agree that the master is down.
    pub sentinels: usize,
    /// After how long a server that is silent counts as down.
    pub down_after: Duration,
    /// On which host each server and the sentinel beside it runs, as far as there are any; the rest is on this machine.
    pub hosts: Vec<Host>,
}

impl Default for Shape {
    fn default() -> Self {
        let (redis, down_after) = (Redis::default(), Duration::from_secs(1));
        Self { redis, replicas: 2, sentinels: 3, down_after, hosts: Vec::new() }
    }
}

/// Servers that sentinels watch over. The first one is the master as long as none failed over.
#[derive(Debug)]
pub struct Watched {
    /// Each server. Signals and kills go straight to them.
    pub servers: Vec<Server>,
    /// Each sentinel, likewise.
    pub sentinels: Vec<Server>,
    /// Where their common certificates lie, if they speak TLS.
    certificates: Option<TempDir>,
}

/// What a sentinel does more often than it does by itself, in milliseconds.
const OFTEN: &[&str] = &[
    "SENTINEL",
    "DEBUG",
    "INFO-PERIOD",
    "200",
    "ASK-PERIOD",
    "200",
    "PUBLISH-PERIOD",
    "250",
    "MIN-LINK-RECONNECT-PERIOD",
    "1000",
    "SLAVE-RECONF-TIMEOUT",
    "2000",
    "ELECTION-TIMEOUT",
    "3000",
    // One that was stopped does nothing for so long after it wakes.
    "TILT-PERIOD",
    "1000",
];

/// A sentinel, told of this master once; what it knows later stands in its file.
#[derive(Debug)]
struct Sentinel {
    master: SocketAddr,
    quorum: usize,
    down_after: Duration,
    host: Option<Host>,
    certificates: Option<PathBuf>,
}

impl Recipe for Sentinel {
    fn tool(&self) -> &'static str {
        "redis-server"
    }

    fn command(&self, program: &Path, folder: &Path, port: u16) -> io::Result<Command> {
        // One for each port: another may have been taken before.
        let file = folder.join(format!("sentinel-{port}.conf"));
        if !file.exists() {
            let Self { master, quorum, down_after, host: _, certificates } = self;
            let (ip, of) = (called(*master, certificates.is_some()), master.port());
            let mut lines = vec![format!("bind {}", self.ip()), "protected-mode no".to_owned()];
            match certificates {
                None => lines.push(format!("port {port}")),
                Some(certificates) => {
                    lines.push("port 0".to_owned());
                    lines.extend(tls_lines(port, certificates)?);
                    // As their certificates do, they speak of names. The first of these has to come before any name.
                    lines.push("tls-replication yes".to_owned());
                    lines.push("sentinel resolve-hostnames yes".to_owned());
                    lines.push("sentinel announce-hostnames yes".to_owned());
                    lines.push(format!("sentinel announce-ip {HOST}"));
                }
            }
            lines.extend([
                format!("unixsocket {}", socket(folder).display()),
                format!("dir {}", folder.display()),
                "daemonize no".to_owned(),
                format!("sentinel monitor {NAME} {ip} {of} {quorum}"),
                format!("sentinel down-after-milliseconds {NAME} {}", down_after.as_millis()),
                // So that one failover soon follows the other.
                format!("sentinel failover-timeout {NAME} {}", down_after.as_millis() * 3),
                format!("sentinel parallel-syncs {NAME} 2"),
            ]);
            std::fs::write(&file, lines.join("\n") + "\n")?;
        }
        let mut command = Host::command_on(self.host.as_ref(), program);
        command.arg(file).arg("--sentinel").current_dir(folder);
        Ok(command)
    }

    fn ip(&self) -> Ipv4Addr {
        self.host.as_ref().map_or(Ipv4Addr::LOCALHOST, |host| host.address)
    }

    fn answers(&self, folder: &Path, _port: u16) -> bool {
        ask_at(&socket(folder), OFTEN).is_ok_and(|answer| answer.starts_with("+OK"))
    }
}

/// What a server is called by others: over TLS as in its certificate.
fn called(address: SocketAddr, tls: bool) -> String {
    if tls { HOST.to_owned() } else { address.ip().to_string() }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("redis.sock")
}

impl Watched {
    /// Starts them, and returns once they are [settled](Self::settled).
    ///
    /// # Errors
    ///
    /// When there is no such server on this machine, or they do not come together.
    pub fn start(shape: &Shape) -> Result<Self, NoServer> {
        let Shape { redis, replicas, sentinels, down_after, hosts } = shape;
        // Else a replica waits for others that might want the same data.
        let mut redis = redis.clone().line("repl-diskless-sync-delay 0");
        let (tls, certificates) = (redis.tls, if redis.tls { Some(tempfile::tempdir()?) } else { None });
        let shared = certificates.as_ref().map(|folder| folder.path().to_owned());
        if tls {
            redis.certificates.clone_from(&shared);
            redis = redis.line("tls-replication yes").line(format!("replica-announce-ip {HOST}"));
        }
        let place = |number: usize| Redis { host: hosts.get(number).cloned(), ..redis.clone() };
        let master = place(0).start()?;
        let address = master.address();
        let mut servers = vec![master];
        for number in 1..=*replicas {
            let of = format!("replicaof {} {}", called(address, tls), address.port());
            servers.push(place(number).line(of).start()?);
        }
        let (quorum, down_after) = (sentinels.div_ceil(2), *down_after);
        let sentinel = |number: usize| {
            let (host, certificates) = (hosts.get(number).cloned(), shared.clone());
            Sentinel { master: address, quorum, down_after, host, certificates }
        };
        let sentinels =
            (0..*sentinels).map(|number| Server::start(sentinel(number))).collect::<Result<_, _>>()?;
        let watched = Self { servers, sentinels, certificates };
        watched.settled()?;
        Ok(watched)
    }

    /// The URL of the store in them, with this behind it, such as `?min_replicas=1`. Over TLS whom to trust stands in it.
    #[must_use]
    pub fn url(&self, more: &str) -> String {
        let tls = self.certificates.is_some();
        let address = |one: &Server| format!("{}:{}", called(one.address(), tls), one.address().port());
        let addresses = self.sentinels.iter().map(address).collect::<Vec<_>>().join(",");
        match &self.certificates {
            None => format!("redis+sentinel://{addresses}/{NAME}{more}"),
            Some(folder) => {
                let ca = Certificates::of(folder.path()).ca;
                let more = more.replacen('?', "&", 1);
                format!("rediss+sentinel://{addresses}/{NAME}?ca={}{more}", ca.display())
            }
        }
    }

    fn awake(&self) -> impl Iterator<Item = &Server> {
        self.sentinels.iter().filter(|sentinel| sentinel.is_awake())
    }

    /// Where a sentinel says that the master is; nowhere if it does not answer.
    fn named_by(&self, sentinel: &Server) -> Option<(u64, usize)> {
        let told = ask(sentinel, &["SENTINEL", "MASTER", NAME]).ok()?;
        let epoch: u64 = field(&told, "config-epoch")?.parse().ok()?;
        let address = format!("{}:{}", field(&told, "ip")?, field(&told, "port")?);
        let tls = self.certificates.is_some();
        let at = |server: &Server| format!("{}:{}", called(server.address(), tls), server.address().port());
        let server = self.servers.iter().position(|server| at(server) == address)?;
        Some((epoch, server))
    }

    /// The number of the master: of those that sentinels name, the one with the latest failover.
    ///
    /// # Errors
    ///
    /// When no sentinel answers.
    pub fn master(&self) -> io::Result<usize> {
        let named = self.awake().filter_map(|sentinel| self.named_by(sentinel)).max();
        named.map(|(_, server)| server).ok_or_else(|| io::Error::other("no sentinel names a master"))
    }

    /// The numbers of all others.
    ///
    /// # Errors
    ///
    /// As [`master`](Self::master).
    pub fn replicas(&self) -> io::Result<Vec<usize>> {
        let master = self.master()?;
        Ok((0..self.servers.len()).filter(|server| *server != master).collect())
    }

    /// Waits until all is well: every server is there, the replicas listen to the master (which says so a little before
    /// they have all it has), and all sentinels know all of that and of each other.
    ///
    /// # Errors
    ///
    /// When it is not in time.
    pub fn settled(&self) -> io::Result<()> {
        until("all are there and know of each other", || Ok(self.is_settled()))
    }

    fn is_settled(&self) -> bool {
        let named: Vec<_> = self.sentinels.iter().filter_map(|sentinel| self.named_by(sentinel)).collect();
        let agreed = named.len() == self.sentinels.len() && named.windows(2).all(|two| two[0] == two[1]);
        let Some((_, master)) = named.first().copied().filter(|_| agreed) else { return false };
        let replicas = self.servers.len() - 1;
        let fine = |sentinel: &Server| {
            let of = |what| ask(sentinel, &["SENTINEL", what, NAME]).unwrap_or_default();
            let (told, slaves) = (of("MASTER"), of("SLAVES"));
            let is = |key, value: &str| field(&told, key).is_some_and(|told| told == value);
            is("flags", "master")
                && is("num-slaves", &replicas.to_string())
                && is("num-other-sentinels", &(self.sentinels.len() - 1).to_string())
                && slaves.matches("\r\nslave\r\n").count() >= replicas
                && slaves.matches("\r\nok\r\n").count() >= replicas
        };
        let told = ask(&self.servers[master], &["INFO", "replication"]).unwrap_or_default();
        told.contains("role:master")
            && told.matches("state=online").count() == replicas
            && self.sentinels.iter().all(fine)
    }

    /// Has the sentinels make another server than this the master, though it is well. Gives the number of the new one.
    ///
    /// # Errors
    ///
    /// When none is in time.
    pub fn fail_over(&self, old: usize) -> io::Result<usize> {
        let clock = Clock::system();
        // They may give it up, and then nobody goes on by himself.
        let mut order_at = clock.now();
        until("a failover", || {
            if clock.now() >= order_at {
                // One that is stopped would do it when it wakes.
                let tell = |sentinel| ask(sentinel, &["SENTINEL", "FAILOVER", NAME]);
                let ordered = |said: io::Result<String>| said.is_ok_and(|said| said.starts_with("+OK"));
                let ordered = self.awake().any(|one| ordered(tell(one)));
                order_at = clock.now().after(if ordered { ORDER_AGAIN } else { PAUSE });
            }
            Ok(self.is_master_after(old)?.is_some())
        })?;
        self.master_after(old)
    }

    /// Waits until some other server than this is the master, by what the sentinels and itself say. Gives its number.
    ///
    /// # Errors
    ///
    /// When none is in time.
    pub fn master_after(&self, old: usize) -> io::Result<usize> {
        let mut new = None;
        until("another server is the master", || {
            new = self.is_master_after(old)?;
            Ok(new.is_some())
        })?;
        new.ok_or_else(|| io::Error::other("no other server is the master"))
    }

    fn is_master_after(&self, old: usize) -> io::Result<Option<usize>> {
        let Ok(master) = self.master() else { return Ok(None) };
        Ok((master != old && self.say(master, &["ROLE"])?.contains("master")).then_some(master))
    }

    /// Cuts a replica off from its master: it hears of nothing any more, and may be made the master all the same.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn cut_off(&self, replica: usize) -> io::Result<()> {
        // It knocks again at once, and is not let in.
        self.say(replica, &["CONFIG", "SET", "masteruser", "nobody", "masterauth", "nothing"])?;
        self.say(replica, &["CLIENT", "KILL", "TYPE", "master"])?;
        until("the link is down", || {
            Ok(self.say(replica, &["INFO", "replication"])?.contains("master_link_status:down"))
        })
    }

    /// Lets it in again.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn let_in(&self, replica: usize) -> io::Result<()> {
        self.say(replica, &["CONFIG", "SET", "masteruser", "", "masterauth", ""]).map(drop)
    }

    /// Takes a key out of a replica that is [cut off](Self::cut_off), as if it had never heard of it.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn forget(&self, replica: usize, key: &str) -> io::Result<()> {
        self.say(replica, &["CONFIG", "SET", "replica-read-only", "no"])?;
        self.say(replica, &["DEL", key])?;
        self.say(replica, &["CONFIG", "SET", "replica-read-only", "yes"]).map(drop)
    }

    /// Whatever happens, this replica is not to become the master. Returns once all sentinels know.
    ///
    /// # Errors
    ///
    /// When one does not answer, or hears of it too late.
    pub fn never_promote(&self, replica: usize) -> io::Result<()> {
        self.say(replica, &["CONFIG", "SET", "replica-priority", "0"])?;
        let port = self.servers[replica].address().port().to_string();
        let knows = |sentinel: &Server| {
            let told = ask(sentinel, &["SENTINEL", "SLAVES", NAME]).unwrap_or_default();
            let each = told.split("\r\nname\r\n").skip(1);
            let of = each.filter(|one| field(one, "port").is_some_and(|told| told == port));
            of.filter_map(|one| field(one, "slave-priority")).any(|priority| priority == "0")
        };
        until("all know that it is never promoted", || Ok(self.sentinels.iter().all(knows)))
    }

    /// Asks a server something; gives the raw answer.
    ///
    /// # Errors
    ///
    /// When it does not answer, or refuses.
    pub fn say(&self, server: usize, words: &[&str]) -> io::Result<String> {
        let answer = ask(&self.servers[server], words)?;
        if answer.starts_with('-') {
            Err(io::Error::other(format!("{words:?}: {answer}")))
        } else {
            Ok(answer)
        }
    }

    /// Whether a server has a key; one that does not answer has none.
    #[must_use]
    pub fn has(&self, server: usize, key: &str) -> bool {
        self.say(server, &["EXISTS", key]).is_ok_and(|said| said.starts_with(":1"))
    }
}

/// A value in the raw answer to a question that is answered by names and values in turns.
fn field<'a>(told: &'a str, key: &str) -> Option<&'a str> {
    let mut parts = told.split("\r\n").filter(|part| !part.starts_with(['$', '*']));
    parts.find(|part| *part == key)?;
    parts.next()
}

#[cfg(test)]
mod tests {
    use rustix::process::Signal;

    use super::*;

    #[test]
    fn they_fail_over_by_themselves_and_when_told_to() {
        let watched = match Watched::start(&Shape::default()) {
            Ok(watched) => watched,
            Err(NoServer::Missing(tool)) => return eprintln!("skipped: there is no {tool} here"),
            Err(error) => panic!("{error}"),
        };
        assert_eq!((watched.master().unwrap(), watched.replicas().unwrap()), (0, vec![1, 2]));
        watched.say(0, &["SET", "a", "b"]).unwrap();
        until("both have it", || Ok(watched.has(1, "a") && watched.has(2, "a"))).unwrap();
        watched.cut_off(1).unwrap();
        watched.say(0, &["SET", "c", "d"]).unwrap();
        until("the other has it", || Ok(watched.has(2, "c"))).unwrap();
        assert!(!watched.has(1, "c"));
        watched.let_in(1).unwrap();
        watched.settled().unwrap();
        let second = watched.fail_over(0).unwrap();
        watched.settled().unwrap();
        watched.servers[second].signal(Signal::STOP).unwrap();
        let third = watched.master_after(second).unwrap();
        watched.servers[second].signal(Signal::CONT).unwrap();
        watched.settled().unwrap();
        assert!(watched.has(third, "c") && watched.has(second, "c"));
    }
}
