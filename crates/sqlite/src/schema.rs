//! The layout of the file: what it is, how it grows, and which programs may use it.

use leasehold_core::Code;
use rusqlite::{Connection, OptionalExtension, params};

use crate::ends::{after_copy, after_reboot};
use crate::fail::{Fail, Result};
use crate::file::Identity;
use crate::life::RunDir;
use crate::time::{HostTime, boot_id, machine_id, to_sql};

/// Marks the file as ours: `LHLD`.
pub(crate) const APPLICATION_ID: i32 = 0x4c48_4c44;
/// So far ahead of the last token, in microseconds, the durable mark is set: one commit that waits for the disk
/// for each minute and a half of use.
pub(crate) const HIGH_WATER_AHEAD: u64 = 90_000_000;

/// One step of the layout.
#[derive(Debug)]
pub(crate) struct Step {
    /// What leads to it from the step before.
    pub(crate) sql: &'static str,
    /// The lowest schema whose programs may go on using the file.
    pub(crate) compatible: i64,
}

/// A layout: its steps so far. Its number is how many there are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schema(pub(crate) &'static [Step]);

impl Schema {
    /// The layout of this version of the program.
    pub(crate) const PRESENT: Self = Self(&[Step { sql: include_str!("schema.sql"), compatible: 1 }]);

    pub(crate) fn number(self) -> i64 {
        i64::try_from(self.0.len()).unwrap_or(i64::MAX)
    }

    /// Refuses a file whose layout this program would misread.
    pub(crate) fn check(self, compatible: i64) -> Result<()> {
        if compatible <= self.number() {
            return Ok(());
        }
        let message =
            format!("the file has the layout of schema {compatible}, this program knows {}", self.number());
        Err(Fail::protocol(Code::NEWER_SCHEMA, message)
            .help("a newer Leasehold uses this file: update this program too"))
    }

    /// Applies the steps that a file lacks. The caller holds the write lock.
    fn climb(self, connection: &Connection) -> Result<()> {
        let from: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        for step in self.0.iter().skip(from) {
            connection.execute_batch(step.sql)?;
            if from > 0 {
                connection.execute("UPDATE state SET compatible = max(compatible, ?)", [step.compatible])?;
            }
        }
        if from < self.0.len() {
            connection.pragma_update(None, "user_version", self.number())?;
        }
        Ok(())
    }

    /// Fills an empty database that nobody else knows of yet.
    pub(crate) fn fill(self, connection: &Connection, time: &HostTime, identity: Identity) -> Result<()> {
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
        self.climb(connection)?;
        let compatible = self.0.last().map_or(0, |step| step.compatible);
        let Identity { device, inode } = identity;
        let high_water = to_sql(time.wall_micros().saturating_add(HIGH_WATER_AHEAD));
        connection.execute(
            "INSERT INTO state (one, id, compatible, machine, boot, device, inode, last, high_water)
             VALUES (1, ?, ?, ?, ?, ?, ?, 0, ?)",
            params![random_id()?, compatible, machine_id(), boot_id()?, device, inode, high_water],
        )?;
        Ok(())
    }
}

/// What an opened file says of itself.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) id: String,
    schema: i64,
    compatible: i64,
    machine: String,
    pub(crate) boot: String,
    identity: Identity,
}

