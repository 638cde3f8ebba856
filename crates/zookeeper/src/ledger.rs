//! Marks and records: nodes that stay, and are judged by the servers' clock alone.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{
    Ledger, LockName, Mark, MarkKind, MarkOutcome, Op, Record, RecordId, RecordKind, Result, StoreErrorKind,
};
use zookeeper_client::{CreateMode, Error, Stat};

use crate::fail::{self, Fail};
use crate::node::name_of;
use crate::session::Session;
use crate::store::ZooKeeperStore;
use crate::value::{unwords, words};

const LAYOUT: &str = "lh1";
const ROUNDS: usize = 8;
/// So many records of a name are kept, and so many more until somebody counts.
const MOST_RECORDS: usize = 1000;
const COUNTED: i64 = 100;
/// So many nodes are read at a time.
const AT_ONCE: usize = 64;

/// One node and its data.
type Found = (String, Vec<u8>, Stat);

impl ZooKeeperStore {
    async fn make(&self, mark: &Mark) -> fail::Result<MarkOutcome> {
        let Mark { kind, name, key, by, text, lasting, age: _ } = mark;
        let session = self.0.sessions.any().await?;
        let path = self.0.paths.mark(*kind, name, key);
        let millis = lasting.as_millis().to_string();
        let data = words(&[LAYOUT, key, by, &millis, text]);
        for _ in 0..ROUNDS {
            match self.try_create(&session, &path, &data).await? {
                Ok(_) => return Ok(MarkOutcome::Made),
                Err(Error::NodeExists) => {}
                // What it stands in was swept as it was needed.
                Err(Error::NoNode) => continue,
                Err(error) => return Err(error.into()),
            }
            let Some((data, stat)) = session.read(&path).await? else { continue };
            let now = self.server_time(&session).await?;
            if let Some(stands) = mark_of(*kind, name, &data, &stat, now) {
                return Ok(MarkOutcome::Already(Box::new(stands)));
            }
            // Its time is over. Somebody else may have found so as well.
            drop(session.try_ask(session.client().delete(&path, Some(stat.version))).await?);
        }
        Err(Fail::new(
            StoreErrorKind::Unavailable,
            "the mark was made and taken away each time it was looked at",
        ))
    }

    async fn standing(&self, kind: MarkKind, name: &LockName) -> fail::Result<Vec<Mark>> {
        let session = self.0.sessions.any().await?;
        let all = self.0.paths.marks(kind, name);
        let nodes = self.children(&session, &all).await?;
        if nodes.is_empty() {
            return Ok(Vec::new());
        }
        let now = self.server_time(&session).await?;
        let mut found = self.read_all(&session, &all, nodes).await?;
        // Newest first.
        found.sort_by_key(|(_, _, stat)| std::cmp::Reverse(stat.czxid));
        let mut marks = Vec::new();
        for (order, (node, data, stat)) in found.into_iter().enumerate() {
            match mark_of(kind, name, &data, &stat, now) {
                // Servers tell milliseconds; what is newer must not look older.
                Some(mark) => {
                    let later = Duration::from_nanos(u64::try_from(order).unwrap_or(0));
                    marks.push(Mark { age: mark.age + later, ..mark });
                }
                None => {
                    let over = session.client().delete(&format!("{all}/{node}"), Some(stat.version));
                    drop(session.try_ask(over).await?);
                }
            }
        }
        Ok(marks)
    }

    async fn take_mark(&self, kind: MarkKind, name: &LockName, key: &str) -> fail::Result<bool> {
        let session = self.0.sessions.any().await?;
        let path = self.0.paths.mark(kind, name, key);
        let Some((data, stat)) = session.read(&path).await? else { return Ok(false) };
        let stood = mark_of(kind, name, &data, &stat, self.server_time(&session).await?).is_some();
        Ok(self.take_away(&session, &path).await? && stood)
    }

    async fn write_down(&self, record: &Record) -> fail::Result<RecordId> {
        let Record { kind, name, by, text, age: _ } = record;
        let session = self.0.sessions.any().await?;
        let of_name = self.0.paths.records(name);
        let path = format!("{of_name}/r-");
        let data = words(&[LAYOUT, kind.word(), name.as_str(), by, text]);
        let numbered = CreateMode::PersistentSequential.with_acls(session.acls());
        let create = || session.try_ask(session.client().create(&path, &data, &numbered));
        let created = match create().await? {
            Err(Error::NoNode) => {
                self.create(&session, &of_name, b"").await?;
                create().await?
            }
            created => created,
        };
        let (stat, number) = created?;
        if number.into_i64() % COUNTED == COUNTED - 1 {
            let mut nodes = self.children(&session, &of_name).await?;
            nodes.sort_unstable();
            let many = nodes.len().saturating_sub(MOST_RECORDS);
            for old in &nodes[..many] {
                self.take_away(&session, &format!("{of_name}/{old}")).await?;
            }
        }
        id_of(&stat)
    }

