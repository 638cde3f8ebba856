//! A line of claims, from rows and back: what changed is written, and nothing else.

use leasehold_core::{
    Aftermath, BootTime, ClaimId, Held, Line, LockName, Member, Note, Owner, Share, Shut, Token, Turn,
};
use rusqlite::{Connection, Row, params};

use crate::fail::{Fail, Result};
use crate::time::{HostTime, duration, from_sql, nanos, to_sql};

/// Loads the line of a name, with those of its tombstones that may matter: the one of this id. There may be a
/// hundred thousand others.
pub(crate) fn load(connection: &Connection, name: &LockName, id: Option<ClaimId>) -> Result<Line> {
    let mut line = Line::default();
    let mut query = connection.prepare_cached(
        "SELECT place, version, id, life, host, user, pid, program, tag, take, limits, turn, ttl, note,
                since, until, renewed, token, first, run, held_since, renewals, tenure, anchored, wants, delay,
                at_least, reshape
         FROM member WHERE name = ? ORDER BY place",
    )?;
    let mut rows = query.query([name.as_str()])?;
    while let Some(row) = rows.next()? {
        let version: i64 = row.get(1)?;
        line.version = line.version.max(unsigned(version));
        line.members.push(member(row)?);
    }
    let mut query = connection.prepare_cached(
        "SELECT version, until, host, user, pid, program, tag, note FROM closure WHERE name = ?",
    )?;
    let mut rows = query.query([name.as_str()])?;
    if let Some(row) = rows.next()? {
        line.version = line.version.max(unsigned(row.get(0)?));
        let (by, note) = (owner(row, 2)?, note(row, 7)?);
        line.shut = Some(Shut { until: from_sql(row.get(1)?), by, note });
    }
    if let Some(id) = id {
        let mut query = connection.prepare_cached("SELECT until FROM tombstone WHERE id = ? AND name = ?")?;
        let mut rows = query.query(params![id.to_bytes(), name.as_str()])?;
        if let Some(row) = rows.next()? {
            line.tombstones.bury(id, from_sql(row.get(0)?));
        }
    }
    Ok(line)
}

fn member(row: &Row<'_>) -> Result<Member> {
    let token: Option<i64> = row.get(17)?;
    let held = match token {
        None => None,
        Some(number) => Some(Held {
            token: token_of(number)?,
            first: token_of(row.get(18)?)?,
            run: row.get(19)?,
            since: from_sql(row.get(20)?),
            renewals: row.get(21)?,
            tenure: row.get(22)?,
        }),
    };
    let life: Option<String> = row.get(3)?;
    let limits = row.get(10)?;
    let share = |take| Share::from_parts(take, limits).map_err(|_| damaged("share"));
    let turn: i64 = row.get(11)?;
    Ok(Member {
        id: ClaimId::from_bytes(row.get(2)?),
        owner: owner(row, 4)?,
        share: share(row.get(9)?)?,
        wanted: row.get::<_, Option<u32>>(24)?.map(share).transpose()?,
        reshape: row.get(27)?,
        turn: turn_of(turn)?,
        ttl: duration(row.get(12)?),
        aftermath: Aftermath { delay: duration(row.get(25)?), at_least: duration(row.get(26)?) },
        note: note(row, 13)?,
        place: unsigned(row.get(0)?),
        since: from_sql(row.get(14)?),
        until: from_sql(row.get(15)?),
        renewed: from_sql(row.get(16)?),
        held,
        anchored: row.get(23)?,
        life: life.map(Into::into),
    })
}

fn owner(row: &Row<'_>, at: usize) -> Result<Owner> {
    let (host, user, pid) = (row.get(at)?, row.get(at + 1)?, row.get(at + 2)?);
    Ok(Owner { host, user, pid, program: row.get(at + 3)?, tag: row.get(at + 4)? })
}

fn note(row: &Row<'_>, at: usize) -> Result<Note> {
    let text = row.get_ref(at)?.as_str().map_err(|_| damaged("note"))?;
    Note::parse(text).map_err(|_| damaged("note"))
}

fn token_of(number: i64) -> Result<Token> {
    u64::try_from(number).ok().and_then(Token::new).ok_or_else(|| damaged("token"))
}

/// The numbers of turns in the file; never to be given to another turn.
const fn turn_number(turn: Turn) -> i64 {
    match turn {
        Turn::Now => 0,
        Turn::Any => 1,
        Turn::Fifo => 2,
    }
}

