//! Renewals: by one script for plain leases, by another for those in the line, a hundred at a time; in a cluster those of
//! one slot together, and all slots at once.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{Op, Renew, Renewal, Result, ServerTime, StoreErrorKind, fault};
use redis::Value;
use tokio::time::timeout;

use crate::fail::{self, Fail};
use crate::keys::hex;
use crate::script::{Answer, RENEW, RENEW_ALONE, RENEW_LINE, Script, number};
use crate::stated::{is_plain, millis};
use crate::store::{RedisStore, too_few};

/// So many renewals share a script: more would keep the server from everybody else for too long.
const MOST_AT_ONCE: usize = 100;
/// In a cluster a node has this part of the shortest ttl for its answer, or the timeout of the URL if that is less. All
/// are asked at once and answered for together: the leases at those that answer must not lapse because another does not.
const PART_OF_TTL: u32 = 5;

/// A tombstone outlives its lease by the ttl and this, less the grain of the server's clock.
const TOMB: Duration = Duration::from_millis(9999);

/// What became of one renewal in a script.
#[derive(Clone)]
enum Renewed {
    Done(Renewal),
    /// The other script must be asked.
    Elsewhere,
}

/// Leases that one script renews.
struct Part {
    which: Vec<usize>,
    /// Whether by the script for plain leases.
    plain: bool,
}

impl RedisStore {
    /// Renews all of these, each where it stands.
    pub(crate) async fn renew_all(&self, batch: &[Renew]) -> Vec<Result<Renewal>> {
        let mut answers: Vec<Option<Result<Renewal>>> = vec![None; batch.len()];
        let (plain, line): (Vec<usize>, Vec<usize>) =
            (0..batch.len()).partition(|at| is_plain(&batch[*at].claim));
        self.renew_where(batch, &plain, &line, &mut answers).await;
        // A lease that changed its share stands where its claim does not say.
        let elsewhere = |which: Vec<usize>| -> Vec<usize> {
            which.into_iter().filter(|at| answers[*at].is_none()).collect()
        };
        let (plain, line) = (elsewhere(plain), elsewhere(line));
        self.renew_where(batch, &line, &plain, &mut answers).await;
        answers.into_iter().map(|answer| answer.unwrap_or(Ok(Renewal::Lost))).collect()
    }

    /// Renews these by the script for plain leases, and those by that for leases in the line; what stands elsewhere is
    /// left out.
    async fn renew_where(
        &self,
        batch: &[Renew],
        plain: &[usize],
        line: &[usize],
        answers: &mut [Option<Result<Renewal>>],
    ) {
        let mut parts = self.parts(batch, plain, true);
        parts.extend(self.parts(batch, line, false));
        let renewing = parts.iter().map(|Part { which, plain }| {
            let renews: Vec<&Renew> = which.iter().map(|at| &batch[*at]).collect();
            async move {
                let renewed = self.renew_part(&renews, *plain);
                match self.limit(batch) {
                    None => renewed.await,
                    Some(limit) => {
                        let late = || vec![Err(too_late(limit)); which.len()];
                        timeout(limit, renewed).await.unwrap_or_else(|_| late())
                    }
                }
            }
        });
        let done = join_all(renewing).await;
        for (part, done) in parts.iter().zip(done) {
            for (at, renewed) in part.which.iter().zip(done) {
                let failed = self.failed(Op::Renew, Some(&batch[*at].claim.name));
                match renewed {
                    Ok(Renewed::Done(renewal)) => answers[*at] = Some(Ok(renewal)),
                    Ok(Renewed::Elsewhere) => {}
                    Err(fail) => answers[*at] = Some(Err(failed(fail))),
                }
            }
        }
    }

    /// For how long a part of these may keep the others waiting.
    fn limit(&self, batch: &[Renew]) -> Option<Duration> {
        let shortest = batch.iter().map(|renew| renew.claim.ttl).min()?;
        let limit = (shortest / PART_OF_TTL).min(self.0.settings.timeout);
        (self.servers().is_cluster() && !fault!("cluster_waits_for_all")).then_some(limit)
    }

    fn parts(&self, batch: &[Renew], which: &[usize], plain: bool) -> Vec<Part> {
        let mut groups: BTreeMap<Option<u16>, Vec<usize>> = BTreeMap::new();
        for at in which {
            // One without keys is told so when it is asked for.
            let keys = self.keys(&batch[*at].claim.name).ok();
            let slot = keys.and_then(|keys| self.servers().slot(&keys.plain));
            groups.entry(slot).or_default().push(*at);
        }
        let chunks = groups.values().flat_map(|group| group.chunks(MOST_AT_ONCE));
        chunks.map(|chunk| Part { which: chunk.to_vec(), plain }).collect()
    }

    async fn renew_part(&self, renews: &[&Renew], plain: bool) -> Vec<fail::Result<Renewed>> {
        let done = if plain { self.renew_plain(renews).await } else { self.renew_line(renews).await };
        match done {
            Ok(done) => done.into_iter().map(Ok).collect(),
            // Their slot is on its way, and part of it has arrived: so each key where it is.
            Err(fail) if plain && fail.is("TRYAGAIN") && !fault!("cluster_renews_two_keys") => {
                join_all(renews.iter().map(|renew| self.renew_alone(renew))).await
            }
            Err(fail) => vec![Err(fail); renews.len()],
        }
    }

