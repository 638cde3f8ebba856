//! After a commit: telling whom it concerns, and burying those who turn out to be dead.

use std::time::Duration;

use leasehold_core::LockName;

use crate::db::{Db, How, parse_name};
use crate::fail::Result;
use crate::wake::Letter;

/// How often a waiter that does not empty its full mailbox is tried again.
const MOST_TRIES: u32 = 250;
/// How long after.
const TRY_AGAIN: Duration = Duration::from_millis(2);

impl Db {
    /// Tells them, each by the way that leads to it.
    pub(crate) fn deliver(&mut self, letters: Vec<Letter>) {
        let mut dead = Vec::new();
        for letter in letters {
            if self.lives.is_mine(&letter.to) {
                self.waits.tell(letter.called, letter.word);
                continue;
            }
            match self.lives.dir().send(&self.sender, &letter.to, &letter.to_bytes()) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    self.pending.push((letter, 0))
                }
                Err(_) if self.lives.is_over(&letter.to) => dead.push(letter.name),
                // It cannot be told; it asks again by itself when it refreshes its place.
                Err(_) => {}
            }
        }
        // Whose turn had come is dead: the next one must not wait for its place to lapse.
        for name in dead {
            let _ = self.sweep(&name);
        }
    }

    /// Drops from a line what is over, and wakes who comes next.
    pub(crate) fn sweep(&mut self, name: &LockName) -> Result<()> {
        self.write(How::LEASE, &|| false, |round| round.step(name, None, |_, _, _| ()))
    }

    /// Removes lives that were found over: their rows on every name first, since a life whose file is missing
    /// counts as living. Whoever waits for those names is woken.
    pub(crate) fn bury(&mut self) {
        if std::mem::replace(&mut self.burying, true) {
            return;
        }
        for life in self.lives.take_over() {
            if self.sweep_life(&life).is_ok_and(|()| !self.lives.is_mine(&life)) {
                self.lives.dir().bury(&life);
            }
        }
        // Found again while their rows went.
        self.lives.take_over();
        self.burying = false;
    }

    fn sweep_life(&mut self, life: &str) -> Result<()> {
        let names = self.read(&|| false, |db, _| {
            let mut query =
                db.connection.prepare_cached("SELECT DISTINCT name FROM member WHERE life = ?")?;
            let names = query.query_map([life], |row| row.get(0))?;
            Ok(names.collect::<rusqlite::Result<Vec<String>>>()?)
        })?;
        names.iter().try_for_each(|name| self.sweep(&parse_name(name)?))
    }

    /// Tries full mailboxes again. Says when to come back.
    pub(crate) fn retry_letters(&mut self) -> Option<Duration> {
        let dir = self.lives.dir().clone();
        self.pending.retain_mut(|(letter, tries)| {
            *tries += 1;
            let sent = dir.send(&self.sender, &letter.to, &letter.to_bytes());
            *tries < MOST_TRIES && sent.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
        });
        (!self.pending.is_empty()).then_some(TRY_AGAIN)
    }
}
