//! What the sentinels tell of themselves: whether there are enough of them, and of replicas, for another to take over.

use leasehold_core::{Check, Code};
use tokio::time::timeout;

use super::{Lookout, answer, pairs};
use crate::fail::Fail;
use crate::transport::Door;

const NAME: &str = "sentinels";

/// What one of them says of the master.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Told {
    /// How many must agree that it is down.
    quorum: u32,
    /// How many sentinels there are besides this one.
    others: u32,
    replicas: u32,
}

impl Lookout {
    /// Whether another server will take over when this one is gone.
    pub(crate) async fn check(&self) -> Check {
        let mut told = Vec::new();
        let mut silent = Vec::new();
        let asked = self.sentinels.iter().map(|door| async move { (door, self.survey(door).await) });
        for (door, answer) in futures_util::future::join_all(asked).await {
            match answer {
                Some(answer) => told.push(answer),
                None => silent.push(door.place().to_string()),
            }
        }
        judge(&told, &silent)
    }

    async fn survey(&self, door: &Door) -> Option<Told> {
        let asking = async {
            let (mut connection, _) = door.open(|| ()).await?;
            let command = redis::cmd("SENTINEL").arg("MASTER").arg(&self.master).to_owned();
            Ok::<_, Fail>(pairs(answer(&mut connection, &command).await?)?.collect::<Vec<_>>())
        };
        let told = timeout(self.limit, asking).await.ok()?.ok()?;
        let number = |key: &str| told.iter().find(|(name, _)| name == key)?.1.parse().ok();
        Some(Told {
            quorum: number("quorum")?,
            others: number("num-other-sentinels")?,
            replicas: number("num-slaves")?,
        })
    }
}

fn judge(told: &[Told], silent: &[String]) -> Check {
    let listed = told.len() + silent.len();
    let most = |what: fn(&Told) -> u32| told.iter().map(what).max();
    let (Some(quorum), Some(others), Some(replicas)) =
        (most(|told| told.quorum), most(|told| told.others), most(|told| told.replicas))
    else {
        let says = "not told: no sentinel says more than where the master is";
        return Check::unknown(NAME, says, "look: redis-cli -p 26379 SENTINEL MASTERS");
    };
    let there_are = others + 1;
    let warn = |says: String, fix: &str| Check::warning(NAME, Code::FAILOVER, says, fix);
    if quorum > there_are {
        let says =
            format!("{quorum} of {there_are} sentinels must agree that the master is down: they never do");
        return Check::failed(NAME, Code::FAILOVER, says, "SENTINEL SET name quorum 2   (of three)");
    }
    if replicas == 0 {
        let says = "the master has no replica: nobody can take over, and locks are down with it".to_owned();
        return warn(says, "give it two replicas, each on a machine of its own");
    }
    if there_are < 3 {
        let says = format!("there are {there_are} sentinels: when one is gone, no failover is agreed on");
        return warn(says, "three sentinels, each on a machine of its own");
    }
    if !silent.is_empty() {
        let says = format!("{} of {listed} sentinels answer; not {}", told.len(), silent.join(", "));
        return warn(says, "bring them back: most of them must be there for a failover");
    }
    if listed < 3 {
        let says =
            format!("the URL names {listed} of {there_are} sentinels: without these the master is not found");
        return warn(says, "name all of them in the URL");
    }
    let replicas = if replicas == 1 { "1 replica".to_owned() } else { format!("{replicas} replicas") };
    Check::ok(
        NAME,
        format!("{listed} of {listed} answer, {quorum} must agree that the master is down; {replicas}"),
    )
}

#[cfg(test)]
mod tests {
    use leasehold_core::Health;

    use super::*;

    #[test]
    fn what_stands_in_the_way_of_a_failover_is_told() {
        let all = |quorum, others, replicas| vec![Told { quorum, others, replicas }; 3];
        let two = || all(2, 2, 2)[..2].to_vec();
        for (told, silent, health, says) in [
            (
                all(2, 2, 2),
                vec![],
                Health::Ok,
                "3 of 3 answer, 2 must agree that the master is down; 2 replicas",
            ),
            (all(4, 2, 2), vec![], Health::Failed, "4 of 3 sentinels"),
            (all(2, 2, 0), vec![], Health::Warning, "no replica"),
            (all(1, 1, 1)[..2].to_vec(), vec![], Health::Warning, "there are 2 sentinels"),
            (two(), vec!["s3:26379".to_owned()], Health::Warning, "2 of 3 sentinels answer; not s3:26379"),
            (two(), vec![], Health::Warning, "the URL names 2 of 3"),
            (vec![], vec!["s1:1".to_owned()], Health::Unknown, "not told"),
        ] {
            let check = judge(&told, &silent);
            assert_eq!(check.health, health, "{says}");
            assert!(check.says.contains(says), "{}", check.says);
            assert_eq!(check.fix.is_some(), health != Health::Ok, "{says}");
        }
    }
}