fn turn_of(number: i64) -> Result<Turn> {
    let turns = [Turn::Now, Turn::Any, Turn::Fifo];
    turns.into_iter().find(|turn| turn_number(*turn) == number).ok_or_else(|| damaged("turn"))
}

fn damaged(what: &str) -> Fail {
    Fail::damaged(format!("a {what} in the file cannot be one"))
}

pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Writes what makes `after` differ from `before`.
pub(crate) fn save(
    connection: &Connection,
    name: &LockName,
    before: &Line,
    after: &Line,
    time: &HostTime,
) -> Result<()> {
    let Line { members, shut, tombstones, version } = after;
    let version = to_sql(*version);
    // One row has to carry the line's version.
    let mut carried = after.version == before.version;
    // Both are in order of their places, and lines may be long.
    let same = |line: &[Member], one: &Member| -> Option<usize> {
        let found = line.binary_search_by_key(&one.place, |member| member.place).ok()?;
        is_same(&line[found], one).then_some(found)
    };
    for gone in before.members.iter().filter(|old| same(members, old).is_none()) {
        let mut delete = connection.prepare_cached("DELETE FROM member WHERE name = ? AND place = ?")?;
        delete.execute(params![name.as_str(), to_sql(gone.place)])?;
    }
    for member in members {
        match same(&before.members, member).map(|index| &before.members[index]) {
            None => insert(connection, name, version, member, time)?,
            Some(old) if old != member => update(connection, name, version, member, time)?,
            Some(_) => continue,
        }
        carried = true;
    }
    for (id, until) in tombstones.iter().filter(|(id, until)| before.tombstones.until(*id) != Some(*until)) {
        bury(connection, name, id, until)?;
    }
    if *shut != before.shut {
        match shut {
            None => {
                connection.prepare_cached("DELETE FROM closure WHERE name = ?")?.execute([name.as_str()])?;
            }
            Some(shut) => {
                close(connection, name, version, shut, time)?;
                carried = true;
            }
        }
    }
    if !carried {
        let mut carry =
            connection.prepare_cached("UPDATE member SET version = ? WHERE name = ? AND place = ?")?;
        if let Some(first) = members.first() {
            carry.execute(params![version, name.as_str(), to_sql(first.place)])?;
        } else if shut.is_some() {
            let mut carry = connection.prepare_cached("UPDATE closure SET version = ? WHERE name = ?")?;
            carry.execute(params![version, name.as_str()])?;
        }
        // An empty line has no version: whoever looked at it before sees that it is another one.
    }
    Ok(())
}

/// Whether it is the same row: a claim whose place lapsed and that came back is another one under the same id.
fn is_same(old: &Member, new: &Member) -> bool {
    let Member {
        id,
        owner,
        share: _,
        wanted: _,
        reshape: _,
        turn,
        ttl,
        aftermath: _,
        place,
        since,
        note: _,
        until: _,
        renewed: _,
        held: _,
        anchored: _,
        life: _,
    } = old;
    let place = (*id, *place, *since) == (new.id, new.place, new.since);
    place && *owner == new.owner && (*turn, *ttl) == (new.turn, new.ttl)
}

fn insert(
    connection: &Connection,
    name: &LockName,
    version: i64,
    member: &Member,
    time: &HostTime,
) -> Result<()> {
    let Member {
        id,
        owner,
        share,
        wanted,
        reshape,
        turn,
        ttl,
        aftermath,
        note,
        place,
        since,
        until,
        renewed,
        held,
        anchored,
        life,
    } = member;
    let Aftermath { delay, at_least } = aftermath;
    let Owner { host, user, pid, program, tag } = owner;
    let held = Columns::of(held.as_ref());
    let mut insert = connection.prepare_cached(
        "INSERT INTO member (name, place, version, id, life, host, user, pid, program, tag, take, limits, turn,
                             ttl, note, since, until, renewed, token, first, run, held_since, renewals, tenure,
                             anchored, wants, reshape, delay, at_least, wall)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )?;
    insert.execute(params![
        name.as_str(),
        to_sql(*place),
        version,
        id.to_bytes(),
        life.as_deref(),
        host,
        user,
        pid,
        program,
        tag,
        share.take(),
        share.of(),
        turn_number(*turn),
        nanos(*ttl),
        note.text().unwrap_or(""),
        moment(*since),
        moment(*until),
        moment(*renewed),
        held.token,
        held.first,
        held.run,
        held.since,
        held.renewals,
        held.tenure,
        anchored,
        wanted.map(Share::take),
        reshape,
        nanos(*delay),
        nanos(*at_least),
        wall_at(time, *renewed),
    ])?;
    Ok(())
}

