//! One transaction that writes: steps on lines, and whom they concern.

use leasehold_core::{ClaimId, Counter, Line, LockName, Member, Moment};
use rusqlite::Connection;

use crate::fail::Result;
use crate::life::Lives;
use crate::rows;
use crate::time::HostTime;
use crate::wake::{Called, Letter, Word};

/// One transaction that writes.
pub(crate) struct Round<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) time: &'a HostTime,
    pub(crate) at: Moment,
    pub(crate) lives: &'a Lives,
    pub(crate) counter: Counter,
    pub(crate) letters: Vec<Letter>,
}

impl Round<'_> {
    /// One step on the line of a name: swept before, its waiters woken after the commit.
    pub(crate) fn step<T>(
        &mut self,
        name: &LockName,
        id: Option<ClaimId>,
        rule: impl FnOnce(&mut Line, Moment, &mut Counter) -> T,
    ) -> Result<T> {
        let mut before = rows::load(self.connection, name, id)?;
        if is_absent(&before) {
            before.version = self.at.boot.as_nanos();
        }
        let mut line = before.clone();
        self.lives.sweep(&mut line, self.at.boot);
        let answer = rule(&mut line, self.at, &mut self.counter);
        rows::save(self.connection, name, &before, &line, self.time)?;
        if line.version != before.version {
            self.address(name, &before, &line);
        }
        Ok(answer)
    }

    /// Whom a change concerns: whose turn has come, whose claim is gone, and the first of those who now have
    /// somebody else in their way.
    fn address(&mut self, name: &LockName, before: &Line, after: &Line) {
        let letter = |member: &Member, word| {
            let (to, called) = (member.life.clone()?, Called::of(member.id));
            Some(Letter { to, called, word, name: name.clone() })
        };
        let stays = |old: &&Member| after.members.iter().any(|new| new.id == old.id);
        let gone = before.members.iter().filter(|old| !stays(old));
        self.letters.extend(gone.filter_map(|member| letter(member, Word::Go)));
        self.letters.extend(after.ready().filter_map(|member| letter(member, Word::Go)));
        let first = after.members.iter().find(|member| member.held.is_none());
        self.letters.extend(first.and_then(|member| letter(member, Word::Look)));
    }
}

/// Whether no row says which version the line has.
pub(crate) fn is_absent(line: &Line) -> bool {
    line.members.is_empty() && line.shut.is_none()
}
