//! Marks and records: what the store keeps beside claims.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{
    Ledger, LockName, Mark, MarkKind, MarkOutcome, Op, Record, RecordId, RecordKind, Result,
};
use redis::Value;

use crate::fail::{self, Fail};
use crate::script::{Answer, MARK, RECORD, UNMARK, number, text};
use crate::store::RedisStore;

/// All records are in one slot, since their ids rise over all names.
const LAST: &str = "leasehold:{records}:last";
const IDS: &str = "leasehold:{records}:ids";
const ALL: &str = "leasehold:{records}:all";
const OF_NAME: &str = "leasehold:{records}:of:";
/// Between the parts of a record; no name and no word has it.
const MARK_OFF: char = '\u{1f}';
/// No mark stands longer: times in microseconds must stay below 2^53.
const MOST_LASTING: Duration = Duration::from_secs(50 * 365 * 24 * 3600);

impl RedisStore {
    /// What time it is where this key is.
    async fn now(&self, key: &str) -> fail::Result<u64> {
        let mut time = Answer::new(self.servers().call(key, &redis::cmd("TIME")).await?)?;
        Ok(time.natural()? * 1_000_000 + time.natural()?)
    }
}

#[async_trait]
impl Ledger for RedisStore {
    async fn mark(&self, mark: &Mark) -> Result<MarkOutcome> {
        let Mark { kind, name, key, by, text, lasting, age: _ } = mark;
        let marks = self.keys(name)?.marks(kind.word());
        let fails = self.failed(Op::Ledger, Some(name));
        let lasting = (*lasting).min(MOST_LASTING).as_micros().to_string();
        let by = by.replace(['|', MARK_OFF], " ");
        let args = [key.clone(), lasting, by, text.clone()].map(String::into_bytes);
        let made = async {
            let mut answer = Answer::new(self.servers().run(&MARK, &[marks], &args).await?)?;
            let now = answer.natural()?;
            match answer.next() {
                Ok(standing) => Ok(mark_of(*kind, name, key, &crate::script::text(standing)?, now)),
                Err(_) => Ok(None),
            }
        };
        let standing: fail::Result<Option<Mark>> = made.await;
        Ok(standing.map_err(fails)?.map_or(MarkOutcome::Made, |mark| MarkOutcome::Already(Box::new(mark))))
    }

    async fn marks(&self, kind: MarkKind, name: &LockName) -> Result<Vec<Mark>> {
        let marks = self.keys(name)?.marks(kind.word());
        let found = async {
            let now = self.now(&marks).await?;
            let all = self.servers().call(&marks, redis::cmd("HGETALL").arg(&marks)).await?;
            let all = Answer::new(all)?.texts()?;
            let marks = all.chunks_exact(2).filter_map(|pair| mark_of(kind, name, &pair[0], &pair[1], now));
            let mut marks: Vec<Mark> = marks.collect();
            marks.sort_by(|a, b| (a.age, &a.key).cmp(&(b.age, &b.key)));
            Ok::<_, Fail>(marks)
        };
        found.await.map_err(self.failed(Op::Ledger, Some(name)))
    }

    async fn unmark(&self, kind: MarkKind, name: &LockName, key: &str) -> Result<bool> {
        let marks = self.keys(name)?.marks(kind.word());
        // In one step: what somebody else makes between a look and a step would be taken away unheard.
        let taken = async {
            let taken = self.servers().run(&UNMARK, &[marks], &[key.as_bytes().to_vec()]).await?;
            Ok::<_, Fail>(number(&taken)? == 1)
        };
        taken.await.map_err(self.failed(Op::Ledger, Some(name)))
    }

    async fn record(&self, record: &Record) -> Result<RecordId> {
        let Record { kind, name, by, text: told, age: _ } = record;
        let keys = [LAST, IDS, ALL].map(str::to_owned).into_iter().chain([format!("{OF_NAME}{name}")]);
        let by = by.replace(MARK_OFF, " ");
        let args = [kind.word(), name.as_str(), &by, told, OF_NAME].map(|arg| arg.as_bytes().to_vec());
        let keys: Vec<String> = keys.collect();
        let written = async {
            let id = self.servers().run(&RECORD, &keys, &args).await?;
            u64::try_from(number(&id)?).map_err(|_| Fail::garbled("the id of a record"))
        };
        Ok(RecordId(written.await.map_err(self.failed(Op::Ledger, Some(name)))?))
    }

    async fn records(
        &self,
        name: Option<&LockName>,
        after: RecordId,
        most: usize,
    ) -> Result<Vec<(RecordId, Record)>> {
        let read = async {
            if most == 0 {
                return Ok(Vec::new());
            }
            let now = self.now(IDS).await?;
            let key = name.map_or(IDS.to_owned(), |name| format!("{OF_NAME}{name}"));
            let mut newest = redis::cmd("ZREVRANGEBYSCORE");
            newest.arg(key).arg("+inf").arg(format!("({}", after.0)).arg("LIMIT").arg(0).arg(most);
            let ids = Answer::new(self.servers().call(IDS, &newest).await?)?.texts()?;
            if ids.is_empty() {
                return Ok(Vec::new());
            }
            let told = Answer::new(self.servers().call(ALL, redis::cmd("HMGET").arg(ALL).arg(&ids)).await?)?;
            let mut records = Vec::with_capacity(ids.len());
            for (id, value) in ids.iter().zip(told.rest()).rev() {
                if value != Value::Nil {
                    records.extend(record_of(id, &text(value)?, now));
                }
            }
            Ok::<_, Fail>(records)
        };
        read.await.map_err(self.failed(Op::Ledger, name))
    }
}

/// A mark as it is read back; `None` when it has run out.
fn mark_of(kind: MarkKind, name: &LockName, key: &str, written: &str, now: u64) -> Option<Mark> {
    let mut parts = written.splitn(4, '|');
    let made: u64 = parts.next()?.parse().ok()?;
    let till: u64 = parts.next()?.parse().ok()?;
    let (by, text) = (parts.next()?.to_owned(), parts.next()?.to_owned());
    let lasting = Duration::from_micros(till.checked_sub(now).filter(|left| *left > 0)?);
    let age = Duration::from_micros(now.saturating_sub(made));
    Some(Mark { kind, name: name.clone(), key: key.to_owned(), by, text, lasting, age })
}

/// A record as it is read back; `None` for a kind that only a later version knows.
fn record_of(id: &str, written: &str, now: u64) -> Option<(RecordId, Record)> {
    let mut parts = written.splitn(5, MARK_OFF);
    let made: u64 = parts.next()?.parse().ok()?;
    let word = parts.next()?;
    let kinds = [RecordKind::Run, RecordKind::Skip, RecordKind::Event];
    let kind = kinds.into_iter().find(|kind| kind.word() == word)?;
    let name = LockName::parse(parts.next()?).ok()?;
    let (by, text) = (parts.next()?.to_owned(), parts.next()?.to_owned());
    let age = Duration::from_micros(now.saturating_sub(made));
    Some((RecordId(id.parse().ok()?), Record { kind, name, by, text, age }))
}
