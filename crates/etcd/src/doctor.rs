//! What a cluster tells of itself: its members, who leads, which versions, what leases it gives.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{Check, Code, Doctor, LockName, Op, PLACE_LIFE, Result, ServerTime, StoreErrorKind};

use crate::client::{none_since, only, puts};
use crate::fail::{self, Fail};
use crate::link::Link;
use crate::proto::cluster_client::ClusterClient;
use crate::proto::maintenance_client::MaintenanceClient;
use crate::proto::{Member, MemberListRequest, StatusRequest, StatusResponse, TxnRequest};
use crate::store::EtcdStore;
use crate::version::{Version, faults};

/// What is taken for a measurement ends by itself, if nobody gives it back.
const BARE_TTL: Duration = Duration::from_secs(10);

impl Link {
    /// What one of the members in the URL says of itself.
    pub(crate) async fn status(&self, member: usize) -> fail::Result<StatusResponse> {
        let asked = self.ask(member, StatusRequest {}, |channel, request| {
            Box::pin(async move { MaintenanceClient::new(channel).status(request).await })
        });
        asked.await
    }

    async fn members(&self) -> fail::Result<Vec<Member>> {
        let asked = self.call(MemberListRequest {}, |channel, request| {
            Box::pin(async move { ClusterClient::new(channel).member_list(request).await })
        });
        Ok(asked.await?.members)
    }
}

#[async_trait]
impl Doctor for EtcdStore {
    async fn greet(&self) -> Result<String> {
        let fails = self.failed(Op::Check, None);
        let settings = &self.0.settings;
        // Whoever answers first: of the others `checkup` tells.
        let mut last = None;
        for member in 0..settings.places.len() {
            match self.0.link.status(member).await {
                Ok(status) => {
                    let members = self.0.link.members().await.map_err(&fails)?.len();
                    let size =
                        if members == 1 { "one member".to_owned() } else { format!("{members} members") };
                    let tls = if settings.tls.is_some() { "TLS on" } else { "TLS off" };
                    let user = match &settings.login {
                        Some((user, _)) => format!("as user {user:?}"),
                        None => "as nobody in particular".to_owned(),
                    };
                    return Ok(format!("etcd {}, {size}, {tls}, {user}", status.version));
                }
                Err(fail) => last = Some(fail),
            }
        }
        Err(fails(last.unwrap_or_else(|| Fail::garbled("no member is named"))))
    }

    async fn ping(&self) -> Result<Option<ServerTime>> {
        // etcd tells nobody what time it is.
        let asked = self.0.link.range(only(self.0.settings.prefix.as_bytes())).await;
        asked.map(|_| None).map_err(self.failed(Op::Check, None))
    }

    async fn checkup(&self) -> Vec<Check> {
        let mut told = Vec::new();
        for (member, place) in self.0.link.places().enumerate() {
            told.push((place.to_owned(), self.0.link.status(member).await));
        }
        let mut checks = vec![self.check_members(&told).await, check_leader(&told), check_versions(&told)];
        checks.push(check_alarms(&told));
        checks.push(self.check_ttl().await);
        checks.push(self.check_cleartext());
        checks
    }

    async fn bare(&self, name: &LockName) -> Result<Option<&'static str>> {
        let keys = self.keys(name);
        let fails = self.failed(Op::Check, Some(name));
        let link = &self.0.link;
        let taken = async {
            let lease = link.grant(0, BARE_TTL).await?.id;
            let key = [&keys.line[..], format!("{lease:x}").as_bytes()].concat();
            let compare = vec![none_since(&keys.line, &keys.end, 0)];
            let txn = TxnRequest { compare, success: vec![puts(&key, Vec::new(), lease)], failure: vec![] };
            let done = link.txn(txn).await;
            link.revoke(lease).await?;
            Ok::<_, Fail>(done?.succeeded)
        };
        if taken.await.map_err(&fails)? {
            return Ok(Some("a lease, a key and their end"));
        }
        let fail = Fail::new(StoreErrorKind::Unavailable, "the name is in use")
            .help("choose a name that nobody has, or wait");
        Err(fails(fail))
    }
}

type Told = [(String, fail::Result<StatusResponse>)];

