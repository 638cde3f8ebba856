//! A ZooKeeper for tests: one server, or the members of an ensemble.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use zookeeper_client::{Client, Error};

use super::net::Host;
use super::{NoServer, Recipe, Server, free_port, start_all, talk, until};

/// The half of what a session needs at least, in milliseconds: a session lasts two ticks or more.
pub const TICK: u64 = 500;
/// What Debian's package `libzookeeper-java` brings; it names all others that it needs.
const JAR: &str = "/usr/share/java/zookeeper.jar";
const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
/// Somebody else may take a free port before a member does.
const TRIES: usize = 3;

/// What a ZooKeeper for tests is to be like.
#[derive(Debug, Clone, Default)]
pub struct ZooKeeper {
    /// Lines of its configuration, such as `maxSessionTimeout=5000`.
    pub lines: Vec<String>,
    /// Properties of its Java, such as `jute.maxbuffer=4096`.
    pub properties: Vec<String>,
    /// On which host of a network it runs, instead of this machine.
    pub host: Option<Host>,
    /// Its number in an ensemble; alone, it has none.
    member: Option<usize>,
}

impl ZooKeeper {
    /// Starts it, and returns once it answers.
    ///
    /// # Errors
    ///
    /// When it is not on this machine, or does not start.
    pub fn start(self) -> Result<Server, NoServer> {
        if !Path::new(JAR).is_file() {
            return Err(NoServer::Missing("zookeeper"));
        }
        Server::start(self)
    }

    /// One more line of its configuration.
    #[must_use]
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// One more property of its Java.
    #[must_use]
    pub fn property(mut self, property: impl Into<String>) -> Self {
        self.properties.push(property.into());
        self
    }
}

/// The URL of the store in a ZooKeeper that was started here.
#[must_use]
pub fn url(server: &Server) -> String {
    format!("zookeeper://{}", server.address())
}

/// Asks it one of its four-letter words, such as `mntr`.
///
/// # Errors
///
/// When it does not answer.
pub fn ask(server: &Server, word: &str) -> io::Result<String> {
    talk::all_of(None, server.address(), word)
}

/// All nodes below a path, however deep, with what is in them, read as text.
///
/// # Errors
///
/// When it does not answer.
pub fn nodes(server: &Server, below: &str) -> io::Result<Vec<(String, String)>> {
    with_client(server, async |client| {
        let (mut found, mut left) = (Vec::new(), vec![below.to_owned()]);
        while let Some(path) = left.pop() {
            let children = match client.list_children(&path).await {
                Err(Error::NoNode) => continue,
                children => children?,
            };
            for child in children {
                let child = format!("{}/{child}", path.trim_end_matches('/'));
                match client.get_data(&child).await {
                    Err(Error::NoNode) => continue,
                    data => found.push((child.clone(), String::from_utf8_lossy(&data?.0).into_owned())),
                }
                left.push(child);
            }
        }
        Ok(found)
    })
}

/// Takes a node away, as an administrator may.
///
/// # Errors
///
/// When it does not answer.
pub fn remove(server: &Server, path: &str) -> io::Result<()> {
    with_client(server, async |client| match client.delete(path, None).await {
        // Its owner was quicker.
        Err(Error::NoNode) => Ok(()),
        done => done,
    })
}

/// Speaks to it over a session that ends with that.
fn with_client<T>(server: &Server, speaks: impl AsyncFnOnce(&Client) -> Result<T, Error>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let said = runtime.block_on(async {
        let client = Client::connect(&server.address().to_string()).await?;
        speaks(&client).await
    });
    said.map_err(io::Error::other)
}