    async fn renew_plain(&self, batch: &[&Renew]) -> fail::Result<Vec<Renewed>> {
        let mut keys = Vec::with_capacity(2 * batch.len());
        let mut args = Vec::with_capacity(3 * batch.len());
        for renew in batch {
            let of = self.keys(&renew.claim.name).map_err(|_| Fail::garbled("a name without keys"))?;
            let tombstone = of.tombstone(renew.claim.id);
            keys.extend([of.plain, tombstone]);
            args.extend(plain_args(renew));
        }
        self.renew_by(&RENEW, batch, &keys, &args).await
    }

    /// Renews one plain lease in two steps of one key each, which may be at two nodes for now. The tombstone comes first,
    /// so that it never ends before the lease.
    async fn renew_alone(&self, renew: &Renew) -> fail::Result<Renewed> {
        let of = self.keys(&renew.claim.name).map_err(|_| Fail::garbled("a name without keys"))?;
        let tombstone = of.tombstone(renew.claim.id);
        let mut prolong = redis::cmd("PEXPIRE");
        prolong.arg(&tombstone).arg(millis(2 * renew.claim.ttl + TOMB));
        self.servers().call(&tombstone, &prolong).await?;
        let renewed = self.renew_by(&RENEW_ALONE, &[renew], &[of.plain], &plain_args(renew)).await?;
        renewed.into_iter().next().ok_or_else(|| Fail::garbled("no answer to a renewal"))
    }

    async fn renew_line(&self, batch: &[&Renew]) -> fail::Result<Vec<Renewed>> {
        let mut keys = Vec::with_capacity(6 * batch.len());
        let mut args = Vec::with_capacity(5 * batch.len());
        for Renew { claim, tenure } in batch {
            let of = self.keys(&claim.name).map_err(|_| Fail::garbled("a name without keys"))?;
            keys.extend(of.line());
            keys.push(of.tombstone(claim.id));
            args.push(hex(claim.id).into_bytes());
            args.push(of.base.into_bytes());
            args.push(tenure.token.to_string().into_bytes());
            args.push(tenure.count.to_string().into_bytes());
            args.push(tenure.note.text().unwrap_or("").as_bytes().to_vec());
        }
        self.renew_by(&RENEW_LINE, batch, &keys, &args).await
    }

    async fn renew_by(
        &self,
        script: &Script,
        batch: &[&Renew],
        keys: &[String],
        args: &[Vec<u8>],
    ) -> fail::Result<Vec<Renewed>> {
        let mut answer = Answer::new(self.run_renewals(script, keys, args).await?)?;
        let server_time = Some(ServerTime::from_micros(answer.natural()?));
        let told: Vec<Value> = answer.rest().collect();
        if told.len() != batch.len() {
            return Err(Fail::garbled("another number of answers than of renewals"));
        }
        let renewed = |(renew, told): (&&Renew, &Value)| {
            Ok(match number(told)? {
                1 => Renewed::Done(Renewal::Kept { ttl: renew.claim.ttl, server_time }),
                2 => Renewed::Elsewhere,
                _ if fault!("redis_ignores_lost") => {
                    Renewed::Done(Renewal::Kept { ttl: renew.claim.ttl, server_time })
                }
                _ => Renewed::Done(Renewal::Lost),
            })
        };
        batch.iter().zip(&told).map(renewed).collect()
    }

    async fn run_renewals(&self, script: &Script, keys: &[String], args: &[Vec<u8>]) -> fail::Result<Value> {
        let plain = std::ptr::eq(script, &*RENEW) && !fault!("cluster_renews_two_keys");
        let mut route = self.servers().route(keys.first().map_or("", String::as_str));
        loop {
            let visit = route.here().await?;
            let told = visit.run(script, keys, args).await;
            // A firewall may have forgotten the connection. There is time to try a new one, and seldom to find out twice.
            if told.as_ref().is_err_and(Fail::outcome_unknown) && !fault!("redis_keeps_silent_connection") {
                visit.live.give_up();
            }
            let value = match told {
                Ok(value) => value,
                // There is another way to renew these.
                Err(fail) if plain && keys.len() > 1 && fail.is("TRYAGAIN") => return Err(fail),
                Err(fail) => {
                    route.turn(&visit, fail).await?;
                    continue;
                }
            };
            let wanted = self.0.settings.min_replicas;
            let link = &visit.node.link;
            if wanted > 0 && !link.replicated(&visit.live, wanted).await.map_err(Fail::unknown)? {
                // It may be lost with this server: who holds must not rely on it.
                return Err(too_few(wanted).unknown());
            }
            return Ok(value);
        }
    }
}

/// A renewal as the scripts for plain leases read it.
fn plain_args(Renew { claim, tenure }: &Renew) -> [Vec<u8>; 3] {
    let note = tenure.note.text().unwrap_or("");
    let tenure = format!("{}|{}|{note}", tenure.token, tenure.count);
    [hex(claim.id), millis(claim.ttl), tenure].map(String::into_bytes)
}

fn too_late(limit: Duration) -> Fail {
    let message = format!("the node of the cluster that has it did not answer within {limit:?}");
    Fail::new(StoreErrorKind::Unavailable, message)
        .help("see which node is down: `redis-cli --cluster check`")
        .unknown()
}