impl EtcdStore {
    async fn check_members(&self, told: &Told) -> Check {
        const NAME: &str = "members";
        let members = match self.0.link.members().await {
            Ok(members) => members,
            Err(fail) => return Check::untold(NAME, &self.failed(Op::Check, None)(fail)),
        };
        let silent: Vec<_> =
            told.iter().filter(|(_, status)| status.is_err()).map(|(place, _)| place).collect();
        let (all, named) = (members.len(), told.len());
        let votes = members.iter().filter(|member| !member.is_learner).count();
        let warn = |says: String, fix: &str| Check::warning(NAME, Code::FAILOVER, says, fix);
        if !silent.is_empty() {
            let list: Vec<_> = silent.into_iter().map(String::as_str).collect();
            let says =
                format!("{} of {named} named in the URL do not answer: {}", list.len(), list.join(", "));
            return warn(says, "bring them back, or name others: etcdctl endpoint health --cluster");
        }
        match votes {
            1 => Check::ok(NAME, "one member: locks are down with it"),
            2 => {
                warn("two members: locks are down with either".to_owned(), "add a third: etcdctl member add")
            }
            _ if named == 1 => warn(
                format!("{all} members, and one in the URL: locks are down for us with that one"),
                "name all of them in the URL: etcd://host1,host2,host3",
            ),
            _ => Check::ok(NAME, format!("{all} members, {named} in the URL; {} may fail", (votes - 1) / 2)),
        }
    }

    async fn check_ttl(&self) -> Check {
        const NAME: &str = "leases";
        let asked = Duration::from_secs(1);
        let got = async {
            let leased = self.0.link.grant(0, asked).await?;
            self.0.link.revoke(leased.id).await?;
            Ok::<_, Fail>(leased.ttl)
        };
        match got.await {
            Ok(got) if got > PLACE_LIFE => Check::warning(
                NAME,
                Code::SHORT_TTL,
                format!(
                    "{asked:?} was asked for and {got:?} got: a dead waiter delays the others for so long"
                ),
                "a shorter --election-timeout gives shorter leases: three halves of it are the least",
            ),
            Ok(got) => Check::ok(NAME, format!("whole seconds; {asked:?} was asked for and {got:?} got")),
            Err(fail) => Check::failed_by(NAME, &self.failed(Op::Check, None)(fail)),
        }
    }

    fn check_cleartext(&self) -> Check {
        const NAME: &str = "cleartext";
        let settings = &self.0.settings;
        match (&settings.tls, &settings.login) {
            (None, Some(_)) => Check::warning(
                NAME,
                Code::CLEARTEXT,
                "the password goes over the network in clear",
                "give the members certificates, and write etcds:// in the URL",
            ),
            (None, None) => Check::ok(NAME, "no TLS, and no password that could be read"),
            (Some(_), _) => Check::ok(NAME, "TLS"),
        }
    }
}

fn check_leader(told: &Told) -> Check {
    const NAME: &str = "leader";
    let answered: Vec<_> = told.iter().filter_map(|(_, status)| status.as_ref().ok()).collect();
    let Some(first) = answered.first() else {
        return Check::unknown(
            NAME,
            "not told: no member answers",
            "look: etcdctl endpoint status --cluster",
        );
    };
    if answered.iter().any(|status| status.leader == 0) {
        let fix = "most members must be up and reach each other: etcdctl endpoint status --cluster";
        return Check::failed(
            NAME,
            Code::UNREACHABLE,
            "a member has no leader: no lock is granted there",
            fix,
        );
    }
    if answered.iter().any(|status| status.leader != first.leader) {
        let fix = "look again: leasehold doctor; if it stays so: etcdctl endpoint status --cluster";
        return Check::warning(NAME, Code::FAILOVER, "members name different leaders", fix);
    }
    Check::ok(NAME, format!("one leader, in term {}", first.raft_term))
}

fn check_versions(told: &Told) -> Check {
    const NAME: &str = "version";
    let answered = told.iter().filter_map(|(_, status)| status.as_ref().ok());
    let mut versions: Vec<Version> = answered.filter_map(|status| Version::parse(&status.version)).collect();
    versions.sort_unstable();
    versions.dedup();
    let Some(oldest) = versions.first() else {
        return Check::unknown(NAME, "not told", "look: etcdctl endpoint status --cluster");
    };
    let shown: Vec<_> = versions.iter().map(Version::to_string).collect();
    let shown = shown.join(", ");
    let faults = faults(*oldest);
    if faults.is_empty() {
        return Check::ok(NAME, shown);
    }
    let says = format!("{shown}: {}", faults.join("; "));
    let fix = "update to 3.4.42, 3.5.28 or 3.6.9 at least; until then check the token where it is used";
    Check::warning(NAME, Code::FAILOVER, says, fix)
}

fn check_alarms(told: &Told) -> Check {
    const NAME: &str = "alarms";
    let answered = told.iter().filter_map(|(_, status)| status.as_ref().ok());
    let mut errors: Vec<&str> = answered.flat_map(|status| &status.errors).map(String::as_str).collect();
    errors.sort_unstable();
    errors.dedup();
    if errors.is_empty() {
        return Check::ok(NAME, "none");
    }
    Check::failed(NAME, Code::FULL, errors.join("; "), "look: etcdctl alarm list")
}
