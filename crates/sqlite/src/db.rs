//! The database as its thread sees it: transactions in which a line is loaded, ruled and written back.

use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use leasehold_core::{
    Aftermath, Claim, Code, Counter, Line, LockName, Moment, Ruling, StoreErrorKind, Watch,
};
use rusqlite::Connection;

use crate::config::Settings;
use crate::fail::{Fail, Result};
use crate::file::{self, Identity, Opened};
use crate::life::Lives;
use crate::retry::{Gone, patiently};
use crate::round::{Round, is_absent};
use crate::rows;
use crate::schema::{HIGH_WATER_AHEAD, Schema};
use crate::time::{HostTime, to_sql};
use crate::wake::{Letter, Waits, sender};

/// So many lives in the way of a waiter are watched at most; a timer watches the rest.
const MOST_WATCHED: usize = 8;

/// The open file, and everything that its thread knows.
#[derive(Debug)]
pub(crate) struct Db {
    settings: Settings,
    schema: Schema,
    pub(crate) time: HostTime,
    pub(crate) connection: Connection,
    identity: Identity,
    id: String,
    boot: String,
    pub(crate) lives: Lives,
    pub(crate) waits: Arc<Waits>,
    pub(crate) sender: UnixDatagram,
    /// Messages to full mailboxes.
    pub(crate) pending: Vec<(Letter, u32)>,
    /// Transactions that wrote since somebody tidied up.
    pub(crate) writes: u32,
    /// Set while dead lives are removed, which finds them dead again.
    pub(crate) burying: bool,
}

/// How a transaction is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct How {
    /// On the disk before it is answered: for what must survive a power cut, which ends all leases.
    pub(crate) durable: bool,
    /// It gives a lock back, for which room is kept on a full disk.
    pub(crate) gives: bool,
}

impl How {
    pub(crate) const LEASE: Self = Self { durable: false, gives: false };
    pub(crate) const DURABLE: Self = Self { durable: true, gives: false };

    /// For leases, some of which may leave a closure behind: then a power cut must not make them forgotten.
    pub(crate) fn claiming<'a>(claims: impl IntoIterator<Item = &'a Claim>) -> Self {
        let leaves = |claim: &Claim| claim.aftermath != Aftermath::NONE;
        Self { durable: claims.into_iter().any(leaves), gives: false }
    }
}

/// What the file says of itself, read in every transaction.
struct Head {
    last: u64,
    high_water: u64,
}

/// What became of an attempt at a transaction.
enum Attempt<T> {
    Done(T, Vec<Letter>),
    /// A token above the durable mark was taken; nothing was written.
    Above(u64),
}

/// What a waiter sees when it looks.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) ruling: Ruling,
    /// Lives whose end would be news.
    pub(crate) lives: Vec<Arc<str>>,
    /// Whether no letter reaches the claim that waits: nobody lives behind it.
    pub(crate) alone: bool,
}

