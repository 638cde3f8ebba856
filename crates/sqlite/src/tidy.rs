//! Tidying up: what ran out on names that nobody asks for again must not pile up in the file.

use rusqlite::params;

use crate::db::{Db, How, parse_name};
use crate::fail::Result;
use crate::time::to_sql;

/// So often a busy client tidies up, in jobs that write.
const EVERY: u32 = 1024;
/// One job in so many does it at random, since most clients of cron live for two.
const ONE_IN: u32 = 256;
/// A client that wrote more than this is no such client.
const FEW: u32 = 32;
/// So many names are swept at once.
const MOST_NAMES: u32 = 200;
/// So many records of all names are kept, and the rest if it is younger than a day.
const MOST_RECORDS: i64 = 100_000;
/// A log of more pages is cut to nothing when the thread is idle.
const LONG_LOG: i64 = 4000;
const DAY_NANOS: i64 = 24 * 60 * 60 * 1_000_000_000;

impl Db {
    /// Tidies up once in a while.
    pub(crate) fn tidy_seldom(&mut self) {
        let rarely = self.writes < FEW && fastrand::u32(..ONE_IN) == 0;
        if rarely || self.writes >= EVERY {
            self.tidy(false);
        }
    }

    /// Tidies up. A failure is left to whoever comes next.
    pub(crate) fn tidy(&mut self, idle: bool) {
        let _ = self.try_tidy(idle);
        self.writes = 0;
    }

    fn try_tidy(&mut self, idle: bool) -> Result<()> {
        let names = self.read(&|| false, |db, at| {
            let mut query = db.connection.prepare_cached(
                "SELECT name FROM member WHERE until <= ?1 UNION SELECT name FROM closure WHERE until <= ?1 LIMIT ?2",
            )?;
            let names = query.query_map(params![to_sql(at.boot.as_nanos()), MOST_NAMES], |row| row.get(0))?;
            Ok(names.collect::<rusqlite::Result<Vec<String>>>()?)
        })?;
        for name in names {
            self.sweep(&parse_name(&name)?)?;
        }
        self.write(How::LEASE, &|| false, |round| {
            let now = to_sql(round.at.boot.as_nanos());
            let connection = round.connection;
            connection.prepare_cached("DELETE FROM tombstone WHERE until <= ?")?.execute([now])?;
            connection.prepare_cached("DELETE FROM mark WHERE until <= ?")?.execute([now])?;
            let mut trim = connection.prepare_cached(
                "DELETE FROM record WHERE id <= (SELECT max(id) FROM record) - ? AND made < ?",
            )?;
            trim.execute([MOST_RECORDS, now.saturating_sub(DAY_NANOS)])?;
            Ok(())
        })?;
        self.lives.dir().save_room();
        self.lives.find_over();
        self.bury();
        if idle {
            self.lives.forget();
            let log: i64 =
                self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(1))?;
            if log > LONG_LOG {
                self.checkpoint("TRUNCATE")?;
            }
        }
        Ok(())
    }
}