impl Recipe for ZooKeeper {
    fn tool(&self) -> &'static str {
        "java"
    }

    fn command(&self, program: &Path, folder: &Path, port: u16) -> io::Result<Command> {
        let Self { lines, properties, host, member } = self;
        let data = folder.join("data");
        std::fs::create_dir_all(&data)?;
        if let Some(member) = member {
            std::fs::write(data.join("myid"), member.to_string())?;
        }
        let mut all = vec![
            format!("dataDir={}", data.display()),
            format!("clientPort={port}"),
            format!("clientPortAddress={}", self.ip()),
            format!("tickTime={TICK}"),
            "admin.enableServer=false".to_owned(),
            "maxClientCnxns=0".to_owned(),
            "4lw.commands.whitelist=*".to_owned(),
        ];
        all.extend(lines.iter().cloned());
        let file = folder.join("zookeeper.cfg");
        std::fs::write(&file, all.join("\n") + "\n")?;
        let mut command = Host::command_on(host.as_ref(), program);
        // It starts in half the time when it compiles less, and tests do not last.
        command.args(["-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]);
        command.args(properties.iter().map(|property| format!("-D{property}")));
        command.args(["-cp", JAR, MAIN]).arg(file).current_dir(folder);
        Ok(command)
    }

    fn answers(&self, _folder: &Path, port: u16) -> bool {
        // A member that has no leader says that it does not serve.
        mode(self.host.as_ref(), self.ip(), port).is_ok_and(|mode| mode != Mode::None)
    }

    fn ip(&self) -> Ipv4Addr {
        self.host.as_ref().map_or(Ipv4Addr::LOCALHOST, |host| host.address)
    }
}

/// What a server is at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Alone,
    Leader,
    Follower,
    /// It does not serve.
    None,
}

fn mode(host: Option<&Host>, ip: Ipv4Addr, port: u16) -> io::Result<Mode> {
    let said = talk::all_of(host, (ip, port).into(), "srvr")?;
    let mode = said.lines().find_map(|line| line.strip_prefix("Mode: "));
    Ok(match mode {
        Some("standalone") => Mode::Alone,
        Some("leader") => Mode::Leader,
        Some("follower") => Mode::Follower,
        _ => Mode::None,
    })
}

/// The members of an ensemble.
#[derive(Debug)]
pub struct Ensemble {
    /// Each of them. Signals and kills go straight to them.
    pub servers: Vec<Server>,
    hosts: Vec<Host>,
}

impl Ensemble {
    /// Starts so many members that are like this, and returns once they serve.
    ///
    /// # Errors
    ///
    /// When there is no such server on this machine, or they do not come together.
    pub fn start(count: usize, like: &ZooKeeper) -> Result<Self, NoServer> {
        Self::on_hosts(count, &[], like)
    }