    async fn read_back(
        &self,
        name: Option<&LockName>,
        after: RecordId,
        most: usize,
    ) -> fail::Result<Vec<(RecordId, Record)>> {
        let session = self.0.sessions.any().await?;
        let directories = match name {
            Some(name) => vec![self.0.paths.records(name)],
            None => {
                let all = self.0.paths.all_records();
                let nodes = self.children(&session, &all).await?;
                nodes
                    .iter()
                    .filter(|node| name_of(node).is_some())
                    .map(|node| format!("{all}/{node}"))
                    .collect()
            }
        };
        let mut found = Vec::new();
        for directory in directories {
            let mut nodes = self.children(&session, &directory).await?;
            nodes.sort_unstable();
            let nodes = nodes.split_off(nodes.len().saturating_sub(most));
            found.extend(self.read_all(&session, &directory, nodes).await?);
        }
        found.sort_by_key(|(_, _, stat)| stat.czxid);
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let now = self.server_time(&session).await?;
        let mut records = Vec::new();
        for (_, data, stat) in &found {
            let id = id_of(stat)?;
            if let Some(record) = record_of(data, stat, now)
                && id > after
            {
                records.push((id, record));
            }
        }
        Ok(records.split_off(records.len().saturating_sub(most)))
    }

    /// The nodes of a directory with their data; those that go meanwhile are left out.
    async fn read_all(
        &self,
        session: &Session,
        directory: &str,
        nodes: Vec<String>,
    ) -> fail::Result<Vec<Found>> {
        let mut found = Vec::new();
        for some in nodes.chunks(AT_ONCE) {
            let paths: Vec<String> = some.iter().map(|node| format!("{directory}/{node}")).collect();
            let read = futures_util::future::join_all(paths.iter().map(|path| session.read(path))).await;
            for (node, read) in some.iter().zip(read) {
                found.extend(read?.map(|(data, stat)| (node.clone(), data, stat)));
            }
        }
        Ok(found)
    }
}

#[async_trait]
impl Ledger for ZooKeeperStore {
    async fn mark(&self, mark: &Mark) -> Result<MarkOutcome> {
        self.make(mark).await.map_err(self.failed(Op::Ledger, Some(&mark.name)))
    }

    async fn marks(&self, kind: MarkKind, name: &LockName) -> Result<Vec<Mark>> {
        self.standing(kind, name).await.map_err(self.failed(Op::Ledger, Some(name)))
    }

    async fn unmark(&self, kind: MarkKind, name: &LockName, key: &str) -> Result<bool> {
        self.take_mark(kind, name, key).await.map_err(self.failed(Op::Ledger, Some(name)))
    }

    async fn record(&self, record: &Record) -> Result<RecordId> {
        self.write_down(record).await.map_err(self.failed(Op::Ledger, Some(&record.name)))
    }

    async fn records(
        &self,
        name: Option<&LockName>,
        after: RecordId,
        most: usize,
    ) -> Result<Vec<(RecordId, Record)>> {
        self.read_back(name, after, most).await.map_err(self.failed(Op::Ledger, name))
    }
}

fn id_of(stat: &Stat) -> fail::Result<RecordId> {
    u64::try_from(stat.czxid).map(RecordId).map_err(|_| Fail::garbled("the number of a change"))
}

fn age_of(stat: &Stat, now: i64) -> Duration {
    Duration::from_millis(u64::try_from(now.saturating_sub(stat.mtime)).unwrap_or(0))
}

/// A mark that still stands.
fn mark_of(kind: MarkKind, name: &LockName, data: &[u8], stat: &Stat, now: i64) -> Option<Mark> {
    let told = unwords(data)?;
    let [layout, key, by, millis, text] = &told[..] else { return None };
    let lasting = Duration::from_millis(millis.parse().ok()?);
    let age = age_of(stat, now);
    let left = lasting.checked_sub(age).filter(|left| !left.is_zero())?;
    let (key, by, text) = (key.clone(), by.clone(), text.clone());
    (layout == LAYOUT).then(|| Mark { kind, name: name.clone(), key, by, text, lasting: left, age })
}

/// A record as it is read back; `None` for a kind that only a later version knows.
fn record_of(data: &[u8], stat: &Stat, now: i64) -> Option<Record> {
    let told = unwords(data)?;
    let [layout, word, name, by, text] = &told[..] else { return None };
    let kinds = [RecordKind::Run, RecordKind::Skip, RecordKind::Event];
    let kind = kinds.into_iter().find(|kind| kind.word() == word).filter(|_| layout == LAYOUT)?;
    let name = LockName::parse(name).ok()?;
    Some(Record { kind, name, by: by.clone(), text: text.clone(), age: age_of(stat, now) })
}
