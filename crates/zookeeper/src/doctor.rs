//! What the servers tell of themselves: who leads, how many there are, which version, how long sessions may last.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{Check, ClaimId, Code, Doctor, LockName, Op, Result, ServerTime, Share, StoreErrorKind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use zookeeper_client::CreateMode;

use crate::fail::{self, Fail};
use crate::node::stem;
use crate::store::ZooKeeperStore;

/// What is asked for as the longest and the shortest life of a session, to see what is got.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);
const SHORT: Duration = Duration::from_millis(100);
/// No server says more to one of its four-letter words.
const MOST_BYTES: u64 = 64 * 1024;

/// What a server said to `srvr`, which every server answers unless it was told not to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Told {
    mode: String,
    version: String,
}

impl Told {
    fn parse(said: &str) -> Option<Self> {
        let fields: BTreeMap<&str, &str> = said.lines().filter_map(|line| line.split_once(": ")).collect();
        let mode = (*fields.get("Mode")?).to_owned();
        let version = fields.get("Zookeeper version")?.split(['-', ',']).next()?.to_owned();
        Some(Self { mode, version })
    }
}

#[async_trait]
impl Doctor for ZooKeeperStore {
    async fn greet(&self) -> Result<String> {
        // A session is what locks need; what servers say of themselves is more than they need to.
        self.0.sessions.any().await.map_err(self.failed(Op::Check, None))?;
        let told = self.all_said().await;
        let version = told
            .iter()
            .find_map(|(_, told)| told.as_ref())
            .map_or_else(|| "of unknown version".to_owned(), |told| told.version.clone());
        let user = if self.0.sessions.has_login() { "with a login" } else { "as nobody in particular" };
        let named = match told.len() {
            1 => "one server in the URL".to_owned(),
            named => format!("{named} servers in the URL"),
        };
        Ok(format!("ZooKeeper {version}, {named}, TLS off, {user}"))
    }

    async fn ping(&self) -> Result<Option<ServerTime>> {
        let fails = self.failed(Op::Check, None);
        let session = self.0.sessions.any().await.map_err(&fails)?;
        // The way of a write: that is what a lock takes.
        session.ask(session.client().sync("/")).await.map_err(&fails)?;
        Ok(None)
    }

    async fn checkup(&self) -> Vec<Check> {
        let told = self.all_said().await;
        vec![check_servers(&told), check_versions(&told), self.check_sessions().await, self.check_cleartext()]
    }

    async fn bare(&self, name: &LockName) -> Result<Option<&'static str>> {
        let fails = self.failed(Op::Check, Some(name));
        let session = self.0.sessions.any().await.map_err(&fails)?;
        let line = self.0.paths.line(name);
        let id = ClaimId::random()?;
        let taken = async {
            let container = CreateMode::Container.with_acls(session.acls());
            session.ask(session.client().mkdir(&line, &container)).await?;
            let mode = CreateMode::EphemeralSequential.with_acls(session.acls());
            let path = format!("{line}/{}", stem(id, Share::EXCLUSIVE));
            let (_, number) = session.ask(session.client().create(&path, b"", &mode)).await?;
            let alone = self.look(&session, name).await?.place_of(id) == Some(0);
            self.take_away(&session, &format!("{path}{number}")).await?;
            Ok::<_, Fail>(alone)
        };
        if taken.await.map_err(&fails)? {
            return Ok(Some("a node, a look at its line, and its end"));
        }
        let fail = Fail::new(StoreErrorKind::Unavailable, "the name is in use")
            .help("choose a name that nobody has, or wait");
        Err(fails(fail))
    }
}

impl ZooKeeperStore {
    /// What each server in the URL says of itself, if it says anything.
    async fn all_said(&self) -> Vec<(String, Option<Told>)> {
        let asked = self.0.sessions.places().map(|place| async move {
            let said = self.0.clock.within(self.0.sessions.timeout(), said(place)).await;
            (place.to_owned(), said.and_then(std::result::Result::ok).and_then(|said| Told::parse(&said)))
        });
        futures_util::future::join_all(asked).await
    }

    /// What lives of sessions servers give.
    async fn check_sessions(&self) -> Check {
        const NAME: &str = "sessions";
        let limits = async {
            let (long, short) = (self.0.sessions.granted(LONG).await?, self.0.sessions.granted(SHORT).await?);
            Ok::<_, fail::Fail>((short, long))
        };
        match limits.await {
            Ok((short, long)) => Check::ok(
                NAME,
                format!(
                    "a lease lives {short:.1?} to {long:.1?}, whatever ttl is asked for; {LONG:.0?} was, and {SHORT:.1?}"
                ),
            ),
            Err(fail) => Check::untold(NAME, &self.failed(Op::Check, None)(fail)),
        }
    }

