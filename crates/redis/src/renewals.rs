//! Renewals: by one script for plain leases, by another for those in the line, a hundred at a time.

use leasehold_core::{Op, Renew, Renewal, Result, ServerTime, fault};
use redis::Value;

use crate::fail::{self, Fail};
use crate::keys::hex;
use crate::script::{Answer, RENEW, RENEW_LINE, Script, number};
use crate::stated::{is_plain, millis};
use crate::store::{RedisStore, too_few};

/// So many renewals share a script: more would keep the server from everybody else for too long.
const MOST_AT_ONCE: usize = 100;

/// What became of one renewal in a script.
enum Renewed {
    Done(Renewal),
    /// The other script must be asked.
    Elsewhere,
}

impl RedisStore {
    /// Renews all of these, each where it stands.
    pub(crate) async fn renew_all(&self, batch: &[Renew]) -> Vec<Result<Renewal>> {
        let mut answers: Vec<Option<Result<Renewal>>> = vec![None; batch.len()];
        let (plain, line): (Vec<usize>, Vec<usize>) =
            (0..batch.len()).partition(|at| is_plain(&batch[*at].claim));
        self.renew_where(batch, &plain, true, &mut answers).await;
        self.renew_where(batch, &line, false, &mut answers).await;
        // A lease that changed its share stands where its claim does not say.
        let elsewhere = |which: Vec<usize>, answers: &[Option<Result<Renewal>>]| -> Vec<usize> {
            which.into_iter().filter(|at| answers[*at].is_none()).collect()
        };
        let (plain, line) = (elsewhere(plain, &answers), elsewhere(line, &answers));
        self.renew_where(batch, &plain, false, &mut answers).await;
        self.renew_where(batch, &line, true, &mut answers).await;
        answers.into_iter().map(|answer| answer.unwrap_or(Ok(Renewal::Lost))).collect()
    }

    async fn renew_plain(&self, batch: &[&Renew]) -> fail::Result<Vec<Renewed>> {
        let mut keys = Vec::with_capacity(2 * batch.len());
        let mut args = Vec::with_capacity(3 * batch.len());
        for Renew { claim, tenure } in batch {
            let of = self.keys(&claim.name).map_err(|_| Fail::garbled("a name without keys"))?;
            let tombstone = of.tombstone(claim.id);
            keys.extend([of.plain, tombstone]);
            args.push(hex(claim.id).into_bytes());
            args.push(millis(claim.ttl).into_bytes());
            let note = tenure.note.text().unwrap_or("");
            args.push(format!("{}|{}|{note}", tenure.token, tenure.count).into_bytes());
        }
        self.renew_by(&RENEW, batch, &keys, &args).await
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
        let live = self.0.link.live().await?;
        let mut answer = Answer::new(self.0.link.run_on(&live, script, keys, args).await?)?;
        let server_time = Some(ServerTime::from_micros(answer.natural()?));
        let told: Vec<Value> = answer.rest().collect();
        if told.len() != batch.len() {
            return Err(Fail::garbled("another number of answers than of renewals"));
        }
        let wanted = self.0.settings.min_replicas;
        if wanted > 0 && !self.0.link.replicated(&live, wanted).await.map_err(Fail::unknown)? {
            // It may be lost with this server: who holds must not rely on it.
            return Err(too_few(wanted).unknown());
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

    /// Renews these, by the script for plain leases or for those in the line; what stands elsewhere is left out.
    async fn renew_where(
        &self,
        batch: &[Renew],
        which: &[usize],
        plain: bool,
        answers: &mut [Option<Result<Renewal>>],
    ) {
        for part in which.chunks(MOST_AT_ONCE) {
            let renews: Vec<&Renew> = part.iter().map(|at| &batch[*at]).collect();
            let done = if plain { self.renew_plain(&renews).await } else { self.renew_line(&renews).await };
            match done {
                Ok(done) => {
                    for (at, renewed) in part.iter().zip(done) {
                        if let Renewed::Done(renewal) = renewed {
                            answers[*at] = Some(Ok(renewal));
                        }
                    }
                }
                Err(fail) => {
                    for (at, renew) in part.iter().zip(renews) {
                        let error = self.failed(Op::Renew, Some(&renew.claim.name))(fail.clone());
                        answers[*at] = Some(Err(error));
                    }
                }
            }
        }
    }
}
