//! What a file tells of itself: where it is, and whether there is room to grow.

use async_trait::async_trait;
use leasehold_core::{Check, Code, Doctor, LockName, Op, Result, ServerTime};

use crate::store::SqliteStore;

/// A file of locks needs little; what is below is about to be nothing.
const LITTLE: u64 = 64 << 20;

#[async_trait]
impl Doctor for SqliteStore {
    async fn greet(&self) -> Result<String> {
        self.ask(Op::Check, None, |db, gone| db.read(gone, |_, _| Ok(()))).await?;
        Ok(format!("SQLite file {}", self.path().display()))
    }

    /// All processes of a host have one clock, so there is no other.
    async fn ping(&self) -> Result<Option<ServerTime>> {
        self.ask(Op::Check, None, |db, gone| db.read(gone, |_, _| Ok(()))).await?;
        Ok(None)
    }

    async fn checkup(&self) -> Vec<Check> {
        vec![check_room(self.path())]
    }

    async fn bare(&self, _name: &LockName) -> Result<Option<&'static str>> {
        Ok(None)
    }
}

fn check_room(path: &std::path::Path) -> Check {
    const NAME: &str = "room";
    let folder = path.parent().unwrap_or(path);
    match rustix::fs::statvfs(folder) {
        Ok(told) => {
            let free = told.f_bavail.saturating_mul(told.f_frsize);
            let says = format!("{} MB free where the file lies", free >> 20);
            if free >= LITTLE {
                return Check::ok(NAME, says);
            }
            Check::warning(NAME, Code::FULL, says, "make room: a full disk refuses new locks")
        }
        Err(error) => {
            Check::unknown(NAME, format!("not told: {error}"), format!("look: df {}", folder.display()))
        }
    }
}
