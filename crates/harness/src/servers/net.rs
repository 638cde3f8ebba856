//! A network of its own for a test: hosts that reach each other through a hub, and ways between them that are cut.
//!
//! Each host is a network namespace without a name, and lives as long as the process that keeps it: nothing can be left
//! behind. Servers are placed on hosts by their recipes, such as [`Redis::host`](super::redis::Redis::host), programs are started there by
//! [`Host::command`], and a thread goes there by [`Host::enter`]. The hub routes between them; what is cut, it drops
//! without a word, as a broken network does. From outside nothing on a host is reached but by sockets in the file
//! system.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use super::{NoServer, find};

/// Keeps a namespace until its standard input ends.
const KEEP: &str = "echo ready; exec cat > /dev/null";
/// Keeps the hub. It reads the namespaces of all hosts, one a line; when whoever made them has gone, by a kill even,
/// it kills all that is left on them.
const KEEP_HUB: &str = r#"
echo ready
all=
while read -r space; do all="$all $space"; done
for process in /proc/[0-9]*; do
    its=$(readlink "$process/ns/net") || continue
    for space in $all; do
        if [ "$its" = "$space" ]; then kill -9 "${process#/proc/}"; fi
    done
done 2> /dev/null
"#;
/// What the hub looks at before its own table.
const CUT: &str = "pref 100";

/// Several hosts and the hub between them. They go with it, and so does all that runs there.
#[derive(Debug)]
pub struct Net {
    /// Each host.
    pub hosts: Vec<Host>,
    /// How many ways are cut.
    cuts: Mutex<usize>,
    keepers: Vec<Keeper>,
    hub: Keeper,
    at_hub: Host,
    ip: PathBuf,
}

/// One host of a [`Net`], as long as that lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Where it is reached.
    pub address: Ipv4Addr,
    nsenter: PathBuf,
    space: PathBuf,
}

/// A process that keeps a namespace.
#[derive(Debug)]
struct Keeper(Child);

