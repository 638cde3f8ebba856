//! Marks and records: what the store keeps beside claims.

use async_trait::async_trait;
use leasehold_core::{
    Ledger, LockName, Mark, MarkKind, MarkOutcome, Op, Record, RecordId, RecordKind, Result,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::db::{How, parse_name};
use crate::fail;
use crate::rows::wall_after;
use crate::store::SqliteStore;
use crate::time::{duration, nanos, to_sql};

/// How many records of a name are kept.
const MOST_RECORDS: u32 = 1000;

#[async_trait]
impl Ledger for SqliteStore {
    async fn mark(&self, mark: &Mark) -> Result<MarkOutcome> {
        let asked = mark.clone();
        self.ask(Op::Ledger, Some(&mark.name), move |db, gone| {
            let Mark { kind, name, key, by, text, lasting, age: _ } = &asked;
            db.write(How::DURABLE, gone, |round| {
                let now = to_sql(round.at.boot.as_nanos());
                if let Some(standing) = find_mark(round.connection, *kind, name, key, now)? {
                    return Ok(MarkOutcome::Already(Box::new(standing)));
                }
                let mut insert = round.connection.prepare_cached(
                    "INSERT OR REPLACE INTO mark (kind, name, key, made_by, text, made, made_wall, until,
                                                  until_wall, lasting)
                     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                )?;
                insert.execute(params![
                    kind.word(),
                    name.as_str(),
                    key,
                    by,
                    text,
                    now,
                    to_sql(round.time.wall_micros()),
                    now.saturating_add(nanos(*lasting)),
                    wall_after(round.time, *lasting),
                    nanos(*lasting),
                ])?;
                Ok(MarkOutcome::Made)
            })
        })
        .await
    }

    async fn marks(&self, kind: MarkKind, name: &LockName) -> Result<Vec<Mark>> {
        let asked = name.clone();
        self.ask(Op::Ledger, Some(name), move |db, gone| {
            db.read(gone, |db, at| {
                let now = to_sql(at.boot.as_nanos());
                let mut query = db.connection.prepare_cached(
                    "SELECT key, made_by, text, made, until FROM mark
                     WHERE kind = ? AND name = ? AND until > ? ORDER BY made DESC, key",
                )?;
                let rows = query.query_map(params![kind.word(), asked.as_str(), now], |row| {
                    mark_of(row, kind, &asked, now)
                })?;
                Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?)
            })
        })
        .await
    }

    async fn unmark(&self, kind: MarkKind, name: &LockName, key: &str) -> Result<bool> {
        let (asked, key) = (name.clone(), key.to_owned());
        self.ask(Op::Ledger, Some(name), move |db, gone| {
            db.write(How::DURABLE, gone, |round| {
                let stood =
                    find_mark(round.connection, kind, &asked, &key, to_sql(round.at.boot.as_nanos()))?;
                let mut delete = round
                    .connection
                    .prepare_cached("DELETE FROM mark WHERE kind = ? AND name = ? AND key = ?")?;
                delete.execute(params![kind.word(), asked.as_str(), key])?;
                Ok(stood.is_some())
            })
        })
        .await
    }

    async fn record(&self, record: &Record) -> Result<RecordId> {
        let asked = record.clone();
        self.ask(Op::Ledger, Some(&record.name), move |db, gone| {
            let Record { kind, name, by, text, age: _ } = &asked;
            db.write(How::LEASE, gone, |round| {
                let mut insert = round.connection.prepare_cached(
                    "INSERT INTO record (kind, name, made_by, text, made, made_wall) VALUES (?, ?, ?, ?, ?, ?)",
                )?;
                let now = to_sql(round.at.boot.as_nanos());
                let wall = to_sql(round.time.wall_micros());
                let id = insert.insert(params![kind.word(), name.as_str(), by, text, now, wall])?;
                let mut trim = round.connection.prepare_cached(
                    "DELETE FROM record WHERE name = ?1 AND id <=
                       (SELECT id FROM record WHERE name = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
                )?;
                trim.execute(params![name.as_str(), MOST_RECORDS])?;
                Ok(RecordId(u64::try_from(id).unwrap_or(0)))
            })
        })
        .await
    }

    async fn records(
        &self,
        name: Option<&LockName>,
        after: RecordId,
        most: usize,
    ) -> Result<Vec<(RecordId, Record)>> {
        let asked = name.cloned();
        self.ask(Op::Ledger, name, move |db, gone| {
            db.read(gone, |db, at| {
                let after = to_sql(after.0);
                let most = i64::try_from(most).unwrap_or(i64::MAX);
                let now = to_sql(at.boot.as_nanos());
                let columns = "SELECT id, kind, name, made_by, text, made FROM record WHERE id > ?";
                let mut found = Vec::new();
                let mut collect = |mut rows: rusqlite::Rows<'_>| -> fail::Result<()> {
                    while let Some(row) = rows.next()? {
                        found.extend(record_of(row, now)?);
                    }
                    Ok(())
                };
                match &asked {
                    Some(name) => {
                        let sql = format!("{columns} AND name = ? ORDER BY id DESC LIMIT ?");
                        collect(db.connection.prepare_cached(&sql)?.query(params![
                            after,
                            name.as_str(),
                            most
                        ])?)?;
                    }
                    None => {
                        let sql = format!("{columns} ORDER BY id DESC LIMIT ?");
                        collect(db.connection.prepare_cached(&sql)?.query(params![after, most])?)?;
                    }
                }
                found.reverse();
                Ok(found)
            })
        })
        .await
    }
}

fn find_mark(
    connection: &Connection,
    kind: MarkKind,
    name: &LockName,
    key: &str,
    now: i64,
) -> fail::Result<Option<Mark>> {
    let mut query = connection.prepare_cached(
        "SELECT key, made_by, text, made, until FROM mark WHERE kind = ? AND name = ? AND key = ? AND until > ?",
    )?;
    let found = query
        .query_row(params![kind.word(), name.as_str(), key, now], |row| mark_of(row, kind, name, now))
        .optional();
    Ok(found?)
}

fn mark_of(row: &Row<'_>, kind: MarkKind, name: &LockName, now: i64) -> rusqlite::Result<Mark> {
    let (made, until): (i64, i64) = (row.get(3)?, row.get(4)?);
    Ok(Mark {
        kind,
        name: name.clone(),
        key: row.get(0)?,
        by: row.get(1)?,
        text: row.get(2)?,
        lasting: duration(until.saturating_sub(now)),
        age: duration(now.saturating_sub(made)),
    })
}

/// A record as it is read back; `None` for a kind that only a later version knows.
fn record_of(row: &Row<'_>, now: i64) -> fail::Result<Option<(RecordId, Record)>> {
    let id: i64 = row.get(0)?;
    let word: String = row.get(1)?;
    let kinds = [RecordKind::Run, RecordKind::Skip, RecordKind::Event];
    let Some(kind) = kinds.into_iter().find(|kind| kind.word() == word) else { return Ok(None) };
    let name = parse_name(row.get_ref(2)?.as_str().unwrap_or(""))?;
    let made: i64 = row.get(5)?;
    let (by, text) = (row.get(3)?, row.get(4)?);
    let age = duration(now.saturating_sub(made));
    Ok(Some((RecordId(u64::try_from(id).unwrap_or(0)), Record { kind, name, by, text, age })))
}
