//! Leases that a reboot or a copied file ended: nobody gave them back, so what they leave behind is left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_core::{BootTime, Line, LockName, Member, Note, Shut};
use rusqlite::Connection;

use crate::db::parse_name;
use crate::fail::Result;
use crate::life::{HOLDS_ON, RunDir};
use crate::round::is_absent;
use crate::rows::{self, unsigned};
use crate::time::{HostTime, to_sql};

/// A reboot ended every process, so every lease and place. Marks and closures go on by the wall clock, but never
/// for longer than they were made for: a machine without a battery clock may boot in 1970.
pub(crate) fn after_reboot(connection: &Connection, time: &HostTime) -> Result<()> {
    let left = left_by_reboot(connection, time)?;
    let (now, wall) = (to_sql(time.now().as_nanos()), to_sql(time.wall_micros()));
    connection.execute_batch("DELETE FROM member; DELETE FROM tombstone;")?;
    for table in ["closure", "mark"] {
        let left = "min(lasting, max(0, until_wall - ?2) * 1000)";
        let sql = format!("UPDATE {table} SET until = ?1 + {left} WHERE until < {}", i64::MAX);
        connection.execute(&sql, [now, wall])?;
    }
    for table in ["mark", "record"] {
        let sql = format!("UPDATE {table} SET made = ?1 - max(0, ?2 - made_wall) * 1000");
        connection.execute(&sql, [now, wall])?;
    }
    for (name, shut) in left {
        let before = line(connection, &name, time.now())?;
        let closures = before.shut.clone().into_iter().chain([shut]);
        let after =
            Line { shut: closures.reduce(Shut::longer), version: before.version + 1, ..before.clone() };
        rows::save(connection, &name, &before, &after, time)?;
    }
    Ok(())
}

/// The closures that are left behind by leases of the boot before, by the clocks of this one.
fn left_by_reboot(connection: &Connection, time: &HostTime) -> Result<BTreeMap<LockName, Shut>> {
    let mut left: BTreeMap<LockName, Shut> = BTreeMap::new();
    let mut query = connection.prepare(
        "SELECT name, place, wall FROM member WHERE token IS NOT NULL AND (delay > 0 OR at_least > 0)",
    )?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        let (place, wall) = (unsigned(row.get(1)?), unsigned(row.get(2)?));
        let name = parse_name(&name)?;
        let line = rows::load(connection, &name, None)?;
        let Some(member) = line.members.into_iter().find(|member| member.place == place) else { continue };
        let lasting = lasting(&member, wall, time.wall_micros());
        if !lasting.is_zero() {
            let shut = Shut { until: time.now().after(lasting), by: member.owner, note: Note::NONE };
            let shut = left.remove(&name).into_iter().chain([shut]).reduce(Shut::longer);
            left.extend(shut.map(|shut| (name, shut)));
        }
    }
    Ok(left)
}

/// For how long from now the name stays shut after a lease of an earlier boot, which was last renewed when the wall
/// clock said `renewed`; its own moments are of a clock that is no more.
fn lasting(member: &Member, renewed: u64, now: u64) -> Duration {
    let Some(held) = &member.held else { return Duration::ZERO };
    let (delay, at_least) = (member.aftermath.delay, member.aftermath.at_least);
    // Nobody knows when in its time it ended, so the latest counts.
    let end = renewed.saturating_add(micros(member.until.since(member.renewed))).min(now);
    let granted = renewed.saturating_sub(micros(member.renewed.since(held.since)));
    let left = |from: u64, lasting: Duration| {
        let until = from.saturating_add(micros(lasting));
        Duration::from_micros(until.saturating_sub(now)).min(lasting)
    };
    left(end, delay).max(left(granted, at_least))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The file was copied or restored while this kernel ran: leases in it whose holders live are theirs, the others
/// are from the past. Elsewhere a missing life is no proof of death, since somebody may have tidied up.
pub(crate) fn after_copy(connection: &Connection, lives: &RunDir, time: &HostTime) -> Result<()> {
    let now = time.now();
    let mut query = connection.prepare("SELECT DISTINCT name, life FROM member")?;
    let known = query.query_map([], |row| Ok((row.get(0)?, row.get::<_, Option<String>>(1)?)))?;
    let known: Vec<(String, Option<String>)> = known.collect::<rusqlite::Result<_>>()?;
    let lives: BTreeSet<&str> =
        known.iter().filter_map(|(_, life)| life.as_deref()).filter(|life| lives.is_alive(life)).collect();
    let is_alive = |member: &Member| member.life.as_deref().is_some_and(|life| lives.contains(life));
    let names: BTreeSet<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
    for name in names {
        let name = parse_name(name)?;
        let before = line(connection, &name, now)?;
        let mut after = before.clone();
        for member in &mut after.members {
            if member.until <= now && member.anchored && member.held.is_some() && is_alive(member) {
                member.until = now.after(HOLDS_ON);
            }
        }
        after.sweep(now, |member| !is_alive(member));
        rows::save(connection, &name, &before, &after, time)?;
    }
    Ok(())
}

fn line(connection: &Connection, name: &LockName, now: BootTime) -> Result<Line> {
    let mut line = rows::load(connection, name, None)?;
    if is_absent(&line) {
        line.version = now.as_nanos();
    }
    Ok(line)
}