fn update(
    connection: &Connection,
    name: &LockName,
    version: i64,
    member: &Member,
    time: &HostTime,
) -> Result<()> {
    // What a member is born with never changes: its id, owner, turn, ttl, aftermath, place and birth.
    let Member {
        id: _,
        owner: _,
        share,
        wanted,
        reshape,
        turn: _,
        ttl: _,
        aftermath: _,
        note,
        place,
        since: _,
        until,
        renewed,
        held,
        anchored: _,
        life,
    } = member;
    let held = Columns::of(held.as_ref());
    let mut update = connection.prepare_cached(
        "UPDATE member SET version = ?, life = ?, take = ?, wants = ?, reshape = ?, note = ?, until = ?, renewed = ?,
                           wall = ?, token = ?, first = ?, run = ?, held_since = ?, renewals = ?, tenure = ?
         WHERE name = ? AND place = ?",
    )?;
    update.execute(params![
        version,
        life.as_deref(),
        share.take(),
        wanted.map(Share::take),
        reshape,
        note.text().unwrap_or(""),
        moment(*until),
        moment(*renewed),
        wall_at(time, *renewed),
        held.token,
        held.first,
        held.run,
        held.since,
        held.renewals,
        held.tenure,
        name.as_str(),
        to_sql(*place),
    ])?;
    Ok(())
}

/// What a member holds, as columns: all of them empty for a waiter.
#[derive(Default)]
struct Columns {
    token: Option<i64>,
    first: Option<i64>,
    run: Option<u32>,
    since: Option<i64>,
    renewals: Option<u32>,
    tenure: Option<u32>,
}

impl Columns {
    fn of(held: Option<&Held>) -> Self {
        let Some(Held { token, first, run, since, renewals, tenure }) = held else { return Self::default() };
        Self {
            token: Some(token.as_i64()),
            first: Some(first.as_i64()),
            run: Some(*run),
            since: Some(moment(*since)),
            renewals: Some(*renewals),
            tenure: Some(*tenure),
        }
    }
}

fn bury(connection: &Connection, name: &LockName, id: ClaimId, until: BootTime) -> Result<()> {
    let mut bury = connection.prepare_cached(
        "INSERT INTO tombstone (id, name, until) VALUES (?, ?, ?)
         ON CONFLICT DO UPDATE SET until = max(until, excluded.until)",
    )?;
    bury.execute(params![id.to_bytes(), name.as_str(), moment(until)])?;
    Ok(())
}

fn close(connection: &Connection, name: &LockName, version: i64, shut: &Shut, time: &HostTime) -> Result<()> {
    let Shut { until, by, note } = shut;
    let Owner { host, user, pid, program, tag } = by;
    let lasting = until.since(time.now());
    let mut close = connection.prepare_cached(
        "INSERT OR REPLACE INTO closure (name, version, until, until_wall, lasting, host, user, pid, program,
                                         tag, note)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )?;
    close.execute(params![
        name.as_str(),
        version,
        moment(*until),
        wall_after(time, lasting),
        nanos(lasting),
        host,
        user,
        pid,
        program,
        tag,
        note.text().unwrap_or(""),
    ])?;
    Ok(())
}

/// The wall clock after a time, in microseconds, for what must survive a reboot.
pub(crate) fn wall_after(time: &HostTime, lasting: std::time::Duration) -> i64 {
    let micros = u64::try_from(lasting.as_micros()).unwrap_or(u64::MAX);
    to_sql(time.wall_micros().saturating_add(micros))
}

/// The wall clock at a moment that has been, in microseconds.
fn wall_at(time: &HostTime, at: BootTime) -> i64 {
    let ago = u64::try_from(time.now().since(at).as_micros()).unwrap_or(u64::MAX);
    to_sql(time.wall_micros().saturating_sub(ago))
}

fn moment(at: BootTime) -> i64 {
    to_sql(at.as_nanos())
}