    /// Starts a member on each of these hosts.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn on(hosts: &[Host], like: &ZooKeeper) -> Result<Self, NoServer> {
        Self::on_hosts(hosts.len(), hosts, like)
    }

    fn on_hosts(count: usize, hosts: &[Host], like: &ZooKeeper) -> Result<Self, NoServer> {
        let mut last = None;
        for _ in 0..TRIES {
            match start_all(members(count, hosts, like)?, ZooKeeper::start) {
                Ok(servers) => return Ok(Self { servers, hosts: hosts.to_owned() }),
                Err(error @ NoServer::Missing(_)) => return Err(error),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or(NoServer::Missing("zookeeper")))
    }

    /// The URL of the store in them, with this behind it, such as `?session=own`.
    #[must_use]
    pub fn url(&self, more: &str) -> String {
        let addresses: Vec<_> = self.servers.iter().map(|server| server.address().to_string()).collect();
        format!("zookeeper://{}{more}", addresses.join(","))
    }

    /// The number of the member that leads.
    ///
    /// # Errors
    ///
    /// When none of those that answer does.
    pub fn leader(&self) -> io::Result<usize> {
        let leads = |member: &usize| matches!(self.mode(*member), Ok(Mode::Leader | Mode::Alone));
        let leader = (0..self.servers.len()).filter(|member| self.servers[*member].is_awake()).find(leads);
        leader.ok_or_else(|| io::Error::other("no member leads"))
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

    /// Waits until all is well: every member serves, and one of them leads.
    ///
    /// # Errors
    ///
    /// When it is not in time.
    pub fn settled(&self) -> io::Result<()> {
        until("all members serve, and one leads", || {
            let modes = (0..self.servers.len()).map(|member| self.mode(member).unwrap_or(Mode::None));
            let modes: Vec<_> = modes.collect();
            let leaders = modes.iter().filter(|mode| **mode == Mode::Leader).count();
            Ok(!modes.contains(&Mode::None) && (leaders == 1 || modes == [Mode::Alone]))
        })
    }

    /// Asks a member one of the four-letter words.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn ask(&self, member: usize, word: &str) -> io::Result<String> {
        talk::all_of(self.hosts.get(member), self.servers[member].address(), word)
    }

    /// The paths of all nodes that go with a session, as a member knows them.
    pub(super) fn ephemerals(&self, member: usize) -> io::Result<Vec<String>> {
        let said = self.ask(member, "dump")?;
        Ok(said.lines().map(str::trim).filter(|line| line.starts_with('/')).map(str::to_owned).collect())
    }

    /// All sessions that are alive, as the leader knows them.
    pub(super) fn sessions(&self, leader: usize) -> io::Result<Vec<String>> {
        let said = self.ask(leader, "mntr")?;
        let count = said.lines().find_map(|line| line.strip_prefix("zk_global_sessions\t"));
        let count = count.ok_or_else(|| io::Error::other(format!("no count of sessions: {said}")))?;
        Ok(if count == "0" { Vec::new() } else { vec![format!("{count} sessions")] })
    }

    fn mode(&self, member: usize) -> io::Result<Mode> {
        let server = &self.servers[member];
        let ip = self.hosts.get(member).map_or(Ipv4Addr::LOCALHOST, |host| host.address);
        mode(self.hosts.get(member), ip, server.address().port())
    }
}

/// The recipes of members that know each other.
fn members(count: usize, hosts: &[Host], like: &ZooKeeper) -> io::Result<Vec<ZooKeeper>> {
    if count == 1 {
        return Ok(vec![ZooKeeper { host: hosts.first().cloned(), ..like.clone() }]);
    }
    let mut lines = vec!["initLimit=20".to_owned(), "syncLimit=4".to_owned()];
    for member in 0..count {
        let ip = hosts.get(member).map_or(Ipv4Addr::LOCALHOST, |host| host.address);
        lines.push(format!("server.{}={ip}:{}:{}", member + 1, free_port()?, free_port()?));
    }
    let like = ZooKeeper { lines: [lines, like.lines.clone()].concat(), ..like.clone() };
    let member = |member: usize| {
        let (host, member) = (hosts.get(member).cloned(), Some(member + 1));
        ZooKeeper { host, member, ..like.clone() }
    };
    Ok((0..count).map(member).collect())
}

/// Where the library of ZooKeeper's own client lies, for programs of others.
#[must_use]
pub fn jar() -> PathBuf {
    PathBuf::from(JAR)
}

#[cfg(test)]
mod tests {
    use super::super::net::Net;
    use super::*;

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
        let Some(mut server) = there(ZooKeeper::default().start()) else { return };
        assert!(ask(&server, "srvr").unwrap().contains("Mode: standalone"));
        server.kill();
        assert!(ask(&server, "srvr").is_err());
        server.go_on().unwrap();
    }

    #[test]
    fn when_the_leader_of_three_dies_another_leads() {
        let Some(mut three) = there(Ensemble::start(3, &ZooKeeper::default())) else { return };
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
        let Some(three) = there(Ensemble::on(&net.hosts, &ZooKeeper::default())) else { return };
        three.settled().unwrap();
        let old = three.leader().unwrap();
        net.cut(&[old], &net.but(&[old])).unwrap();
        until("another leads", || {
            let leads = |member: &usize| three.mode(*member).is_ok_and(|mode| mode == Mode::Leader);
            Ok(net.but(&[old]).iter().any(leads))
        })
        .unwrap();
        net.heal().unwrap();
        three.settled().unwrap();
    }
}