    fn check_cleartext(&self) -> Check {
        const NAME: &str = "cleartext";
        if self.0.sessions.has_login() {
            return Check::warning(
                NAME,
                Code::CLEARTEXT,
                "the login of auth_file= goes over the network as it is",
                "let a tunnel beside this program encrypt, such as stunnel",
            );
        }
        Check::ok(NAME, "no TLS, and no password that could be read")
    }
}

fn check_servers(told: &[(String, Option<Told>)]) -> Check {
    const NAME: &str = "servers";
    let warn = |says: String, fix: &str| Check::warning(NAME, Code::FAILOVER, says, fix);
    let silent: Vec<&str> =
        told.iter().filter(|(_, told)| told.is_none()).map(|(place, _)| place.as_str()).collect();
    if silent.len() == told.len() {
        return warn(
            "no server says what it is".to_owned(),
            "let them answer srvr: 4lw.commands.whitelist=srvr in their configuration",
        );
    }
    if !silent.is_empty() {
        let says = format!(
            "{} of {} named in the URL do not serve: {}",
            silent.len(),
            told.len(),
            silent.join(", ")
        );
        return warn(says, "bring them back, or name others");
    }
    let modes = |mode: &str| told.iter().flat_map(|(_, told)| told).filter(|told| told.mode == mode).count();
    match (modes("standalone"), modes("leader"), told.len()) {
        (1, 0, 1) => Check::ok(NAME, "one server: locks are down with it"),
        (0, _, 1) => warn(
            "one member of an ensemble is in the URL: locks are down for us with that one".to_owned(),
            "name all of them in the URL: zookeeper://host1,host2,host3",
        ),
        (0, 0, named) => warn(
            format!("none of the {named} in the URL leads"),
            "name all members in the URL, so that it is seen whether there is a leader",
        ),
        (0, 1, 2) => warn(
            "two servers in the URL: if there are no more, locks are down with either".to_owned(),
            "three can lose one",
        ),
        (0, 1, named) => {
            Check::ok(NAME, format!("{named} in the URL, one leads; {} may fail", (named - 1) / 2))
        }
        _ => Check::failed(
            NAME,
            Code::FAILOVER,
            "the servers in the URL are not one ensemble: each would give the same lock to somebody else",
            "name the members of one ensemble",
        ),
    }
}

fn check_versions(told: &[(String, Option<Told>)]) -> Check {
    const NAME: &str = "version";
    let mut versions: Vec<&str> =
        told.iter().flat_map(|(_, told)| told).map(|told| told.version.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    let old = |version: &&&str| {
        let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < (3, 5)
    };
    if let Some(old) = versions.iter().find(old) {
        let says = format!("{old} knows no containers, which locks stand in");
        return Check::failed(NAME, Code::UNSUPPORTED, says, "update to 3.5 or later");
    }
    match versions[..] {
        [] => Check::unknown(
            NAME,
            "no server tells its version",
            "let them answer srvr: 4lw.commands.whitelist=srvr",
        ),
        _ => Check::ok(NAME, versions.join(", ")),
    }
}

/// What a server answers to `srvr`.
async fn said(place: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(place).await?;
    stream.write_all(b"srvr").await?;
    let mut said = Vec::new();
    stream.take(MOST_BYTES).read_to_end(&mut said).await?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

#[cfg(test)]
mod tests {
    use leasehold_core::Health;

    use super::*;

    fn told(mode: &str, version: &str) -> (String, Option<Told>) {
        let said = format!(
            "Zookeeper version: {version}-1--1, built on 2023\nLatency min/avg/max: 0/1\nMode: {mode}\n"
        );
        ("z:2181".to_owned(), Told::parse(&said))
    }

    #[test]
    fn what_servers_say_is_judged() {
        let silent =
            ("z9:2181".to_owned(), Told::parse("This ZooKeeper instance is not currently serving requests"));
        let servers = |told: &[_]| check_servers(told).health;
        let (leader, follower) = (told("leader", "3.8.0"), told("follower", "3.8.0"));
        let alone = told("standalone", "3.8.0");
        assert_eq!(servers(&[leader.clone(), follower.clone(), follower.clone()]), Health::Ok);
        assert_eq!(servers(std::slice::from_ref(&alone)), Health::Ok);
        for doubtful in [
            vec![follower.clone()],
            vec![follower.clone(), follower.clone(), follower.clone()],
            vec![leader.clone(), follower.clone()],
            vec![leader.clone(), follower.clone(), silent.clone()],
            vec![silent],
        ] {
            assert_eq!(servers(&doubtful), Health::Warning, "{doubtful:?}");
        }
        assert_eq!(servers(&[alone.clone(), alone.clone()]), Health::Failed);
        assert_eq!(servers(&[leader.clone(), leader, follower]), Health::Failed);
        assert_eq!(check_versions(&[alone]).health, Health::Ok);
        assert_eq!(check_versions(&[told("standalone", "3.4.14")]).health, Health::Failed);
    }
}
