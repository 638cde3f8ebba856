//! Which names there are: those that somebody holds or waits for, or that are kept shut.

use leasehold_core::{LockName, Moment};

use crate::db::{Db, parse_name};
use crate::fail::Result;
use crate::time::to_sql;

impl Db {
    /// Names that start with `prefix` and are not free, in byte order, after `after`.
    pub(crate) fn names(
        &self,
        prefix: &str,
        after: Option<&LockName>,
        at: Moment,
        most: usize,
    ) -> Result<Vec<LockName>> {
        // What has run out may keep its name shut, though nobody has written that down yet.
        let mut query = self.connection.prepare_cached(
            "SELECT name, life, until > ?1 OR (anchored AND token IS NOT NULL), delay > 0 OR at_least > 0
             FROM member
             WHERE (until > ?1 OR (token IS NOT NULL
                                   AND (anchored OR until + delay > ?1 OR held_since + at_least > ?1)))
               AND name > ?2 AND name >= ?3
             UNION ALL SELECT name, NULL, TRUE, FALSE FROM closure WHERE until > ?1 AND name > ?2 AND name >= ?3
             ORDER BY name",
        )?;
        let after = after.map_or("", |name| name.as_str());
        let mut rows = query.query(rusqlite::params![to_sql(at.boot.as_nanos()), after, prefix])?;
        let mut names: Vec<LockName> = Vec::new();
        while let Some(row) = rows.next()? {
            let name = row.get_ref(0)?.as_str().unwrap_or("");
            if !name.starts_with(prefix) || names.len() >= most {
                break;
            }
            if names.last().is_some_and(|last| last.as_str() == name) {
                continue;
            }
            let name = parse_name(name)?;
            let (life, stands, leaves): (Option<String>, bool, bool) =
                (row.get(1)?, row.get(2)?, row.get(3)?);
            let lives = stands && !life.is_some_and(|life| self.lives.is_over(&life.into()));
            if lives || (leaves && self.line(&name, at)?.shut.is_some()) {
                names.push(name);
            }
        }
        Ok(names)
    }
}
