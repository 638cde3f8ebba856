//! Marks and records: keys with a lease of their own, which says for how much longer they stand and how old they are.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{
    Ledger, LockName, Mark, MarkKind, MarkOutcome, Op, Record, RecordId, RecordKind, Result,
};

use crate::client::{Left, absent, between, only, puts, reads, takes};
use crate::fail::{self, Fail, What};
use crate::keys::{self, end_of};
use crate::proto::range_request::SortOrder;
use crate::proto::{KeyValue, RangeRequest, TxnRequest};
use crate::store::EtcdStore;
use crate::value::{unwords, words};

const LAYOUT: &str = "lh1";
/// No mark stands longer.
const MOST_LASTING: Duration = Duration::from_secs(50 * 365 * 24 * 3600);
/// A record is kept for so long, if it is among the last of its name.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);
/// So many records of a name are kept, and so many more until somebody counts.
const MOST_RECORDS: i64 = 1000;
const COUNTED: i64 = 100;

impl EtcdStore {
    async fn make(&self, mark: &Mark) -> fail::Result<MarkOutcome> {
        let Mark { kind, name, key, by, text, lasting, age: _ } = mark;
        let at = keys::mark(&self.0.settings.prefix, *kind, name, Some(key));
        let lasting = (*lasting).min(MOST_LASTING);
        let millis = lasting.as_millis().to_string();
        loop {
            let standing = self.0.link.range(only(&at)).await?.kvs;
            if let Some(stands) = self.marks_of(*kind, name, standing).await?.pop() {
                return Ok(MarkOutcome::Already(Box::new(stands)));
            }
            let lease = self.0.link.grant(0, lasting).await?.id;
            let txn = TxnRequest {
                compare: vec![absent(&at)],
                success: vec![puts(&at, words(&[LAYOUT, key, by, &millis, text]), lease)],
                failure: vec![reads(only(&at))],
            };
            if self.0.link.txn(txn).await?.succeeded {
                return Ok(MarkOutcome::Made);
            }
            // Somebody was faster.
            self.0.link.revoke(lease).await?;
        }
    }

    async fn marks_of(
        &self,
        kind: MarkKind,
        name: &LockName,
        mut kvs: Vec<KeyValue>,
    ) -> fail::Result<Vec<Mark>> {
        // Newest first.
        kvs.sort_by_key(|kv| std::cmp::Reverse(kv.create_revision));
        let lefts = self.lefts(kvs.iter().map(|kv| kv.lease).collect()).await?;
        let marks = kvs.iter().enumerate().filter_map(|(order, kv)| {
            let left = lefts.get(&kv.lease)?;
            let told = unwords(&kv.value)?;
            let [layout, key, by, millis, text] = &told[..] else { return None };
            let lasting = Duration::from_millis(millis.parse().ok()?);
            // Leases tell whole seconds; what is newer must not look older.
            let age = left.shown() + Duration::from_nanos(u64::try_from(order).unwrap_or(0));
            let (key, by, text) = (key.clone(), by.clone(), text.clone());
            let lasting = lasting.saturating_sub(left.shown());
            (layout == LAYOUT).then(|| Mark { kind, name: name.clone(), key, by, text, lasting, age })
        });
        Ok(marks.collect())
    }

    async fn write_down(&self, record: &Record) -> fail::Result<RecordId> {
        let Record { kind, name, by, text, age: _ } = record;
        let of_name = keys::records(&self.0.settings.prefix, Some(name));
        let lease = self.0.link.grant(0, KEPT).await?.id;
        let at = [&of_name[..], format!("{lease:x}").as_bytes()].concat();
        let value = words(&[LAYOUT, kind.word(), name.as_str(), by, text]);
        let count = RangeRequest { count_only: true, ..between(&of_name, &end_of(&of_name)) };
        let txn = TxnRequest { success: vec![puts(&at, value, lease)], ..TxnRequest::default() };
        let done = self.0.link.txn(txn).await?;
        if fastrand::i64(..COUNTED) == 0 {
            let count = self.0.link.range(count).await?.count;
            if count > MOST_RECORDS {
                let oldest = RangeRequest {
                    limit: count - MOST_RECORDS,
                    keys_only: true,
                    ..between(&of_name, &end_of(&of_name))
                };
                for old in self.0.link.range(oldest).await?.kvs {
                    self.0.link.revoke(old.lease).await?;
                }
            }
        }
        u64::try_from(done.revision).map(RecordId).map_err(|_| Fail::garbled("a revision below zero"))
    }

    async fn read_back(
        &self,
        name: Option<&LockName>,
        after: RecordId,
        most: usize,
    ) -> fail::Result<Vec<(RecordId, Record)>> {
        if most == 0 {
            return Ok(Vec::new());
        }
        let all = keys::records(&self.0.settings.prefix, name);
        let newest = RangeRequest {
            sort_order: SortOrder::Descend.into(),
            limit: i64::try_from(most).unwrap_or(i64::MAX),
            min_create_revision: i64::try_from(after.0).unwrap_or(i64::MAX).saturating_add(1),
            ..between(&all, &end_of(&all))
        };
        let found = self.0.link.range(newest).await?.kvs;
        let lefts = self.lefts(found.iter().map(|kv| kv.lease).collect()).await?;
        Ok(found.iter().rev().filter_map(|kv| record_of(kv, lefts.get(&kv.lease).copied())).collect())
    }
}

#[async_trait]
impl Ledger for EtcdStore {
    async fn mark(&self, mark: &Mark) -> Result<MarkOutcome> {
        self.make(mark).await.map_err(self.failed(Op::Ledger, Some(&mark.name)))
    }

    async fn marks(&self, kind: MarkKind, name: &LockName) -> Result<Vec<Mark>> {
        let all = keys::mark(&self.0.settings.prefix, kind, name, None);
        let marks = async {
            let found = self.0.link.range(between(&all, &end_of(&all))).await?.kvs;
            self.marks_of(kind, name, found).await
        };
        marks.await.map_err(self.failed(Op::Ledger, Some(name)))
    }

    async fn unmark(&self, kind: MarkKind, name: &LockName, key: &str) -> Result<bool> {
        let at = keys::mark(&self.0.settings.prefix, kind, name, Some(key));
        let taken = async {
            let success = vec![takes(&at)];
            let mut done = self.0.link.txn(TxnRequest { success, ..TxnRequest::default() }).await?;
            let taken = done.deleted()?;
            for mark in &taken {
                // It has no keys any more, and would end by itself.
                match self.0.link.revoke(mark.lease).await {
                    Err(fail) if fail.what() != What::NoLease => break,
                    _ => {}
                }
            }
            Ok::<_, Fail>(!taken.is_empty())
        };
        taken.await.map_err(self.failed(Op::Ledger, Some(name)))
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

/// A record as it is read back; `None` for a kind that only a later version knows.
fn record_of(kv: &KeyValue, left: Option<Left>) -> Option<(RecordId, Record)> {
    let told = unwords(&kv.value)?;
    let [layout, word, name, by, text] = &told[..] else { return None };
    let kinds = [RecordKind::Run, RecordKind::Skip, RecordKind::Event];
    let kind = kinds.into_iter().find(|kind| kind.word() == word).filter(|_| layout == LAYOUT)?;
    let id = RecordId(u64::try_from(kv.create_revision).ok()?);
    let age = left.map_or(Duration::ZERO, Left::shown);
    let name = LockName::parse(name).ok()?;
    Some((id, Record { kind, name, by: by.clone(), text: text.clone(), age }))
}
