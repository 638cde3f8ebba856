//! What an effect is had on: it refuses smaller tokens than it has seen, and a second effect for the same key.

use std::path::Path;
use std::time::Duration;

use leasehold::{BootTime, Clock, Token};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use crate::puppet::Trouble;

/// A resource in an SQLite file of its own, which also keeps the books that a proof is judged by.
#[derive(Debug)]
pub struct Resource {
    connection: Connection,
    clock: Clock,
}

/// What became of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Had {
    /// It is there now.
    Now,
    /// It was there already.
    Before,
    /// Somebody with a higher token has been here.
    Stale,
}

/// What the books say in the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Books {
    /// How many keys have an effect.
    pub effects: u64,
    /// How often work was started.
    pub starts: u64,
    /// For how many keys somebody heard that they are done.
    pub done: u64,
    /// How often an effect was there already.
    pub again: u64,
    /// How often a smaller token was refused.
    pub stale: u64,
    /// Keys that were started again after somebody heard that they were done.
    pub started_after_done: u64,
    /// Keys that are done, and have no effect.
    pub done_without_effect: u64,
    /// The highest key that anybody started.
    pub last: Option<u64>,
}

impl Resource {
    /// Opens it, and makes it if it is not there.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    pub fn open(path: &Path) -> Result<Self, Trouble> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(Duration::from_secs(30))?;
        // Processes are killed here, machines are not.
        connection.execute_batch(
            "PRAGMA journal_mode = WAL;
             PRAGMA synchronous = OFF;
             CREATE TABLE IF NOT EXISTS fence(key INTEGER PRIMARY KEY, token INTEGER NOT NULL);
             CREATE TABLE IF NOT EXISTS effect(key INTEGER PRIMARY KEY, token INTEGER NOT NULL);
             CREATE TABLE IF NOT EXISTS refused(key INTEGER NOT NULL, token INTEGER NOT NULL, stale INTEGER NOT NULL);
             CREATE TABLE IF NOT EXISTS start(id INTEGER PRIMARY KEY, key INTEGER NOT NULL, pid INTEGER NOT NULL,
                                              at INTEGER NOT NULL);
             CREATE TABLE IF NOT EXISTS done(key INTEGER NOT NULL, at INTEGER NOT NULL);",
        )?;
        Ok(Self { connection, clock: Clock::system() })
    }

    fn now(&self) -> i64 {
        self.clock.now().as_nanos().cast_signed()
    }

    /// Writes down that this process has started the work of a key.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn starts(&self, key: u64) -> Result<(), Trouble> {
        let row = params![key.cast_signed(), std::process::id(), self.now()];
        self.connection.execute("INSERT INTO start(key, pid, at) VALUES (?, ?, ?)", row)?;
        Ok(())
    }

    /// Has the effect: one transaction with the check of the token.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn effect(&mut self, key: u64, token: Token) -> Result<Had, Trouble> {
        let (key, token) = (key.cast_signed(), token.as_i64());
        let round = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let fresh = round.execute(
            "INSERT INTO fence(key, token) VALUES (?, ?)
             ON CONFLICT (key) DO UPDATE SET token = excluded.token WHERE fence.token <= excluded.token",
            [key, token],
        )? == 1;
        let had = if !fresh {
            Had::Stale
        } else if round.execute("INSERT OR IGNORE INTO effect(key, token) VALUES (?, ?)", [key, token])? == 1
        {
            Had::Now
        } else {
            Had::Before
        };
        if had != Had::Now {
            let stale = i64::from(had == Had::Stale);
            round.execute("INSERT INTO refused(key, token, stale) VALUES (?, ?, ?)", [key, token, stale])?;
        }
        round.commit()?;
        Ok(had)
    }

    /// Writes down that this process has heard that a key is done, by itself or by another.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn done(&self, key: u64) -> Result<(), Trouble> {
        self.connection
            .execute("INSERT INTO done(key, at) VALUES (?, ?)", [key.cast_signed(), self.now()])?;
        Ok(())
    }

    /// The highest key that is done, or the first.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn last_done(&self) -> Result<u64, Trouble> {
        let last: Option<i64> =
            self.connection.query_row("SELECT max(key) FROM done", [], |row| row.get(0))?;
        Ok(last.unwrap_or(0).cast_unsigned())
    }

    /// The process that started work last, and when.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn last_start(&self) -> Result<Option<(u32, BootTime)>, Trouble> {
        let query = "SELECT pid, at FROM start ORDER BY id DESC LIMIT 1";
        let found = self.connection.query_row(query, [], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?)));
        Ok(found.optional()?.map(|(pid, at)| (pid, BootTime::from_nanos(at.cast_unsigned()))))
    }

    /// What the books say.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub fn books(&self) -> Result<Books, Trouble> {
        let count = |query: &str| -> Result<u64, Trouble> {
            Ok(self.connection.query_row(query, [], |row| row.get::<_, i64>(0))?.cast_unsigned())
        };
        let last: Option<i64> =
            self.connection.query_row("SELECT max(key) FROM start", [], |row| row.get(0))?;
        Ok(Books {
            effects: count("SELECT count(*) FROM effect")?,
            starts: count("SELECT count(*) FROM start")?,
            done: count("SELECT count(DISTINCT key) FROM done")?,
            again: count("SELECT count(*) FROM refused WHERE NOT stale")?,
            stale: count("SELECT count(*) FROM refused WHERE stale")?,
            started_after_done: count(
                "SELECT count(DISTINCT start.key) FROM start JOIN done USING (key) WHERE start.at > done.at",
            )?,
            done_without_effect: count(
                "SELECT count(DISTINCT key) FROM done WHERE key NOT IN (SELECT key FROM effect)",
            )?,
            last: last.map(i64::cast_unsigned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaller_tokens_and_second_effects_are_refused_and_the_books_tell() {
        let folder = tempfile::tempdir().unwrap();
        let mut resource = Resource::open(&folder.path().join("resource.db")).unwrap();
        let token = |token| Token::new(token).unwrap();
        resource.starts(1).unwrap();
        assert_eq!(resource.effect(1, token(7)).unwrap(), Had::Now);
        assert_eq!(resource.effect(1, token(8)).unwrap(), Had::Before);
        assert_eq!(resource.effect(1, token(7)).unwrap(), Had::Stale);
        resource.done(1).unwrap();
        resource.done(2).unwrap();
        let books = resource.books().unwrap();
        assert_eq!((books.effects, books.again, books.stale, books.done), (1, 1, 1, 2));
        assert_eq!((books.started_after_done, books.done_without_effect, books.last), (0, 1, Some(1)));
        resource.starts(1).unwrap();
        assert_eq!(resource.books().unwrap().started_after_done, 1);
        assert_eq!(resource.last_start().unwrap().map(|(pid, _)| pid), Some(std::process::id()));
        assert_eq!(resource.last_done().unwrap(), 2);
    }
}