impl Net {
    /// Makes a network of so many hosts.
    ///
    /// # Errors
    ///
    /// [`NoServer::Missing`] where the rights, the tools or the system for it are not at hand.
    pub fn start(count: usize) -> Result<Self, NoServer> {
        let [ip, nsenter, unshare] =
            ["ip", "nsenter", "unshare"].map(|tool| find(tool).ok_or(NoServer::Missing(tool)));
        let (ip, nsenter, unshare) = (ip?, nsenter?, unshare?);
        let hub = Keeper::start(&unshare, KEEP_HUB)?;
        let at_hub = hub.host(&nsenter, Ipv4Addr::LOCALHOST);
        let mut net = Self { hosts: Vec::new(), cuts: Mutex::new(0), keepers: Vec::new(), hub, at_hub, ip };
        let (at_hub, ip) = (net.at_hub.clone(), net.ip.clone());
        run(at_hub.command("sh").args(["-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]), "")?;
        for number in 1..=u8::try_from(count).map_err(io::Error::other)? {
            let keeper = Keeper::start(&unshare, KEEP)?;
            let (gate, address) = (Ipv4Addr::new(10, 213, number, 1), Ipv4Addr::new(10, 213, number, 2));
            let (host, pid) = (keeper.host(&nsenter, address), keeper.0.id());
            net.hub.tell(&std::fs::read_link(&host.space)?.display().to_string())?;
            let end = format!("lh-{}-{number}", std::process::id());
            let link = format!("link add {end} type veth peer name eth0 netns {pid}");
            batch(&at_hub, &ip, &link).map_err(|_| NoServer::Missing("virtual network in this kernel"))?;
            batch(&at_hub, &ip, &format!("addr add {gate}/24 dev {end}\nlink set {end} up"))?;
            let own = format!("addr add {address}/24 dev eth0\nlink set eth0 up\nlink set lo up");
            batch(&host, &ip, &format!("{own}\nroute add default via {gate}"))?;
            net.keepers.push(keeper);
            net.hosts.push(host);
        }
        Ok(net)
    }

    /// Cuts all ways between two groups of hosts, both directions, until [`heal`](Self::heal).
    ///
    /// # Errors
    ///
    /// When the hub does not take it.
    pub fn cut(&self, some: &[usize], others: &[usize]) -> io::Result<()> {
        self.cut_from(some, others)?;
        self.cut_from(others, some)
    }

    /// Cuts all ways from one group of hosts to the other, and none back: what these say is not heard there, and what
    /// they are told arrives.
    ///
    /// # Errors
    ///
    /// When the hub does not take it.
    pub fn cut_from(&self, some: &[usize], others: &[usize]) -> io::Result<()> {
        let pairs = some.iter().flat_map(|from| others.iter().map(move |to| (from, to)));
        let lines: Vec<String> = pairs
            .map(|(from, to)| {
                let (from, to) = (self.hosts[*from].address, self.hosts[*to].address);
                format!("rule add {CUT} from {from} to {to} blackhole")
            })
            .collect();
        let mut cuts = self.cuts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *cuts += lines.len();
        batch(&self.at_hub, &self.ip, &lines.join("\n"))
    }

    /// Lets everything pass again.
    ///
    /// # Errors
    ///
    /// When the hub does not take it.
    pub fn heal(&self) -> io::Result<()> {
        let mut cuts = self.cuts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let lines = vec![format!("rule del {CUT}"); std::mem::take(&mut *cuts)];
        batch(&self.at_hub, &self.ip, &lines.join("\n"))
    }

    /// All hosts but these.
    #[must_use]
    pub fn but(&self, some: &[usize]) -> Vec<usize> {
        (0..self.hosts.len()).filter(|host| !some.contains(host)).collect()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // First the hub, which knows the hosts by their keepers.
        self.hub.end();
        self.keepers.iter_mut().for_each(Keeper::end);
    }
}

impl Host {
    /// A command that will run there.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(&self.nsenter);
        // It becomes the program, so that its process id is that of the program.
        command.arg(format!("--net={}", self.space.display())).arg(program);
        command
    }

    /// The same, or a command on this machine where there is no host.
    pub(crate) fn command_on(host: Option<&Self>, program: &Path) -> Command {
        host.map_or_else(|| Command::new(program), |host| host.command(program))
    }

    /// Moves the calling thread there for good, with all threads that it will start.
    ///
    /// # Errors
    ///
    /// When the host has gone.
    pub fn enter(&self) -> io::Result<()> {
        let space = std::fs::File::open(&self.space)?;
        enter(&space)
    }

    /// Does something there, or here where there is no host.
    pub(crate) fn there<T: Send>(
        host: Option<&Self>,
        work: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        let Some(host) = host else { return work() };
        // By a thread that goes there for good, and ends.
        let gone = std::thread::scope(|scope| scope.spawn(|| host.enter().and_then(|()| work())).join());
        gone.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

#[cfg(target_os = "linux")]
fn enter(space: &std::fs::File) -> io::Result<()> {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    Ok(move_into_link_name_space(std::os::fd::AsFd::as_fd(space), Some(LinkNameSpaceType::Network))?)
}

#[cfg(not(target_os = "linux"))]
fn enter(_space: &std::fs::File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Keeper {
    fn start(unshare: &Path, script: &str) -> Result<Self, NoServer> {
        let mut command = Command::new(unshare);
        command.args(["--net", "--", "sh", "-c", script]);
        // What ends everybody at a terminal is not for it: it has to clean up.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut keeper = Self(command.spawn()?);
        let mut line = String::new();
        if let Some(said) = keeper.0.stdout.take() {
            BufReader::new(said).read_line(&mut line)?;
        }
        if line == "ready\n" {
            Ok(keeper)
        } else {
            keeper.end();
            Err(NoServer::Missing("right to make a network"))
        }
    }

    fn host(&self, nsenter: &Path, address: Ipv4Addr) -> Host {
        let space = PathBuf::from(format!("/proc/{}/ns/net", self.0.id()));
        Host { address, nsenter: nsenter.to_owned(), space }
    }

    fn tell(&mut self, line: &str) -> io::Result<()> {
        self.0.stdin.as_mut().map_or(Ok(()), |input| writeln!(input, "{line}"))
    }

    /// Lets it do what is left to do, and returns once it has ended.
    fn end(&mut self) {
        drop(self.0.stdin.take());
        drop(self.0.wait());
    }
}

/// Has `ip` do all this on a host.
fn batch(host: &Host, ip: &Path, lines: &str) -> io::Result<()> {
    run(host.command(ip).args(["-batch", "-"]), lines)
}

fn run(command: &mut Command, input: &str) -> io::Result<()> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // Whoever ends without hearing it all says why, or did not need it.
        drop(writeln!(stdin, "{input}"));
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