impl Db {
    /// Opens the file; says too whether that made it.
    pub(crate) fn open(
        settings: Settings,
        schema: Schema,
        time: HostTime,
        waits: Arc<Waits>,
    ) -> Result<(Self, bool)> {
        let Opened { connection, identity, id, boot, lives, created } = file::open(&settings, &time, schema)?;
        let sender = sender().map_err(|error| {
            Fail::io(
                "cannot make a socket",
                rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO),
            )
        })?;
        let (lives, pending) = (Lives::new(lives), Vec::new());
        let db = Self {
            settings,
            schema,
            time,
            connection,
            identity,
            id,
            boot,
            lives,
            waits,
            sender,
            pending,
            writes: 0,
            burying: false,
        };
        Ok((db, created))
    }

    /// Goes on with whatever file the path leads to now. What the new one does not know is lost.
    fn follow_path(&mut self) -> Result<()> {
        if leasehold_core::fault!("sqlite_ignores_replaced_file")
            || Identity::of(&self.settings.path)? == Some(self.identity)
        {
            return Ok(());
        }
        self.reopen()
    }

    fn reopen(&mut self) -> Result<()> {
        let opened = file::open(&self.settings, &self.time, self.schema)?;
        let Opened { connection, identity, id, boot, lives, created: _ } = opened;
        (self.connection, self.identity, self.id, self.boot) = (connection, identity, id, boot);
        self.lives.move_to(lives, self.time.now());
        Ok(())
    }

    /// Checks that the file is still what we opened; what it says of its tokens.
    fn head(&self) -> Result<Head> {
        let mut query =
            self.connection.prepare_cached("SELECT id, boot, compatible, last, high_water FROM state")?;
        let mut rows = query.query([])?;
        let Some(row) = rows.next()? else {
            return Err(Fail::damaged("the file no longer says what it is"));
        };
        if row.get_ref(0)?.as_str().ok() != Some(&self.id) {
            return Err(
                Fail::new(StoreErrorKind::Unavailable, "the file was overwritten").code(Code::REPLACED)
            );
        }
        if row.get_ref(1)?.as_str().ok() != Some(&self.boot) {
            return Err(Fail::protocol(Code::OTHER_MACHINE, "another kernel uses the file").help(
                "a SQLite file locks one machine only: give each machine, and each virtual machine, a file of its own",
            ));
        }
        self.schema.check(row.get(2)?)?;
        let number = |number: i64| u64::try_from(number).unwrap_or(0);
        Ok(Head { last: number(row.get(3)?), high_water: number(row.get(4)?) })
    }

    /// Runs `work` in a transaction that excludes every other writer, and wakes whom it concerns.
    ///
    /// `work` may run again: after another process was in the way, and after the durable mark was raised.
    pub(crate) fn write<T>(
        &mut self,
        how: How,
        gone: Gone<'_>,
        mut work: impl FnMut(&mut Round<'_>) -> Result<T>,
    ) -> Result<T> {
        self.follow_path()?;
        self.writes += 1;
        let (mut made_room, mut reopened) = (false, false);
        loop {
            match self.attempt(how.durable, gone, &mut work) {
                Ok(Attempt::Done(answer, letters)) => {
                    self.deliver(letters);
                    self.bury();
                    return Ok(answer);
                }
                Ok(Attempt::Above(last)) => self.raise(last, gone)?,
                Err(fail) if fail.has(Code::REPLACED) && !reopened => {
                    self.reopen()?;
                    reopened = true;
                }
                Err(fail) if fail.is(StoreErrorKind::Full) && !made_room => {
                    if how.gives {
                        self.lives.dir().spend_room();
                    }
                    // Then the log is written again from its start, where it takes no more room.
                    let _ = self.checkpoint("PASSIVE");
                    made_room = true;
                }
                Err(fail) => return Err(fail),
            }
        }
    }

    fn attempt<T>(
        &self,
        durable: bool,
        gone: Gone<'_>,
        work: &mut impl FnMut(&mut Round<'_>) -> Result<T>,
    ) -> Result<Attempt<T>> {
        if durable {
            self.synchronous("FULL")?;
        }
        let done = self.transact(gone, || {
            let Head { last, high_water } = self.head()?;
            let (counter, letters) = (Counter { last }, Vec::new());
            let Self { connection, time, lives, .. } = self;
            let mut round = Round { connection, time, at: time.moment(), lives, counter, letters };
            let answer = work(&mut round)?;
            let Round { counter, letters, .. } = round;
            if counter.last > high_water {
                return Ok(Err(counter.last));
            }
            if counter.last != last {
                let mut update = connection.prepare_cached("UPDATE state SET last = ?")?;
                update.execute([to_sql(counter.last)])?;
            }
            Ok(Ok((answer, letters)))
        });
        if durable {
            self.synchronous("NORMAL")?;
        }
        Ok(match done? {
            Ok((answer, letters)) => Attempt::Done(answer, letters),
            Err(last) => Attempt::Above(last),
        })
    }

    /// Between `BEGIN IMMEDIATE` and `COMMIT`, or `ROLLBACK` on an error of either kind.
    fn transact<T, E>(
        &self,
        gone: Gone<'_>,
        work: impl FnOnce() -> Result<Result<T, E>>,
    ) -> Result<Result<T, E>> {
        self.settle()?;
        patiently(gone, || Ok(self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?))?;
        let done = match work() {
            Ok(Ok(answer)) => {
                let committed =
                    self.connection.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
                match committed {
                    Ok(_) => Ok(Ok(answer)),
                    Err(error) => Err(failed_commit(error)),
                }
            }
            undone => undone,
        };
        if done.is_err() || matches!(done, Ok(Err(_))) {
            // What cannot be undone now is undone before the next transaction.
            let _ = self.settle();
        }
        done
    }

    /// Undoes what a failure may have left open; most failures have undone it themselves.
    fn settle(&self) -> Result<()> {
        if !self.connection.is_autocommit() {
            self.connection.execute_batch("ROLLBACK")?;
        }
        Ok(())
    }

    fn synchronous(&self, level: &str) -> Result<()> {
        Ok(self.connection.pragma_update(None, "synchronous", level)?)
    }

    /// Makes the promise durable that no token above the new mark was given, before one above the old is.
    fn raise(&self, last: u64, gone: Gone<'_>) -> Result<()> {
        let mark = to_sql(last.saturating_add(HIGH_WATER_AHEAD));
        self.synchronous("FULL")?;
        let raised = self.transact(gone, || {
            let mut raise =
                self.connection.prepare_cached("UPDATE state SET high_water = max(high_water, ?)")?;
            raise.execute([mark])?;
            Ok(Ok::<_, ()>(()))
        });
        self.synchronous("NORMAL")?;
        raised.map(drop)
    }

    /// Runs `work` on one unchanging view of the file.
    pub(crate) fn read<T>(
        &mut self,
        gone: Gone<'_>,
        mut work: impl FnMut(&Self, Moment) -> Result<T>,
    ) -> Result<T> {
        self.follow_path()?;
        match self.view(gone, &mut work) {
            Err(fail) if fail.has(Code::REPLACED) => {
                self.reopen()?;
                self.view(gone, &mut work)
            }
            done => done,
        }
    }

    fn view<T>(&self, gone: Gone<'_>, work: &mut impl FnMut(&Self, Moment) -> Result<T>) -> Result<T> {
        patiently(gone, || {
            self.settle()?;
            self.connection.prepare_cached("BEGIN")?.execute([])?;
            let read = self.head().and_then(|_| work(self, self.time.moment()));
            // Nothing was written, so nothing can be undone.
            self.connection.prepare_cached("COMMIT")?.execute([])?;
            read
        })
    }

    /// The line of a name as it is now, without what is over; nothing is written.
    pub(crate) fn line(&self, name: &LockName, at: Moment) -> Result<Line> {
        Ok(self.line_and_news(name, at)?.0)
    }

    /// The same, and whether somebody's death began a closure that is not in the file yet.
    fn line_and_news(&self, name: &LockName, at: Moment) -> Result<(Line, bool)> {
        let mut line = rows::load(&self.connection, name, None)?;
        if is_absent(&line) {
            // Any grant moves it, so that a line that came and went was not "unchanged".
            line.version = self.head()?.last;
        }
        let begins = self.lives.sweep(&mut line, at.boot);
        Ok((line, begins))
    }

    /// What a wait has to know.
    pub(crate) fn look(&mut self, name: &LockName, watch: Watch, gone: Gone<'_>) -> Result<View> {
        self.read(gone, |db, at| {
            let (line, begins) = db.line_and_news(name, at)?;
            let mut lives: Vec<Arc<str>> = Vec::new();
            let mine = match watch {
                Watch::Turn(id) | Watch::Hold(id) => line.members.iter().position(|member| member.id == id),
                Watch::Any(_) => Some(line.members.len()),
            };
            // The holders, and whoever is right before us: with each of them watched by the next, one death
            // is news to somebody in any case.
            let before = mine.and_then(|index| index.checked_sub(1));
            for (index, member) in line.members.iter().enumerate() {
                let matters = Some(index) != mine && (member.held.is_some() || Some(index) == before);
                if let Some(life) = member.life.as_ref().filter(|_| matters && lives.len() < MOST_WATCHED)
                    && !db.lives.is_mine(life)
                    && !lives.contains(life)
                {
                    lives.push(life.clone());
                }
            }
            let alone =
                mine.and_then(|index| line.members.get(index)).is_some_and(|member| member.life.is_none());
            let ruling = match watch {
                // Whoever asks again writes it down. Until then it would begin anew with each look.
                Watch::Turn(_) if begins => Ruling::Ready,
                watch => line.rule(at.boot, watch),
            };
            Ok(View { ruling, lives, alone })
        })
    }

    /// Copies what is in the log into the file.
    pub(crate) fn checkpoint(&self, how: &str) -> Result<()> {
        let sql = format!("PRAGMA wal_checkpoint({how})");
        // Others may be reading or writing: what cannot be copied now is copied later.
        match self.connection.query_row(&sql, [], |_| Ok(())) {
            Err(error) if crate::fail::is_busy(&error) => Ok(()),
            done => Ok(done?),
        }
    }

    /// Ends our life, keeps it as long as it holds something, and closes the file.
    pub(crate) fn close(mut self) -> Result<()> {
        let now = self.time.now();
        if let Some(life) = self.lives.id() {
            let until: Option<i64> = self
                .connection
                .query_row(
                    "SELECT max(until) FROM member WHERE life = ? AND token IS NOT NULL",
                    [&*life],
                    |row| row.get(0),
                )
                // If it cannot be asked, it may hold something.
                .unwrap_or(Some(i64::MAX));
            self.lives.end(until.map(crate::time::from_sql).filter(|until| *until > now), now);
        }
        self.connection.close().map_err(|(_, error)| error.into())
    }
}

/// A name as it was kept.
pub(crate) fn parse_name(text: &str) -> Result<LockName> {
    LockName::parse(text).map_err(|error| Fail::damaged(error.to_string()))
}

fn failed_commit(error: rusqlite::Error) -> Fail {
    let fail = Fail::from(error);
    // A log that could not be extended holds no commit. After any other failure it may.
    if fail.is(StoreErrorKind::Full) || fail.busy { fail } else { fail.unknown() }
}
