//! One transaction that writes: steps on lines, and whom they concern.

use leasehold_core::{Claim, ClaimId, Counter, Line, LockName, Member, Moment};
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
        let before = self.load(name, id)?;
        let mut line = before.clone();
        self.lives.sweep(&mut line, self.at.boot);
        let answer = rule(&mut line, self.at, &mut self.counter);
        self.save(name, &before, &line)?;
        Ok(answer)
    }

    /// One step on the lines of several names.
    pub(crate) fn step_all<T>(
        &mut self,
        claims: &[Claim],
        rule: impl FnOnce(&mut [(Line, &Claim)], Moment, &mut Counter) -> T,
    ) -> Result<T> {
        let mut befores = Vec::with_capacity(claims.len());
        let mut pairs = Vec::with_capacity(claims.len());
        for claim in claims {
            let before = self.load(&claim.name, Some(claim.id))?;
            let mut line = before.clone();
            self.lives.sweep(&mut line, self.at.boot);
            befores.push(before);
            pairs.push((line, claim));
        }
        let answer = rule(&mut pairs, self.at, &mut self.counter);
        for (before, (line, claim)) in befores.iter().zip(&pairs) {
            self.save(&claim.name, before, line)?;
        }
        Ok(answer)
    }

    fn load(&self, name: &LockName, id: Option<ClaimId>) -> Result<Line> {
        let mut line = rows::load(self.connection, name, id)?;
        if is_absent(&line) {
            line.version = self.at.boot.as_nanos();
        }
        Ok(line)
    }

    fn save(&mut self, name: &LockName, before: &Line, line: &Line) -> Result<()> {
        rows::save(self.connection, name, before, line, self.time)?;
        if line.version != before.version {
            self.address(name, before, line);
        }
        Ok(())
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