impl State {
    pub(crate) fn read(connection: &Connection) -> Result<Self> {
        let schema = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        let read = connection.query_row(
            "SELECT id, compatible, machine, boot, device, inode FROM state",
            [],
            |row| {
                let identity = Identity { device: row.get(4)?, inode: row.get(5)? };
                let (id, compatible) = (row.get(0)?, row.get(1)?);
                Ok(Self { id, schema, compatible, machine: row.get(2)?, boot: row.get(3)?, identity })
            },
        );
        match read.optional() {
            Ok(Some(state)) => Ok(state),
            Ok(None) => Err(Fail::damaged("the file does not say what it is")),
            Err(error) if is_missing_table(&error) => {
                Err(Fail::foreign("the tables in the file are not Leasehold's").because(error))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether nothing has to be done before the file is used.
    pub(crate) fn is_current(&self, schema: Schema, boot: &str, identity: Identity) -> Result<bool> {
        schema.check(self.compatible)?;
        Ok(self.schema >= schema.number() && self.boot == boot && self.identity == identity)
    }

    /// Brings a file of an older layout, of an earlier boot or from another place up to the present one. The
    /// caller holds the write lock and commits durably.
    pub(crate) fn bring_up(
        self,
        connection: &Connection,
        schema: Schema,
        time: &HostTime,
        identity: Identity,
        lives: &RunDir,
    ) -> Result<()> {
        schema.check(self.compatible)?;
        let (boot, machine) = (boot_id()?, machine_id());
        let told_apart = !machine.is_empty() && !self.machine.is_empty() && self.machine != machine;
        if self.boot != boot && told_apart {
            return Err(Fail::protocol(Code::OTHER_MACHINE, "the file is another machine's").help(
                "a SQLite file locks one machine only: use a file of this machine's own; if this one was moved \
                 here for good, remove it (its marks and history go with it)",
            ));
        }
        if self.schema < schema.number() {
            schema.climb(connection)?;
        }
        if self.boot != boot {
            after_reboot(connection, time)?;
            raise_tokens(connection, time)?;
        } else if self.identity != identity {
            after_copy(connection, lives, time)?;
        }
        connection.execute(
            "UPDATE state SET machine = ?, boot = ?, device = ?, inode = ?",
            params![machine, boot, identity.device, identity.inode],
        )?;
        Ok(())
    }
}

fn is_missing_table(error: &rusqlite::Error) -> bool {
    // "no such table" and "no such column" have no code of their own.
    error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_ERROR)
}

/// With NORMAL a power cut may have taken the last commits, and the clock may be behind: only what was committed
/// durably is sure to be at least the last token.
fn raise_tokens(connection: &Connection, time: &HostTime) -> Result<()> {
    if !leasehold_core::fault!("sqlite_forgets_high_water") {
        connection.execute("UPDATE state SET last = max(last, high_water)", [])?;
    }
    let (wall, ahead) = (to_sql(time.wall_micros()), to_sql(HIGH_WATER_AHEAD));
    connection.execute("UPDATE state SET high_water = max(last, high_water, ?) + ?", [wall, ahead])?;
    Ok(())
}

/// Sixteen random characters.
pub(crate) fn random_id() -> Result<String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| {
        Fail::new(leasehold_core::StoreErrorKind::Unexpected, format!("no random bytes: {error}"))
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use leasehold_core::{
        Claim, ClaimId, Clock, Leave, LockName, Note, Owner, Renew, Renewal, Share, State, Store, StoreUrl,
        Tenure, Turn,
    };

    use super::*;
    use crate::SqliteStore;

    const FIRST: Step = Step { sql: include_str!("schema.sql"), compatible: 1 };
    /// What a later version may do: a column more, which those before do not know of.
    const ADDITIVE: Schema = Schema(&[
        FIRST,
        Step { sql: "ALTER TABLE member ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'", compatible: 1 },
    ]);
    /// What those before would misread.
    const BREAKING: Schema =
        Schema(&[FIRST, Step { sql: "ALTER TABLE member RENAME COLUMN until TO till", compatible: 2 }]);

    fn url(home: &tempfile::TempDir) -> StoreUrl {
        format!("sqlite:{}", home.path().join("locks.db").display()).parse().unwrap()
    }

    fn open(url: &StoreUrl, schema: Schema) -> leasehold_core::Result<SqliteStore> {
        SqliteStore::open_as(url, Clock::system(), schema)
    }

    fn claim() -> Claim {
        Claim {
            name: LockName::parse("a").unwrap(),
            id: ClaimId::random().unwrap(),
            owner: Owner::default(),
            share: Share::EXCLUSIVE,
            reshape: 0,
            turn: Turn::Now,
            ttl: Duration::from_secs(30),
            note: Note::NONE,
            anchored: false,
            aftermath: leasehold_core::Aftermath::NONE,
            succeeds: None,
            tokens: 1,
            seen: None,
            proposed: None,
            not_after: None,
        }
    }

    async fn holds(store: &SqliteStore, claim: &Claim) -> bool {
        matches!(store.claim(claim).await.unwrap().state, State::Granted(_))
    }

    #[tokio::test]
    async fn two_versions_that_understand_each_other_exclude_each_other() {
        let home = tempfile::tempdir().unwrap();
        let url = url(&home);
        // In the middle of a rolling upgrade: the old one is running, and holds something.
        let old = open(&url, Schema::PRESENT).unwrap();
        let mine = claim();
        assert!(holds(&old, &mine).await);
        let new = open(&url, ADDITIVE).unwrap();
        let theirs = claim();
        assert!(!holds(&new, &theirs).await, "the old one holds it");
        let renew = Renew {
            claim: Arc::new(mine.clone()),
            tenure: Tenure { count: 1, token: leasehold_core::Token::new(1).unwrap(), note: Note::NONE },
        };
        assert!(matches!(old.renew(&[renew]).await[0], Ok(Renewal::Kept { .. })));
        old.release(&mine.name, mine.id, Leave::Open).await.unwrap();
        assert!(holds(&new, &theirs).await);
        assert!(!holds(&old, &claim()).await, "the new one holds it");
        // One that starts now, of the old version, too.
        let late = open(&url, Schema::PRESENT).unwrap();
        assert!(!holds(&late, &claim()).await);
        new.release(&theirs.name, theirs.id, Leave::Open).await.unwrap();
        assert!(holds(&late, &claim()).await);
    }

    #[tokio::test]
    async fn a_version_that_would_misread_the_file_is_told_so_even_while_it_runs() {
        let home = tempfile::tempdir().unwrap();
        let url = url(&home);
        let old = open(&url, Schema::PRESENT).unwrap();
        assert!(holds(&old, &claim()).await);
        // The upgrade itself; what the later version does with it is its own business.
        drop(open(&url, BREAKING).unwrap());
        let error = old.claim(&claim()).await.unwrap_err();
        assert_eq!(error.code(), Code::NEWER_SCHEMA, "{error}");
        let error = open(&url, Schema::PRESENT).unwrap_err();
        assert_eq!(error.code(), Code::NEWER_SCHEMA, "{error}");
        assert!(error.help().unwrap().contains("update"), "{error}");
    }
}
